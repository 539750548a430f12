// SPDX-License-Identifier: Apache-2.0
#include "tests/kernels/support.h"

namespace {

using namespace kernels_test;
const crl_optimizer_ops &kOps = *crl_kernels_cpu.optimizer;
constexpr int64_t kN = 40007;
constexpr int kSteps = 5;

struct State {
    Floats w, m, v;
};

Floats joined(const State &state) {
    Floats all(3 * kN);
    std::copy(state.w.data(), state.w.data() + kN, all.data());
    std::copy(state.m.data(), state.m.data() + kN, all.data() + kN);
    std::copy(state.v.data(), state.v.data() + kN, all.data() + 2 * kN);
    return all;
}

TEST(KernelsOptimizer, AdamwMatchesDoubleForEverySplit) {
    Random random(1);
    const Floats w0 = random_floats(random, kN), dw = random_floats(random, kN);
    auto config = [](int step) { return crl_adamw_config{1e-2, 0.9, 0.95, 1e-8, 0.1, step, 0.25}; };
    auto run = [&](int64_t split) {
        State s = {w0, Floats(kN), Floats(kN)};
        for (int step = 1; step <= kSteps; step++) {
            const crl_adamw_config c = config(step);
            for (int64_t i = 0; i < kN; i += split)
                EXPECT_OK(kOps.adamw(nullptr, &c, s.w.data() + i, dw.data() + i, s.m.data() + i,
                                     s.v.data() + i, nullptr, std::min(split, kN - i)));
        }
        return joined(s);
    };
    const Floats result = same_for_all_threads([&] { return run(kN); });
    EXPECT_TRUE(same_bits(result, run(1003)));
    std::vector<double> expected((size_t)kN);
    for (int64_t i = 0; i < kN; i++) {
        double w = w0[i], m = 0, v = 0;
        for (int step = 1; step <= kSteps; step++) {
            const double g = dw[i] * 0.25;
            m = 0.9 * m + 0.1 * g;
            v = 0.95 * v + 0.05 * g * g;
            const double root = std::sqrt(v / (1 - std::pow(0.95, step)));
            w = w * (1 - 1e-2 * 0.1) - 1e-2 * m / (1 - std::pow(0.9, step)) / (root + 1e-8);
        }
        expected[(size_t)i] = w;
    }
    Floats w(kN);
    std::copy(result.data(), result.data() + kN, w.data());
    EXPECT_LT(error(w, expected), 1e-6);
}

TEST(KernelsOptimizer, SgdMatchesDouble) {
    Random random(2);
    const Floats w0 = random_floats(random, kN), dw = random_floats(random, kN);
    for (double momentum : {0.0, 0.9}) {
        for (bool nesterov : {false, true}) {
            const double dampening = nesterov ? 0 : 0.1;
            const Floats w = same_for_all_threads([&] {
                Floats x = w0, buffer(kN);
                for (int step = 1; step <= kSteps; step++) {
                    const crl_sgd_config c = {0.1, momentum, dampening, 0.01, nesterov, step, 0.5};
                    EXPECT_OK(kOps.sgd(nullptr, &c, x.data(), dw.data(),
                                       momentum == 0 ? nullptr : buffer.data(), nullptr, kN));
                }
                return x;
            });
            std::vector<double> expected((size_t)kN);
            for (int64_t i = 0; i < kN; i++) {
                double x = w0[i], b = 0;
                for (int step = 1; step <= kSteps; step++) {
                    const double g = dw[i] * 0.5 + 0.01 * x;
                    b = step == 1 ? g : momentum * b + (1 - dampening) * g;
                    x -= 0.1 * (momentum == 0 ? g : nesterov ? g + momentum * b : b);
                }
                expected[(size_t)i] = x;
            }
            EXPECT_LT(error(w, expected), 1e-6) << momentum << nesterov;
        }
    }
}

} // namespace
