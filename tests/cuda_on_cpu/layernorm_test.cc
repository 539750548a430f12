// SPDX-License-Identifier: Apache-2.0
#include "tests/cuda_on_cpu/support.h"

namespace {

using namespace cuda_test;
const crl_layernorm_ops &kCpu = *crl_kernels_cpu.layernorm, &kCuda = *crl_kernels_cuda.layernorm;
const int64_t kSizes[][2] = {{1, 1}, {3, 5}, {4, 64}, {2, 1023}, {3, 1500}};
// Of columns: a chunk of rows and less and more, and more columns than one block's.
const int64_t kTall[][2] = {{1, 1}, {3, 5}, {128, 32}, {131, 36}, {300, 3}};
// Of two float sums in different orders, the CPU's one element after the other in some builds.
const double kClose = 5e-6;

// One layer's arrays on the CPU, forward done.
struct Layer {
    int64_t n, c;
    Floats x, dy, w, b, y, mean, rstd;
    Layer(Random &random, int64_t rows, int64_t channels)
        : n(rows), c(channels), x(random_floats(random, n * c, -1, 3)),
          dy(random_floats(random, n * c)), w(random_floats(random, c, 0.5, 2)),
          b(random_floats(random, c)), y(x.size()), mean((size_t)n), rstd((size_t)n) {
        EXPECT_OK(kCpu.forward(nullptr, x.data(), w.data(), b.data(), 1e-5, y.data(), mean.data(),
                               rstd.data(), n, c));
    }
};

class CudaLayernorm : public Cuda {};

TEST_F(CudaLayernorm, ForwardIsTheCpus) {
    Random random(1);
    for (const auto &size : kSizes) {
        const Layer layer(random, size[0], size[1]);
        Floats aligned;
        for (int shift : {0, 1}) {
            const Floats y = same_in_any_order([&] {
                OnDevice<float> x(layer.x, shift), w(layer.w), b(layer.b), out(layer.n * layer.c);
                OnDevice<float> mean(layer.n), rstd(layer.n);
                EXPECT_OK(kCuda.forward(stream, x.data(), w.data(), b.data(), 1e-5, out.data(),
                                        mean.data(), rstd.data(), layer.n, layer.c));
                wait();
                EXPECT_LT(error(mean.get(), layer.mean), kClose);
                EXPECT_LT(error(rstd.get(), layer.rstd), kClose);
                return out.get();
            });
            EXPECT_LT(error(y, layer.y), kClose) << layer.n << "x" << layer.c;
            EXPECT_TRUE(shift == 0 || same_bits(y, aligned)) << "alignment changes bits";
            aligned = y;
        }
    }
}

TEST_F(CudaLayernorm, InputGradientIsTheCpus) {
    Random random(2);
    for (const auto &size : kSizes) {
        const Layer layer(random, size[0], size[1]);
        const int64_t n = layer.n, c = layer.c;
        const Floats before = random_floats(random, n * c);
        for (bool accumulate : {false, true}) {
            Floats expected = before;
            EXPECT_OK(kCpu.backward_input(nullptr, layer.x.data(), layer.dy.data(), layer.w.data(),
                                          layer.mean.data(), layer.rstd.data(), expected.data(), n,
                                          c, accumulate));
            const Floats dx = same_in_any_order([&] {
                OnDevice<float> x(layer.x), dy(layer.dy), w(layer.w), mean(layer.mean);
                OnDevice<float> rstd(layer.rstd), fresh(n * c), old(before);
                float *out = accumulate ? old.data() : fresh.data();
                EXPECT_OK(kCuda.backward_input(stream, x.data(), dy.data(), w.data(), mean.data(),
                                               rstd.data(), out, n, c, accumulate));
                wait();
                return accumulate ? old.get() : fresh.get();
            });
            EXPECT_LT(error(dx, expected, 1), kClose) << n << "x" << c;
        }
    }
}

TEST_F(CudaLayernorm, WeightGradientsAreTheCpus) {
    Random random(3);
    for (const auto &size : kTall) {
        const Layer layer(random, size[0], size[1]);
        const int64_t n = layer.n, c = layer.c;
        const Floats before = random_floats(random, c);
        for (bool accumulate : {false, true}) {
            Floats dw = before, db = before;
            EXPECT_OK(kCpu.backward_weight(nullptr, layer.x.data(), layer.dy.data(),
                                           layer.mean.data(), layer.rstd.data(), dw.data(),
                                           db.data(), n, c, accumulate, nullptr));
            Floats expected = dw;
            expected.insert(expected.end(), db.begin(), db.end());
            const Floats both = same_in_any_order([&] {
                OnDevice<float> x(layer.x), dy(layer.dy), mean(layer.mean), rstd(layer.rstd);
                OnDevice<float> out_w(accumulate ? before : Floats((size_t)c, NAN));
                OnDevice<float> out_b(accumulate ? before : Floats((size_t)c, NAN));
                OnDevice<char> scratch((int64_t)kCuda.scratch_bytes(n, c));
                EXPECT_OK(kCuda.backward_weight(stream, x.data(), dy.data(), mean.data(),
                                                rstd.data(), out_w.data(), out_b.data(), n, c,
                                                accumulate, scratch.data()));
                wait();
                Floats got = out_w.get(), more = out_b.get();
                got.insert(got.end(), more.begin(), more.end());
                return got;
            });
            EXPECT_LT(error(both, expected, 1), kClose) << n << "x" << c;
        }
    }
}

} // namespace
