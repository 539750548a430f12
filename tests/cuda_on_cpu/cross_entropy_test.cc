// SPDX-License-Identifier: Apache-2.0
#include "tests/cuda_on_cpu/support.h"

namespace {

using namespace cuda_test;

struct Size {
    int64_t n, v, valid;
    bool weighted;
};
const Size kSizes[] = {{1, 1, 1, false},   {3, 2, 3, true},     {5, 37, 4, false},
                       {7, 1000, 7, true}, {4, 5003, 3, false}, {1060, 5, 1050, true},
                       {2, 1028, 0, false}};

struct Case {
    const Type &type;
    const crl_cross_entropy_ops &cpu, &cuda;
    Floats logits, row_weight, label_weight, lse;
    OnHost logits_host;
    Ints targets;
    crl_cross_entropy_config config; // with the CPU's weights
    crl_loss loss = {};
    int64_t valid;

    Case(Random &random, const Type &t, const Size &s)
        : type(t), cpu(*t.cpu->cross_entropy), cuda(*t.cuda->cross_entropy),
          logits(random_floats(random, s.n * s.v, -9, 9)),
          row_weight(s.weighted ? random_floats(random, s.n, 0, 2) : Floats()),
          label_weight(s.weighted ? random_floats(random, s.v, 0, 2) : Floats()), lse((size_t)s.n),
          logits_host(t, logits), targets(random_ints(random, s.n, (int32_t)s.v)), valid(s.valid) {
        if (s.n > 2)
            targets[1] = -100;
        for (size_t i = 0; s.n > 1000 && i < 1024; i++) // the emulation takes its time
            targets[i] = i % 64 < 3 ? targets[i] : -100;
        config = {s.n, s.v, -100, s.weighted ? label_weight.data() : nullptr};
        EXPECT_OK(cpu.forward(nullptr, &config, logits_host.data(), targets.data(), weights(),
                              valid, lse.data(), &loss));
    }
    const float *weights() const { return row_weight.empty() ? nullptr : row_weight.data(); }
    std::string text() const {
        return std::string(type.name) + " " + std::to_string(config.rows) + "x" +
               std::to_string(config.classes);
    }
};

// The case's arrays on the device.
struct CaseOnDevice {
    OnDeviceAs logits;
    OnDevice<float> row_weight, label_weight;
    OnDevice<int32_t> targets;
    crl_cross_entropy_config config;
    const bool weighted;
    explicit CaseOnDevice(const Case &c)
        : logits(c.type, c.logits), row_weight(c.row_weight), label_weight(c.label_weight),
          targets(c.targets), config(c.config), weighted(!c.row_weight.empty()) {
        config.label_weight = weighted ? label_weight.data() : nullptr;
    }
    const float *weights() { return weighted ? row_weight.data() : nullptr; }
};

// A loss of nothing yet, in the device's memory.
class OnLoss {
  public:
    crl_loss *data() { return on_.data(); }
    crl_loss get() { return on_.get()[0]; }

  private:
    OnDevice<crl_loss> on_ = OnDevice<crl_loss>(std::vector<crl_loss>(1));
};

class CudaCrossEntropy : public Cuda {
  protected:
    void each_case(const std::function<void(const Case &)> &check) {
        for (const Type &type : kTypes) {
            for (const Size &size : kSizes) {
                const Case c(random, type, size);
                SCOPED_TRACE(c.text());
                check(c);
            }
        }
    }

    // lse, and the loss added to *loss.
    Floats forward(const Case &c, crl_loss *loss) {
        CaseOnDevice on(c);
        OnDevice<float> lse(c.config.rows);
        OnLoss sum;
        EXPECT_OK(c.cuda.forward(stream, &on.config, on.logits.data(), on.targets.data(),
                                 on.weights(), c.valid, lse.data(), sum.data()));
        wait();
        *loss = sum.get();
        return lse.get();
    }

    Floats backward(const Case &c, float scale, const Floats *before, bool in_place) {
        CaseOnDevice on(c);
        OnDevice<float> lse(c.lse);
        OnDeviceAs apart(c.type, before ? *before : Floats(c.logits.size(), NAN));
        OnDeviceAs &out = in_place ? on.logits : apart;
        EXPECT_OK(c.cuda.backward(stream, &on.config, on.logits.data(), on.targets.data(),
                                  on.weights(), c.valid, lse.data(), scale, out.data(),
                                  before != nullptr));
        wait();
        return out.get();
    }

