// SPDX-License-Identifier: Apache-2.0
#include "tests/cuda_on_cpu/support.h"

#include <algorithm>

namespace {

using namespace cuda_test;
const int64_t kSizes[][2] = {{1, 1}, {3, 5}, {4, 64}, {2, 1023}, {3, 1504}, {2, 2056}};
// Of columns: a chunk of rows and less and more, and more columns than one block's.
const int64_t kTall[][2] = {{1, 1}, {3, 5}, {128, 32}, {131, 36}, {300, 3}, {40, 264}};
// Of two float sums in different orders, the CPU's one element after the other in some builds.
const double kClose = 5e-6;

// One layer's arrays on the CPU, forward done; `rms`: without a mean and a shift.
struct Layer {
    const Type &type;
    int64_t n, c;
    bool rms;
    Floats x, more, dy, w, b, mean, rstd;
    OnHost x_host, dy_host, y;
    Layer(Random &random, const Type &t, const int64_t size[2], bool is_rms)
        : type(t), n(size[0]), c(size[1]), rms(is_rms), x(random_floats(random, n * c, -1, 3)),
          more(random_floats(random, n * c)), dy(random_floats(random, n * c)),
          w(random_floats(random, c, 0.5, 2)), b(random_floats(random, c)), mean((size_t)n),
          rstd((size_t)n), x_host(t, x), dy_host(t, dy), y(t, n * c) {
        const crl_layernorm_ops &cpu = *t.cpu->layernorm;
        if (rms)
            EXPECT_OK(cpu.rms_forward(nullptr, x_host.data(), w.data(), 1e-5, y.data(), rstd.data(),
                                      n, c));
        else
            EXPECT_OK(cpu.forward(nullptr, x_host.data(), w.data(), b.data(), 1e-5, y.data(),
                                  mean.data(), rstd.data(), n, c));
    }
    std::string text() const {
        return std::string(type.name) + (rms ? " rms " : " ") + std::to_string(n) + "x" +
               std::to_string(c);
    }
};

class CudaLayernorm : public Cuda {
  protected:
    // Runs check on every type and size, by both norms.
    template <size_t N>
    void each_layer(const int64_t (&sizes)[N][2], const std::function<void(const Layer &)> &check) {
        for (const Type &type : kTypes) {
            for (const auto &size : sizes) {
                for (bool rms : {false, true}) {
                    const Layer layer(random, type, size, rms);
                    SCOPED_TRACE(layer.text());
                    check(layer);
                }
            }
        }
    }

    // y of x that begins `shift` elements behind an aligned address; statistics are compared.
    Floats forward(const Layer &layer, int shift) {
        const crl_layernorm_ops &cuda = *layer.type.cuda->layernorm;
        OnDeviceAs x(layer.type, layer.x, shift), y(layer.type, layer.n * layer.c);
        OnDevice<float> w(layer.w), b(layer.b), mean(layer.n), rstd(layer.n);
        if (layer.rms)
            EXPECT_OK(cuda.rms_forward(stream, x.data(), w.data(), 1e-5, y.data(), rstd.data(),
                                       layer.n, layer.c));
        else
            EXPECT_OK(cuda.forward(stream, x.data(), w.data(), b.data(), 1e-5, y.data(),
                                   mean.data(), rstd.data(), layer.n, layer.c));
        wait();
        EXPECT_LT(error(rstd.get(), layer.rstd), kClose);
        EXPECT_TRUE(layer.rms || error(mean.get(), layer.mean) < kClose);
        return y.get();
    }

    Floats backward_input(const Layer &layer, const Floats *before) {
        const crl_layernorm_ops &cuda = *layer.type.cuda->layernorm;
        OnDeviceAs x(layer.type, layer.x), dy(layer.type, layer.dy);
        OnDeviceAs dx(layer.type, before ? *before : Floats(layer.x.size(), NAN));
        OnDevice<float> w(layer.w), mean(layer.mean), rstd(layer.rstd);
        if (layer.rms)
            EXPECT_OK(cuda.rms_backward_input(stream, x.data(), dy.data(), w.data(), rstd.data(),
                                              dx.data(), layer.n, layer.c, before != nullptr));
        else
            EXPECT_OK(cuda.backward_input(stream, x.data(), dy.data(), w.data(), mean.data(),
                                          rstd.data(), dx.data(), layer.n, layer.c,
                                          before != nullptr));
        wait();
        return dx.get();
    }

    // dw, and db unless by the mean square.
    Floats backward_weight(const Layer &layer, const Floats *before) {
        const crl_layernorm_ops &cuda = *layer.type.cuda->layernorm;
        const int64_t n = layer.n, c = layer.c;
        const Floats start = before ? *before : Floats((size_t)c, NAN);
        OnDeviceAs x(layer.type, layer.x), dy(layer.type, layer.dy);
        OnDevice<float> mean(layer.mean), rstd(layer.rstd), dw(start), db(start);
        OnDevice<char> scratch((int64_t)cuda.scratch_bytes(n, c));
        if (layer.rms)
            EXPECT_OK(cuda.rms_backward_weight(stream, x.data(), dy.data(), rstd.data(), dw.data(),
                                               n, c, before != nullptr, scratch.data()));
        else
            EXPECT_OK(cuda.backward_weight(stream, x.data(), dy.data(), mean.data(), rstd.data(),
                                           dw.data(), db.data(), n, c, before != nullptr,
                                           scratch.data()));
        wait();
        return layer.rms ? dw.get() : joined(dw.get(), db.get());
    }

