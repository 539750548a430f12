// SPDX-License-Identifier: Apache-2.0
// Products of every type with all that may be fused to them, beside double.
#include "tests/kernels/support.h"

namespace {

using namespace kernels_test;

struct Case {
    crl_matmul_config config;
    Floats a, b, bias, before, aux, sums;
};

Case make_case(const crl_kernels &k, Random &random, const crl_matmul_config &f) {
    auto typed = [&](int64_t n) { return rounded(k, random_floats(random, n)); };
    Case c = {f, typed(f.m * f.k), typed(f.k * f.n), typed(f.n), Floats(), Floats(), Floats()};
    c.before = typed(f.m * f.n);
    c.aux = rounded(k, random_floats(random, f.m * f.n, -3, 3));
    c.sums = random_floats(random, f.m);
    return c;
}

struct Output {
    Floats y, aux, sums;
};

Output run(const crl_kernels &k, const Case &c, bool accumulate, int64_t offset = 0) {
    const crl_matmul_config &f = c.config;
    crl_matmul *matmul = nullptr;
    EXPECT_OK(k.matmul->create(&matmul, &f, nullptr));
    Typed a(k, c.a, offset), b(k, c.b, offset), bias(k, c.bias, offset);
    Typed y = accumulate ? Typed(k, c.before, offset) : Typed(k, c.before.size(), offset);
    Typed aux =
        f.epilogue == CRL_EPILOGUE_SLOPE ? Typed(k, c.aux, offset) : Typed(k, c.aux.size(), offset);
    Floats wide = c.before, sums = c.sums;
    if (!accumulate) {
        std::fill(wide.begin(), wide.end(), NAN);
        std::fill(sums.begin(), sums.end(), NAN);
    }
    Floats scratch((int64_t)(k.matmul->scratch_bytes(matmul) / sizeof(float)));
    std::fill(scratch.begin(), scratch.end(), NAN);
    crl_matmul_call call = {};
    call.a = a.data();
    call.b = b.data();
    call.bias = f.bias ? bias.data() : nullptr;
    call.y = f.y_is_f32 ? wide.data() : y.data();
    call.aux = f.epilogue == CRL_EPILOGUE_NONE ? nullptr : aux.data();
    call.sums = f.row_sums ? sums.data() : nullptr;
    call.accumulate = accumulate;
    call.scratch = scratch.data();
    EXPECT_OK(k.matmul->run(matmul, nullptr, &call));
    k.matmul->destroy(matmul);
    return {f.y_is_f32 ? wide : y.floats(), aux.floats(), sums};
}

double gelu(double x) {
    return 0.5 * x * std::erfc(-x / std::sqrt(2.0));
}

double gelu_slope(double x) {
    return 0.5 * std::erfc(-x / std::sqrt(2.0)) + x * std::exp(-0.5 * x * x) / std::sqrt(2 * M_PI);
}

// A (M,K) and B (K,N) by index.
double at_a(const Case &c, int64_t i, int64_t l) {
    return c.a[c.config.a_transposed ? l * c.config.m + i : i * c.config.k + l];
}
double at_b(const Case &c, int64_t l, int64_t j) {
    return c.b[c.config.b_transposed ? j * c.config.k + l : l * c.config.n + j];
}

std::vector<double> product(const Case &c) {
    const crl_matmul_config &f = c.config;
    std::vector<double> p;
    for (int64_t i = 0; i < f.m; i++) {
        for (int64_t j = 0; j < f.n; j++) {
            double sum = f.bias ? c.bias[j] : 0;
            for (int64_t l = 0; l < f.k; l++)
                sum += at_a(c, i, l) * at_b(c, l, j);
            p.push_back(sum);
        }
    }
    return p;
}

// The activation is of the stored aux, rounded as it is: forward and gradient agree.
void check(const crl_kernels &k, const Case &c, bool accumulate, const Output &got) {
    const crl_matmul_config &f = c.config;
    const double sum_error = 1e-6 + 1e-7 * std::sqrt((double)f.k);
    const double bound = sum_error + (f.y_is_f32 ? 0 : rounding(k));
    std::vector<double> want = product(c);
    if (f.epilogue == CRL_EPILOGUE_ACTIVATION) {
        EXPECT_LT(error(got.aux, want), bound);
        want.clear();
        for (int64_t i = 0; i < got.aux.size(); i++)
            want.push_back(gelu(got.aux[i]));
    }
    for (int64_t i = 0; i < got.y.size(); i++) {
        if (f.epilogue == CRL_EPILOGUE_SLOPE)
            want[(size_t)i] *= gelu_slope(c.aux[i]);
        if (accumulate)
            want[(size_t)i] += c.before[i];
    }
    EXPECT_LT(error(got.y, want), bound);
    if (!f.row_sums)
        return;
    std::vector<double> sums;
    for (int64_t i = 0; i < f.m; i++) {
        sums.push_back(accumulate ? c.sums[i] : 0);
        for (int64_t l = 0; l < f.k; l++)
            sums.back() += at_a(c, i, l);
    }
    EXPECT_LT(error(got.sums, sums), 3e-6);
}

// `what`: 0..3 layout of A and B, then the kind of end.
crl_matmul_config config_of(int64_t m, int64_t n, int64_t k, int what) {
    crl_matmul_config f = {};
    f.m = m, f.n = n, f.k = k;
    f.a_transposed = (what & 1) != 0;
    f.b_transposed = (what & 2) != 0;
    f.activation = CRL_ACTIVATION_GELU_ERF;
    switch (what / 4) {
    case 0:
        f.bias = true;
        f.may_accumulate = true;
        break;
    case 1:
        f.y_is_f32 = f.may_accumulate = f.row_sums = true;
        break;
    case 2:
        f.bias = true;
        f.epilogue = CRL_EPILOGUE_ACTIVATION;
        break;
    default:
        f.epilogue = CRL_EPILOGUE_SLOPE;
        f.row_sums = true;
    }
    return f;
}
constexpr int kConfigs = 16;

TEST(KernelsMatmulTypes, MatchesDouble) {
    Random random(1);
    const int64_t sizes[][3] = {
        {1, 1, 1}, {7, 33, 5}, {65, 130, 40}, {300, 10, 600}, {12, 33, 4500}};
    for (const crl_kernels *k : all_tables()) {
        for (const auto &size : sizes) {
            for (int what = 0; what < kConfigs; what++) {
                const crl_matmul_config f = config_of(size[0], size[1], size[2], what);
                SCOPED_TRACE(testing::Message() << crl_dtype_name(k->dtype) << " " << f.m << "x"
                                                << f.n << "x" << f.k << " configuration " << what);
                const Case c = make_case(*k, random, f);
                for (bool accumulate : {false, true}) {
                    if (!accumulate || f.may_accumulate)
                        check(*k, c, accumulate, run(*k, c, accumulate));
                }
            }
        }
    }
}

Floats joined(const Output &x) {
    Floats all(x.y.size() + x.aux.size() + x.sums.size());
    float *next = std::copy(x.y.data(), x.y.data() + x.y.size(), all.data());
    next = std::copy(x.aux.data(), x.aux.data() + x.aux.size(), next);
    std::copy(x.sums.data(), x.sums.data() + x.sums.size(), next);
    return all;
}

TEST(KernelsMatmulTypes, SameBitsForAllThreadsAndAlignments) {
    Random random(2);
    const int64_t sizes[][3] = {{256, 768, 768}, {100, 1000, 256}, {40, 500, 5000}, {1100, 70, 65}};
    for (const crl_kernels *k : all_tables()) {
        for (const auto &size : sizes) {
            for (int what = 0; what < kConfigs; what += 3) {
                const crl_matmul_config f = config_of(size[0], size[1], size[2], what);
                SCOPED_TRACE(testing::Message() << crl_dtype_name(k->dtype) << " " << f.m << "x"
                                                << f.n << "x" << f.k << " configuration " << what);
                const Case c = make_case(*k, random, f);
                const bool accumulate = f.may_accumulate;
                const Floats first =
                    same_for_all_threads([&] { return joined(run(*k, c, accumulate)); });
                EXPECT_TRUE(same_bits(first, joined(run(*k, c, accumulate, 1))));
                EXPECT_TRUE(same_bits(first, joined(run(*k, c, accumulate, 3))));
            }
        }
    }
}

TEST(KernelsMatmulTypes, OverflowOfF16IsInfinite) {
    const crl_kernels &k = *crl_backend_cpu.f16;
    for (int what : {0, 4, 8, 12}) {
        Random random(3);
        Case c = make_case(k, random, config_of(2, 2, 2, what));
        for (Floats *x : {&c.a, &c.b})
            std::fill(x->begin(), x->end(), 300.0f); // 300 · 300 · 2 > 65504
        std::fill(c.aux.begin(), c.aux.end(), 3.0f);
        const Output got = run(k, c, false);
        EXPECT_EQ(got.y[0], c.config.y_is_f32 ? 180000 : INFINITY) << what;
    }
}

TEST(KernelsMatmulTypes, RefusesActivationsWhereTheyMeanNothing) {
    crl_matmul *matmul = nullptr;
    crl_matmul_config f = config_of(2, 2, 2, 8);
    f.may_accumulate = true;
    EXPECT_EQ(crl_backend_cpu.bf16->matmul->create(&matmul, &f, nullptr), CRL_STATUS_UNSUPPORTED);
    EXPECT_STREQ(crl_error_message(),
                 "matmul: an activation in a result that is added to, expected none");
    f.may_accumulate = false;
    f.y_is_f32 = true;
    EXPECT_EQ(crl_backend_cpu.bf16->matmul->create(&matmul, &f, nullptr), CRL_STATUS_UNSUPPORTED);
    EXPECT_EQ(matmul, nullptr);
}

} // namespace
