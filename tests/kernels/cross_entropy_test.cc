// SPDX-License-Identifier: Apache-2.0
#include "tests/kernels/support.h"

namespace {

using namespace kernels_test;
const crl_cross_entropy_ops &kOps = *crl_kernels_cpu.cross_entropy;

struct Case {
    int64_t n, v, valid;
    Floats logits, row_weight, label_weight;
    std::vector<int32_t> targets;
    bool weighted;
    crl_cross_entropy_config config() const {
        return {n, v, -100, weighted ? label_weight.data() : nullptr};
    }
    const float *weights() const { return weighted ? row_weight.data() : nullptr; }
    bool counts(int64_t i) const { return i < valid && targets[(size_t)i] != -100; }
    double weight(int64_t i) const {
        return weighted ? (double)row_weight[i] * label_weight[targets[(size_t)i]] : 1;
    }
};

Case make_case(Random &random, int64_t n, int64_t v, bool weighted) {
    Case s = {n,
              v,
              std::max<int64_t>(1, n - 2),
              random_floats(random, n * v, -8, 8),
              random_floats(random, n, 0.5f, 2),
              random_floats(random, v, 0.5f, 2),
              {},
              weighted};
    for (int64_t i = 0; i < n; i++)
        s.targets.push_back(i % 5 == 3 ? -100 : (int32_t)(random() % (unsigned)v));
    return s;
}

// The reference: loss and gradient.
crl_loss reference(const Case &s, std::vector<double> *dlogits) {
    crl_loss loss = {0, 0, 0, 0};
    dlogits->assign((size_t)(s.n * s.v), 0);
    for (int64_t i = 0; i < s.n; i++) {
        if (!s.counts(i))
            continue;
        const float *x = s.logits.data() + i * s.v;
        const int32_t target = s.targets[(size_t)i];
        double sum = 0;
        for (int64_t j = 0; j < s.v; j++)
            sum += std::exp((double)x[j]);
        for (int64_t j = 0; j < s.v; j++)
            (*dlogits)[(size_t)(i * s.v + j)] =
                s.weight(i) * (std::exp((double)x[j]) / sum - (j == target));
        loss.sum += s.weight(i) * (std::log(sum) - x[target]);
        loss.weight += s.weight(i);
        loss.correct += std::max_element(x, x + s.v) - x == target;
        loss.rows += 1;
    }
    return loss;
}

TEST(KernelsCrossEntropy, MatchesDouble) {
    Random random(1);
    const int64_t sizes[][2] = {{1, 1}, {3, 2}, {7, 33}, {65, 257}, {40, 5000}, {9, 50257}};
    for (const auto &size : sizes) {
        for (bool weighted : {false, true}) {
            const Case s = make_case(random, size[0], size[1], weighted);
            SCOPED_TRACE(testing::Message() << s.n << "x" << s.v << " weighted " << weighted);
            const crl_cross_entropy_config config = s.config();
            std::vector<double> expected;
            const crl_loss want = reference(s, &expected);
            crl_loss loss = {};
            std::vector<double> sums;
            const Floats lse = same_for_all_threads([&] {
                Floats out(s.n);
                loss = {};
                EXPECT_OK(kOps.forward(nullptr, &config, s.logits.data(), s.targets.data(),
                                       s.weights(), s.valid, out.data(), &loss));
                sums.push_back(loss.sum);
                return out;
            });
            for (double sum : sums)
                EXPECT_EQ(sum, sums[0]);
            EXPECT_NEAR(loss.sum, want.sum, 1e-6 * want.sum + 1e-6);
            EXPECT_NEAR(loss.weight, want.weight, 1e-6 * want.weight);
            EXPECT_EQ(loss.correct, want.correct);
            EXPECT_EQ(loss.rows, want.rows);
            for (int mode = 0; mode < 3; mode++) { // write, add, in place
                const Floats dlogits = same_for_all_threads([&] {
                    Floats out = mode > 0 ? s.logits : Floats(s.n * s.v);
                    const float *x = mode == 2 ? out.data() : s.logits.data();
                    EXPECT_OK(kOps.backward(nullptr, &config, x, s.targets.data(), s.weights(),
                                            s.valid, lse.data(), 1, out.data(), mode == 1));
                    return out;
                });
                std::vector<double> g = expected;
                for (size_t i = 0; mode == 1 && i < g.size(); i++)
                    g[i] += s.logits[(int64_t)i];
                EXPECT_LT(error(dlogits, g), 1e-6) << "mode " << mode;
            }
        }
    }
}

TEST(KernelsCrossEntropy, CountsTheFirstOfEqualLogits) {
    const float logits[4] = {1, 2, 2, 0};
    const crl_cross_entropy_config config = {1, 4, -1, nullptr};
    for (int32_t target = 0; target < 4; target++) {
        crl_loss loss = {};
        float lse;
        EXPECT_OK(kOps.forward(nullptr, &config, logits, &target, nullptr, 1, &lse, &loss));
        EXPECT_EQ(loss.correct, target == 1);
    }
}

TEST(KernelsCrossEntropy, NanReachesTheLossAndLargeLogitsDoNotOverflow) {
    const crl_cross_entropy_config config = {1, 4, -1, nullptr};
    const int32_t target = 0;
    float logits[4] = {1, NAN, 3, 4}, lse;
    crl_loss loss = {};
    EXPECT_OK(kOps.forward(nullptr, &config, logits, &target, nullptr, 1, &lse, &loss));
    EXPECT_TRUE(std::isnan(loss.sum));
    loss = {};
    const float large[4] = {1e30f, 0, -1e30f, 1e30f};
    EXPECT_OK(kOps.forward(nullptr, &config, large, &target, nullptr, 1, &lse, &loss));
    EXPECT_TRUE(std::isfinite(loss.sum));
}

TEST(KernelsCrossEntropy, RejectsTargetsOutsideTheClasses) {
    const float logits[6] = {0};
    const crl_cross_entropy_config config = {2, 3, -1, nullptr};
    for (int32_t bad : {-2, 3}) {
        const int32_t targets[2] = {-1, bad};
        float lse[2] = {7, 7}, d[6] = {7};
        crl_loss loss = {7, 7, 7, 7};
        EXPECT_EQ(kOps.forward(nullptr, &config, logits, targets, nullptr, 2, lse, &loss),
                  CRL_STATUS_INVALID);
        const std::string message =
            "cross_entropy: target of row 1 is " + std::to_string(bad) + ", expected 0 to 2";
        EXPECT_EQ(crl_error_message(), message);
        EXPECT_EQ(loss.sum, 7);
        EXPECT_EQ(kOps.backward(nullptr, &config, logits, targets, nullptr, 2, lse, 1, d, false),
                  CRL_STATUS_INVALID);
        EXPECT_EQ(d[0], 7);
        // Not among the valid rows: not looked at.
        EXPECT_OK(kOps.forward(nullptr, &config, logits, targets, nullptr, 1, lse, &loss));
    }
}

TEST(KernelsMse, MatchesDouble) {
    Random random(2);
    for (int64_t n : {1, 33, 50000}) {
        const Floats x = random_floats(random, n), target = random_floats(random, n);
        const int64_t valid = n - n / 3;
        double sum = 0;
        std::vector<double> expected((size_t)n);
        for (int64_t i = 0; i < n; i++) {
            const double d = (double)x[i] - target[i];
            sum += d * d;
            expected[(size_t)i] = i < valid ? 2 * d : 0;
        }
        crl_loss loss = {};
        EXPECT_OK(kOps.mse_forward(nullptr, x.data(), target.data(), n, &loss));
        EXPECT_NEAR(loss.sum, sum, 1e-12 * sum);
        EXPECT_EQ(loss.weight, (double)n);
        EXPECT_EQ(loss.correct, 0);
        for (bool accumulate : {false, true}) {
            const Floats dx = same_for_all_threads([&] {
                Floats out = x;
                EXPECT_OK(kOps.mse_backward(nullptr, x.data(), target.data(), valid, n, 1,
                                            out.data(), accumulate));
                return out;
            });
            std::vector<double> g = expected;
            for (size_t i = 0; accumulate && i < g.size(); i++)
                g[i] += x[(int64_t)i];
            EXPECT_LT(error(dx, g), 1e-6);
        }
    }
}

} // namespace