    Random random{1};
};

TEST_F(CudaLayernorm, ForwardIsTheCpus) {
    each_layer(kSizes, [&](const Layer &layer) {
        Floats aligned;
        for (int shift : {0, 1}) {
            const Floats y = same_in_any_order([&] { return forward(layer, shift); });
            EXPECT_LT(error_as(layer.type, y, layer.y.get(), 1), kClose);
            EXPECT_TRUE(shift == 0 || same_bits(y, aligned)) << "alignment changes bits";
            aligned = y;
        }
    });
}

// The sum has the bits of add, and what follows those of forward of that sum.
TEST_F(CudaLayernorm, AddForwardIsAddThenForward) {
    each_layer(kSizes, [&](const Layer &layer) {
        const int64_t n = layer.n, c = layer.c;
        const crl_kernels &cuda = *layer.type.cuda;
        if (layer.rms)
            return;
        OnDevice<float> w(layer.w), b(layer.b), mean(n), rstd(n);
        OnDeviceAs x(layer.type, layer.x), more(layer.type, layer.more), sum(layer.type, n * c);
        OnDeviceAs y(layer.type, n * c);
        EXPECT_OK(cuda.eltwise->add(stream, x.data(), more.data(), sum.data(), n * c));
        EXPECT_OK(cuda.layernorm->forward(stream, sum.data(), w.data(), b.data(), 1e-5, y.data(),
                                          mean.data(), rstd.data(), n, c));
        wait();
        const Floats expected = joined(sum.get(), y.get(), joined(mean.get(), rstd.get()));
        const Floats got = same_in_any_order([&] {
            OnDeviceAs fused_sum(layer.type, n * c), fused_y(layer.type, n * c);
            OnDevice<float> fused_mean(n), fused_rstd(n);
            EXPECT_OK(cuda.layernorm->add_forward(stream, x.data(), more.data(), fused_sum.data(),
                                                  w.data(), b.data(), 1e-5, fused_y.data(),
                                                  fused_mean.data(), fused_rstd.data(), n, c));
            wait();
            return joined(fused_sum.get(), fused_y.get(),
                          joined(fused_mean.get(), fused_rstd.get()));
        });
        EXPECT_TRUE(same_bits(got, expected));
    });
}

TEST_F(CudaLayernorm, InputGradientIsTheCpus) {
    each_layer(kSizes, [&](const Layer &layer) {
        const int64_t n = layer.n, c = layer.c;
        const crl_layernorm_ops &cpu = *layer.type.cpu->layernorm;
        const Floats before = random_floats(random, n * c);
        // dx is the difference of terms of this size: nothing may be left of a short row's
        const double terms = *std::max_element(layer.rstd.begin(), layer.rstd.end());
        for (bool accumulate : {false, true}) {
            OnHost expected(layer.type, before);
            if (layer.rms)
                EXPECT_OK(cpu.rms_backward_input(nullptr, layer.x_host.data(), layer.dy_host.data(),
                                                 layer.w.data(), layer.rstd.data(), expected.data(),
                                                 n, c, accumulate));
            else
                EXPECT_OK(cpu.backward_input(nullptr, layer.x_host.data(), layer.dy_host.data(),
                                             layer.w.data(), layer.mean.data(), layer.rstd.data(),
                                             expected.data(), n, c, accumulate));
            const Floats dx = same_in_any_order(
                [&] { return backward_input(layer, accumulate ? &before : nullptr); });
            EXPECT_LT(error_as(layer.type, dx, expected.get(), terms), kClose);
        }
    });
}

TEST_F(CudaLayernorm, WeightGradientsAreTheCpus) {
    each_layer(kTall, [&](const Layer &layer) {
        const int64_t n = layer.n, c = layer.c;
        const crl_layernorm_ops &cpu = *layer.type.cpu->layernorm;
        const Floats before = random_floats(random, c);
        for (bool accumulate : {false, true}) {
            Floats dw = before, db = before;
            std::vector<char> scratch(cpu.scratch_bytes(n, c) + 1);
            if (layer.rms)
                EXPECT_OK(cpu.rms_backward_weight(nullptr, layer.x_host.data(),
                                                  layer.dy_host.data(), layer.rstd.data(),
                                                  dw.data(), n, c, accumulate, scratch.data()));
            else
                EXPECT_OK(cpu.backward_weight(nullptr, layer.x_host.data(), layer.dy_host.data(),
                                              layer.mean.data(), layer.rstd.data(), dw.data(),
                                              db.data(), n, c, accumulate, scratch.data()));
            const Floats got = same_in_any_order(
                [&] { return backward_weight(layer, accumulate ? &before : nullptr); });
            EXPECT_LT(error(got, layer.rms ? dw : joined(dw, db), 1), kClose);
        }
    });
}

} // namespace
