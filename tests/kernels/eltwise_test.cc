// SPDX-License-Identifier: Apache-2.0
#include "tests/kernels/support.h"

namespace {

using namespace kernels_test;
const crl_eltwise_ops &kOps = *crl_kernels_cpu.eltwise;
const int64_t kSizes[] = {1, 7, 16, 33, 4097, 40000};

double value(crl_activation kind, double x) {
    switch (kind) {
    case CRL_ACTIVATION_RELU:
        return std::max(x, 0.0);
    case CRL_ACTIVATION_GELU_ERF:
        return 0.5 * x * std::erfc(-x / std::sqrt(2.0));
    default:
        return x / (1 + std::exp(-2 * std::sqrt(2 / M_PI) * (x + 0.044715 * x * x * x)));
    }
}

double slope(crl_activation kind, double x) {
    if (kind == CRL_ACTIVATION_RELU)
        return x > 0 ? 1 : 0;
    if (kind == CRL_ACTIVATION_GELU_ERF)
        return 0.5 * std::erfc(-x / std::sqrt(2.0)) +
               x * std::exp(-0.5 * x * x) / std::sqrt(2 * M_PI);
    const double u = std::sqrt(2 / M_PI) * (x + 0.044715 * x * x * x), t = std::tanh(u);
    return 0.5 * (1 + t) + 0.5 * x * (1 - t * t) * std::sqrt(2 / M_PI) * (1 + 3 * 0.044715 * x * x);
}

TEST(KernelsEltwise, ActivationsMatchDouble) {
    Random random(1);
    for (int kind = 0; kind < CRL_ACTIVATION_COUNT; kind++) {
        for (int64_t n : kSizes) {
            SCOPED_TRACE(testing::Message() << "activation " << kind << " n " << n);
            const crl_activation f = (crl_activation)kind;
            const Floats x = random_floats(random, n, -6, 6), dy = random_floats(random, n);
            const Floats y = same_for_all_threads([&] {
                Floats out(n);
                EXPECT_OK(kOps.activation(nullptr, f, x.data(), out.data(), n));
                return out;
            });
            for (bool accumulate : {false, true}) {
                const Floats dx = same_for_all_threads([&] {
                    Floats out = accumulate ? dy : Floats(n);
                    EXPECT_OK(kOps.activation_backward(nullptr, f, x.data(), dy.data(), out.data(),
                                                       n, accumulate));
                    return out;
                });
                for (int64_t i = 0; i < n; i++) {
                    const double g = dy[i] * slope(f, x[i]) + (accumulate ? dy[i] : 0);
                    ASSERT_NEAR(dx[i], g, 1e-6) << "x " << x[i];
                }
            }
            for (int64_t i = 0; i < n; i++) {
                const double v = value(f, x[i]);
                ASSERT_NEAR(y[i], v, 2e-6 * std::fabs(v) + 1e-12) << "x " << x[i];
            }
        }
    }
}

TEST(KernelsEltwise, ActivationsHoldAtExtremes) {
    const float x[] = {-1e30f, -100, -20, -0.0f, 0, 1e-30f, 20, 100, 1e15f};
    for (int kind = 0; kind < CRL_ACTIVATION_COUNT; kind++) {
        for (float v : x) {
            float y = 0, one = 1, dx = 0;
            EXPECT_OK(kOps.activation(nullptr, (crl_activation)kind, &v, &y, 1));
            EXPECT_OK(
                kOps.activation_backward(nullptr, (crl_activation)kind, &v, &one, &dx, 1, false));
            if (v <= -20) {
                EXPECT_NEAR(y, 0, 1e-7);
                EXPECT_NEAR(dx, 0, 1e-7);
            } else if (v >= 20) {
                EXPECT_EQ(y, v);
                EXPECT_NEAR(dx, 1, 1e-7);
            } else {
                EXPECT_NEAR(y, 0, 2e-30);
            }
        }
        float v = NAN, y = 0;
        EXPECT_OK(kOps.activation(nullptr, (crl_activation)kind, &v, &y, 1));
        EXPECT_TRUE(std::isnan(y)) << "activation " << kind;
    }
}

// The rest of a block goes through the same instructions as the block.
TEST(KernelsEltwise, BitsDoNotDependOnThePlace) {
    Random random(2);
    const Floats x = random_floats(random, 5000, -4, 4);
    for (int kind = 0; kind < CRL_ACTIVATION_COUNT; kind++) {
        Floats whole(x.size()), parts(x.size());
        EXPECT_OK(kOps.activation(nullptr, (crl_activation)kind, x.data(), whole.data(), x.size()));
        for (int64_t i = 0; i < x.size(); i += 37)
            EXPECT_OK(kOps.activation(nullptr, (crl_activation)kind, x.data() + i, parts.data() + i,
                                      std::min<int64_t>(37, x.size() - i)));
        EXPECT_TRUE(same_bits(whole, parts)) << "activation " << kind;
    }
}

TEST(KernelsEltwise, AddsAndCopies) {
    Random random(3);
    for (int64_t n : kSizes) {
        const Floats a = random_floats(random, n), b = random_floats(random, n);
        const Floats sum = same_for_all_threads([&] {
            Floats y(n);
            EXPECT_OK(kOps.add(nullptr, a.data(), b.data(), y.data(), n));
            return y;
        });
        Floats in_place = a, copied(n), added = a;
        EXPECT_OK(kOps.add(nullptr, in_place.data(), b.data(), in_place.data(), n));
        EXPECT_OK(kOps.copy(nullptr, a.data(), copied.data(), n, false));
        EXPECT_OK(kOps.copy(nullptr, b.data(), added.data(), n, true));
        for (int64_t i = 0; i < n; i++)
            ASSERT_EQ(sum[i], a[i] + b[i]);
        EXPECT_TRUE(same_bits(in_place, sum));
        EXPECT_TRUE(same_bits(added, sum));
        EXPECT_TRUE(same_bits(copied, a));
    }
}

TEST(KernelsEltwise, DropoutFollowsTheStream) {
    Random random(4);
    const crl_rng rng = {0x123456789abcdefULL, CRL_RNG_DROPOUT, 5, 77, 12};
    for (int64_t n : {1, 7, 64, 65, 1000, 9001}) {
        for (double p : {0.1, 0.5, 0.25000003}) {
            const int64_t samples = 3;
            const Floats x = random_floats(random, samples * n, 0.5f, 2);
            for (bool accumulate : {false, true}) {
                const Floats y = same_for_all_threads([&] {
                    Floats out = accumulate ? x : Floats(x.size());
                    EXPECT_OK(kOps.dropout(nullptr, &rng, p, x.data(), out.data(), samples, n,
                                           accumulate));
                    return out;
                });
                for (int64_t i = 0; i < samples * n; i++) {
                    crl_rng own = rng;
                    own.sample += (uint32_t)(i / n);
                    const bool keep = (double)crl_rng_uniform(&own, (uint64_t)(i % n)) >= p;
                    const double expected = (accumulate ? x[i] : 0) + (keep ? x[i] / (1 - p) : 0);
                    ASSERT_NEAR(y[i], expected, 1e-6 * std::fabs(expected)) << i;
                }
            }
        }
    }
}

TEST(KernelsEltwise, DropoutOfZeroCopiesAndOfOneIsRejected) {
    const crl_rng rng = {1, CRL_RNG_DROPOUT, 0, 0, 0};
    const float x[3] = {1, 2, 3};
    float y[3] = {0};
    EXPECT_OK(kOps.dropout(nullptr, &rng, 0, x, y, 1, 3, false));
    EXPECT_EQ(y[2], 3);
    EXPECT_EQ(kOps.dropout(nullptr, &rng, 1, x, y, 1, 3, false), CRL_STATUS_INVALID);
    EXPECT_STREQ(crl_error_message(), "dropout: probability is 1, expected 0 <= p < 1");
}

TEST(KernelsEltwise, SwigluMatchesDouble) {
    Random random(6);
    const int64_t n = 3;
    for (int64_t c : {1, 33, 6000}) {
        const Floats x = random_floats(random, 2 * n * c, -4, 4), dy = random_floats(random, n * c);
        Floats y(n * c), dx(2 * n * c);
        EXPECT_OK(kOps.swiglu(nullptr, x.data(), y.data(), n, c));
        EXPECT_OK(kOps.swiglu_backward(nullptr, x.data(), dy.data(), dx.data(), n, c, false));
        for (int64_t i = 0; i < n * c; i++) {
            const int64_t gate = i / c * 2 * c + i % c, up = gate + c;
            const double s = 1 / (1 + std::exp(-(double)x[gate])), silu = x[gate] * s;
            ASSERT_NEAR(y[i], silu * x[up], 1e-5);
            ASSERT_NEAR(dx[gate], dy[i] * (double)x[up] * (s + silu * (1 - s)), 1e-5);
            ASSERT_NEAR(dx[up], dy[i] * silu, 2e-6);
        }
        Floats twice = dx;
        EXPECT_OK(kOps.swiglu_backward(nullptr, x.data(), dy.data(), twice.data(), n, c, true));
        for (int64_t i = 0; i < twice.size(); i++)
            ASSERT_NEAR(twice[i], 2 * dx[i], 4e-6);
    }
}

TEST(KernelsEltwise, SwigluHoldsAtExtremes) {
    for (float gate : {-1e30f, -3e38f, -100.0f, 100.0f, 1e30f}) {
        const float x[2] = {gate, 1}, one = 1;
        float y, dx[2];
        EXPECT_OK(kOps.swiglu(nullptr, x, &y, 1, 1));
        EXPECT_OK(kOps.swiglu_backward(nullptr, x, &one, dx, 1, 1, false));
        EXPECT_NEAR(y, gate > 0 ? gate : 0, 1e-30) << gate;
        EXPECT_NEAR(dx[0], gate > 0 ? 1 : 0, 1e-30) << gate;
        EXPECT_EQ(dx[1], y) << gate;
    }
}

} // namespace