    Random random{1};
};

TEST_F(CudaCrossEntropy, ForwardIsTheCpus) {
    each_case([&](const Case &c) {
        crl_loss first = {};
        const Floats lse = same_in_any_order([&] {
            crl_loss loss;
            const Floats got = forward(c, &loss);
            EXPECT_NEAR(loss.sum, c.loss.sum, 3e-7 * std::max(1.0, std::fabs(c.loss.sum)));
            EXPECT_NEAR(loss.weight, c.loss.weight, 1e-12 * c.loss.weight);
            EXPECT_EQ(loss.correct, c.loss.correct);
            EXPECT_EQ(loss.rows, c.loss.rows);
            EXPECT_TRUE(first.rows == 0 || std::memcmp(&first, &loss, sizeof loss) == 0);
            first = loss;
            return got;
        });
        EXPECT_LT(error(lse, c.lse), 3e-7);
    });
}

// Of two calls the second adds to what the first left.
TEST_F(CudaCrossEntropy, LossIsAddedTo) {
    const Case c(random, kTypes[1], kSizes[2]);
    CaseOnDevice on(c);
    OnDevice<float> lse(c.config.rows);
    OnLoss sum;
    for (int i = 0; i < 2; i++)
        EXPECT_OK(c.cuda.forward(stream, &on.config, on.logits.data(), on.targets.data(),
                                 on.weights(), c.valid, lse.data(), sum.data()));
    wait();
    EXPECT_NEAR(sum.get().sum, 2 * c.loss.sum, 1e-6 * c.loss.sum);
    EXPECT_EQ(sum.get().weight, 2 * c.loss.weight);
    EXPECT_EQ(sum.get().correct, 2 * c.loss.correct);
    EXPECT_EQ(sum.get().rows, 2 * c.loss.rows);
}

TEST_F(CudaCrossEntropy, BackwardIsTheCpus) {
    each_case([&](const Case &c) {
        const Floats before = random_floats(random, c.config.rows * c.config.classes);
        for (bool accumulate : {false, true}) {
            const float scale = accumulate ? 1024 : 1;
            OnHost expected(c.type, before);
            EXPECT_OK(c.cpu.backward(nullptr, &c.config, c.logits_host.data(), c.targets.data(),
                                     c.weights(), c.valid, c.lse.data(), scale, expected.data(),
                                     accumulate));
            const Floats got = same_in_any_order(
                [&] { return backward(c, scale, accumulate ? &before : nullptr, false); });
            EXPECT_LT(error_as(c.type, got, expected.get(), 1), 5e-7);
            EXPECT_TRUE(accumulate || same_bits(got, backward(c, scale, nullptr, true)))
                << "in place";
        }
    });
}

// A likely target: what is left of the gradient is p - 1, whose digits p alone does not have.
TEST_F(CudaCrossEntropy, GradientOfALikelyTargetKeepsItsDigits) {
    const Floats logits = {4, -8, -7};
    const crl_cross_entropy_config config = {1, 3, -1, nullptr};
    for (const Type &type : kTypes) {
        const crl_cross_entropy_ops &cuda = *type.cuda->cross_entropy;
        OnDeviceAs on(type, logits), out(type, 3);
        OnDevice<float> lse(1);
        OnDevice<int32_t> target(Ints{0});
        OnLoss loss;
        EXPECT_OK(cuda.forward(stream, &config, on.data(), target.data(), nullptr, 1, lse.data(),
                               loss.data()));
        EXPECT_OK(cuda.backward(stream, &config, on.data(), target.data(), nullptr, 1, lse.data(),
                                1, out.data(), false));
        wait();
        const double expected = std::expm1(4.0 - (double)lse.get()[0]);
        EXPECT_LT(expected, -1e-5);
        EXPECT_NEAR(out.get()[0], expected, std::max(1e-6, type.unit) * -expected);
    }
}

TEST_F(CudaCrossEntropy, TheFirstOfTheLargestIsTheGuess) {
    Floats logits(2 * 600, 1.0f);
    logits[37] = logits[500] = 2;
    logits[600 + 37] = logits[600 + 500] = 2;
    const crl_cross_entropy_config config = {2, 600, -1, nullptr};
    for (const Type &type : kTypes) {
        OnDeviceAs on(type, logits);
        OnDevice<float> lse(2);
        OnDevice<int32_t> targets(Ints{37, 500});
        OnLoss loss;
        EXPECT_OK(type.cuda->cross_entropy->forward(stream, &config, on.data(), targets.data(),
                                                    nullptr, 2, lse.data(), loss.data()));
        wait();
        EXPECT_EQ(loss.get().correct, 1);
    }
}

TEST_F(CudaCrossEntropy, InfiniteLogitsAndNotANumber) {
    Floats logits(5 * 5, 0.5f);
    logits[1] = -INFINITY; // a class that is ruled out
    logits[5 + 2] = NAN;   // reaches the loss
    for (int i = 10; i < 14; i++)
        logits[(size_t)i] = -INFINITY; // all but one
    const crl_cross_entropy_config config = {5, 5, 3, nullptr};
    for (const Type &type : kTypes) {
        OnDeviceAs on(type, logits);
        OnDevice<float> lse(5);
        OnDevice<int32_t> targets(Ints{0, 0, 4, 3, 3});
        OnLoss loss;
        EXPECT_OK(type.cuda->cross_entropy->forward(stream, &config, on.data(), targets.data(),
                                                    nullptr, 5, lse.data(), loss.data()));
        wait();
        const Floats got = lse.get();
        EXPECT_NEAR(got[0], 0.5 + std::log(4.0), 1e-6);
        EXPECT_TRUE(std::isnan(got[1]));
        EXPECT_NEAR(got[2], 0.5, 1e-6);
        EXPECT_EQ(got[3], 0) << "does not count";
        EXPECT_TRUE(std::isnan(loss.get().sum));
        EXPECT_EQ(loss.get().correct, 2);
    }
}

TEST_F(CudaCrossEntropy, TargetOutsideTheClassesIsRefused) {
    const Ints targets = {1, -100, 9, 12};
    const Floats logits(4 * 9, 0.0f);
    const crl_cross_entropy_config config = {4, 9, -100, nullptr};
    for (const Type &type : kTypes) {
        const crl_cross_entropy_ops &cuda = *type.cuda->cross_entropy;
        Floats lse(4);
        crl_loss loss = {};
        EXPECT_EQ(type.cpu->cross_entropy->forward(nullptr, &config, OnHost(type, logits).data(),
                                                   targets.data(), nullptr, 4, lse.data(), &loss),
                  CRL_STATUS_INVALID);
        const std::string expected = crl_error_message();
        OnDeviceAs on(type, logits);
        OnDevice<float> out(4);
        OnDevice<int32_t> index(targets);
        OnLoss sum;
        EXPECT_OK(cuda.forward(stream, &config, on.data(), index.data(), nullptr, 4, out.data(),
                               sum.data()));
        EXPECT_EQ(crl_device_stream_wait(&crl_device_cuda, stream), CRL_STATUS_INVALID);
        EXPECT_EQ(crl_error_message(), expected);
        EXPECT_OK(cuda.forward(stream, &config, on.data(), index.data(), nullptr, 2, out.data(),
                               sum.data()));
        wait();
        EXPECT_EQ(sum.get().rows, 2) << "of both calls";
    }
}

TEST_F(CudaCrossEntropy, MeanSquareIsTheCpus) {
    for (const Type &type : kTypes) {
        const crl_cross_entropy_ops &cpu = *type.cpu->cross_entropy;
        const crl_cross_entropy_ops &cuda = *type.cuda->cross_entropy;
        for (int64_t n : {1, 100, 4097, 9000}) {
            const Floats x = random_floats(random, n), target = random_floats(random, n);
            const Floats before = random_floats(random, n);
            const OnHost host(type, x);
            crl_loss expected = {};
            EXPECT_OK(cpu.mse_forward(nullptr, host.data(), target.data(), n, &expected));
            OnDeviceAs on(type, x);
            OnDevice<float> goal(target);
            OnLoss sum;
            for (int i = 0; i < 2; i++)
                EXPECT_OK(cuda.mse_forward(stream, on.data(), goal.data(), n, sum.data()));
            wait();
            const crl_loss loss = sum.get();
            EXPECT_NEAR(loss.sum, 2 * expected.sum, 1e-13 * expected.sum);
            EXPECT_EQ(loss.weight, 2 * expected.weight);
            EXPECT_EQ(loss.rows, 2 * expected.rows);
            for (bool accumulate : {false, true}) {
                OnHost dx(type, before);
                OnDeviceAs out(type, before);
                const int64_t valid = n - n / 3;
                EXPECT_OK(cpu.mse_backward(nullptr, host.data(), target.data(), valid, n, 64,
                                           dx.data(), accumulate));
                EXPECT_OK(cuda.mse_backward(stream, on.data(), goal.data(), valid, n, 64,
                                            out.data(), accumulate));
                wait();
                EXPECT_LT(error_as(type, out.get(), dx.get()), 1e-7) << type.name << n;
            }
        }
    }
}

} // namespace
