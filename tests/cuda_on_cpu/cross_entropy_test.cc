// SPDX-License-Identifier: Apache-2.0
#include "tests/cuda_on_cpu/support.h"

namespace {

using namespace cuda_test;
const crl_cross_entropy_ops &kCpu = *crl_kernels_cpu.cross_entropy;
const crl_cross_entropy_ops &kCuda = *crl_kernels_cuda.cross_entropy;

struct Size {
    int64_t n, v, valid;
    bool weighted;
};
const Size kSizes[] = {{1, 1, 1, false},   {3, 2, 3, true},     {5, 37, 4, false},
                       {7, 1000, 7, true}, {4, 5003, 3, false}, {1060, 5, 1050, true},
                       {2, 1028, 0, false}};

struct Case {
    Floats logits, row_weight, label_weight, lse;
    Ints targets;
    crl_cross_entropy_config config; // with the CPU's weights
    crl_loss loss = {};
    int64_t valid;

    Case(Random &random, const Size &s)
        : logits(random_floats(random, s.n * s.v, -9, 9)),
          row_weight(s.weighted ? random_floats(random, s.n, 0, 2) : Floats()),
          label_weight(s.weighted ? random_floats(random, s.v, 0, 2) : Floats()), lse((size_t)s.n),
          targets(random_ints(random, s.n, (int32_t)s.v)), valid(s.valid) {
        if (s.n > 2)
            targets[1] = -100;
        for (size_t i = 0; s.n > 1000 && i < 1024; i++) // the emulation takes its time
            targets[i] = i % 64 < 3 ? targets[i] : -100;
        config = {s.n, s.v, -100, s.weighted ? label_weight.data() : nullptr};
        EXPECT_OK(kCpu.forward(nullptr, &config, logits.data(), targets.data(), weights(), valid,
                               lse.data(), &loss));
    }
    const float *weights() const { return row_weight.empty() ? nullptr : row_weight.data(); }
};

// The case's arrays on the device.
struct CaseOnDevice {
    OnDevice<float> logits, row_weight, label_weight;
    OnDevice<int32_t> targets;
    crl_cross_entropy_config config;
    const bool weighted;
    explicit CaseOnDevice(const Case &c)
        : logits(c.logits), row_weight(c.row_weight), label_weight(c.label_weight),
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

class CudaCrossEntropy : public Cuda {};

TEST_F(CudaCrossEntropy, ForwardIsTheCpus) {
    Random random(1);
    for (const Size &s : kSizes) {
        SCOPED_TRACE(testing::Message() << s.n << "x" << s.v);
        const Case c(random, s);
        crl_loss first = {};
        const Floats lse = same_in_any_order([&] {
            CaseOnDevice on(c);
            OnDevice<float> out(s.n);
            OnLoss sum;
            EXPECT_OK(kCuda.forward(stream, &on.config, on.logits.data(), on.targets.data(),
                                    on.weights(), c.valid, out.data(), sum.data()));
            wait();
            const crl_loss loss = sum.get();
            EXPECT_NEAR(loss.sum, c.loss.sum, 3e-7 * std::max(1.0, std::fabs(c.loss.sum)));
            EXPECT_NEAR(loss.weight, c.loss.weight, 1e-12 * c.loss.weight);
            EXPECT_EQ(loss.correct, c.loss.correct);
            EXPECT_EQ(loss.rows, c.loss.rows);
            EXPECT_TRUE(first.rows == 0 || std::memcmp(&first, &loss, sizeof loss) == 0);
            first = loss;
            return out.get();
        });
        EXPECT_LT(error(lse, c.lse), 3e-7);
    }
}

TEST_F(CudaCrossEntropy, BackwardIsTheCpus) {
    Random random(2);
    for (const Size &s : kSizes) {
        const Case c(random, s);
        const Floats before = random_floats(random, s.n * s.v);
        for (bool accumulate : {false, true}) {
            Floats expected = before;
            EXPECT_OK(kCpu.backward(nullptr, &c.config, c.logits.data(), c.targets.data(),
                                    c.weights(), c.valid, c.lse.data(), 1, expected.data(),
                                    accumulate));
            const auto backward = [&](bool in_place) {
                CaseOnDevice on(c);
                OnDevice<float> lse(c.lse), fresh(s.n * s.v), old(before);
                OnDevice<float> &out = in_place ? on.logits : accumulate ? old : fresh;
                EXPECT_OK(kCuda.backward(stream, &on.config, on.logits.data(), on.targets.data(),
                                         on.weights(), c.valid, lse.data(), 1, out.data(),
                                         accumulate));
                wait();
                return out.get();
            };
            const Floats got = same_in_any_order([&] { return backward(false); });
            EXPECT_LT(error(got, expected, 1), 5e-7) << s.n << "x" << s.v;
            EXPECT_TRUE(accumulate || same_bits(got, backward(true))) << "in place";
        }
    }
}

// A likely target: what is left of the gradient is p - 1, whose digits p alone does not have.
TEST_F(CudaCrossEntropy, GradientOfALikelyTargetKeepsItsDigits) {
    const Floats logits = {4, -8, -7};
    OnDevice<float> on(logits), lse(1), out(3);
    OnDevice<int32_t> target(Ints{0});
    const crl_cross_entropy_config config = {1, 3, -1, nullptr};
    OnLoss loss;
    EXPECT_OK(kCuda.forward(stream, &config, on.data(), target.data(), nullptr, 1, lse.data(),
                            loss.data()));
    EXPECT_OK(kCuda.backward(stream, &config, on.data(), target.data(), nullptr, 1, lse.data(), 1,
                             out.data(), false));
    wait();
    const double expected = std::expm1(4.0 - (double)lse.get()[0]);
    EXPECT_LT(expected, -1e-5);
    EXPECT_NEAR(out.get()[0], expected, 1e-6 * -expected);
}

TEST_F(CudaCrossEntropy, TheFirstOfTheLargestIsTheGuess) {
    Floats logits(2 * 600, 1.0f);
    logits[37] = logits[500] = 2;
    logits[600 + 37] = logits[600 + 500] = 2;
    OnDevice<float> on(logits), lse(2);
    OnDevice<int32_t> targets(Ints{37, 500});
    const crl_cross_entropy_config config = {2, 600, -1, nullptr};
    OnLoss loss;
    EXPECT_OK(kCuda.forward(stream, &config, on.data(), targets.data(), nullptr, 2, lse.data(),
                            loss.data()));
    wait();
    EXPECT_EQ(loss.get().correct, 1);
}

TEST_F(CudaCrossEntropy, InfiniteLogitsAndNotANumber) {
    Floats logits(5 * 5, 0.5f);
    logits[1] = -INFINITY; // a class that is ruled out
    logits[5 + 2] = NAN;   // reaches the loss
    for (int i = 10; i < 14; i++)
        logits[(size_t)i] = -INFINITY; // all but one
    OnDevice<float> on(logits), lse(5);
    OnDevice<int32_t> targets(Ints{0, 0, 4, 3, 3});
    const crl_cross_entropy_config config = {5, 5, 3, nullptr};
    OnLoss loss;
    EXPECT_OK(kCuda.forward(stream, &config, on.data(), targets.data(), nullptr, 5, lse.data(),
                            loss.data()));
    wait();
    const Floats got = lse.get();
    EXPECT_NEAR(got[0], 0.5 + std::log(4.0), 1e-6);
    EXPECT_TRUE(std::isnan(got[1]));
    EXPECT_NEAR(got[2], 0.5, 1e-6);
    EXPECT_EQ(got[3], 0) << "does not count";
    EXPECT_TRUE(std::isnan(loss.get().sum));
    EXPECT_EQ(loss.get().correct, 2);
}

TEST_F(CudaCrossEntropy, TargetOutsideTheClassesIsRefused) {
    const Ints targets = {1, -100, 9, 12};
    const Floats logits(4 * 9, 0.0f);
    const crl_cross_entropy_config config = {4, 9, -100, nullptr};
    Floats lse(4);
    crl_loss loss = {};
    EXPECT_EQ(kCpu.forward(nullptr, &config, logits.data(), targets.data(), nullptr, 4, lse.data(),
                           &loss),
              CRL_STATUS_INVALID);
    const std::string expected = crl_error_message();
    OnDevice<float> on(logits), out(4);
    OnDevice<int32_t> index(targets);
    OnLoss sum;
    EXPECT_OK(kCuda.forward(stream, &config, on.data(), index.data(), nullptr, 4, out.data(),
                            sum.data()));
    EXPECT_EQ(crl_cuda_stream_wait(stream), CRL_STATUS_INVALID);
    EXPECT_EQ(crl_error_message(), expected);
    EXPECT_OK(kCuda.forward(stream, &config, on.data(), index.data(), nullptr, 2, out.data(),
                            sum.data()));
    wait();
    EXPECT_EQ(sum.get().rows, 2) << "of both calls";
}

TEST_F(CudaCrossEntropy, MeanSquareIsTheCpus) {
    Random random(3);
    for (int64_t n : {1, 100, 4097, 9000}) {
        const Floats x = random_floats(random, n), target = random_floats(random, n);
        crl_loss expected = {};
        OnLoss sum;
        EXPECT_OK(kCpu.mse_forward(nullptr, x.data(), target.data(), n, &expected));
        OnDevice<float> on(x), goal(target);
        EXPECT_OK(kCuda.mse_forward(stream, on.data(), goal.data(), n, sum.data()));
        wait();
        const crl_loss loss = sum.get();
        EXPECT_NEAR(loss.sum, expected.sum, 1e-13 * expected.sum);
        EXPECT_EQ(loss.weight, expected.weight);
        EXPECT_EQ(loss.rows, expected.rows);
        for (bool accumulate : {false, true}) {
            Floats dx = random_floats(random, n);
            OnDevice<float> out(dx);
            const int64_t valid = n - n / 3;
            EXPECT_OK(kCpu.mse_backward(nullptr, x.data(), target.data(), valid, n, 1, dx.data(),
                                        accumulate));
            EXPECT_OK(kCuda.mse_backward(stream, on.data(), goal.data(), valid, n, 1, out.data(),
                                         accumulate));
            wait();
            EXPECT_LT(error(out.get(), dx), 1e-7) << n;
        }
    }
}

} // namespace
