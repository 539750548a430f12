// SPDX-License-Identifier: Apache-2.0
#include "tests/kernels/support.h"

#include <thread>

namespace {

using namespace kernels_test;
const crl_matmul_ops &kOps = *crl_kernels_cpu.matmul;

struct Case {
    crl_matmul_config config;
    Floats a, b, bias, before;
};

Case make_case(Random &random, crl_matmul_config config) {
    return {config, random_floats(random, config.m * config.k),
            random_floats(random, config.k * config.n), random_floats(random, config.n),
            random_floats(random, config.m * config.n)};
}

std::vector<double> reference(const Case &c, bool accumulate) {
    const crl_matmul_config &f = c.config;
    std::vector<double> y((size_t)(f.m * f.n));
    for (int64_t i = 0; i < f.m; i++) {
        for (int64_t j = 0; j < f.n; j++) {
            double sum = f.bias ? c.bias[j] : 0;
            for (int64_t l = 0; l < f.k; l++) {
                const double a = c.a[f.a_transposed ? l * f.m + i : i * f.k + l];
                const double b = c.b[f.b_transposed ? j * f.k + l : l * f.n + j];
                sum += a * b;
            }
            y[(size_t)(i * f.n + j)] = sum + (accumulate ? c.before[i * f.n + j] : 0);
        }
    }
    return y;
}

// Creates and runs under the calling thread's number of threads.
Floats run(const Case &c, bool accumulate) {
    crl_matmul *matmul = nullptr;
    EXPECT_OK(kOps.create(&matmul, &c.config, nullptr));
    Floats y = c.before;
    if (!accumulate)
        std::fill(y.begin(), y.end(), NAN); // must not be read
    Floats scratch((int64_t)(kOps.scratch_bytes(matmul) / sizeof(float)));
    crl_matmul_call call = {};
    call.a = c.a.data();
    call.b = c.b.data();
    call.bias = c.config.bias ? c.bias.data() : nullptr;
    call.y = y.data();
    call.accumulate = accumulate;
    call.scratch = scratch.data();
    EXPECT_OK(kOps.run(matmul, nullptr, &call));
    kOps.destroy(matmul);
    return y;
}

TEST(KernelsMatmul, MatchesDouble) {
    const unsigned seed = 1;
    SCOPED_TRACE(seed);
    Random random(seed);
    const int64_t sizes[][3] = {{1, 1, 1},       {7, 33, 5},     {24, 64, 96},   {65, 130, 7},
                                {1, 200, 70},    {130, 17, 300}, {400, 40, 100}, {40, 500, 100},
                                {10, 400, 4500}, {1000, 30, 80}, {1100, 24, 600}};
    for (const auto &size : sizes) {
        for (int bits = 0; bits < 8; bits++) {
            const crl_matmul_config config = {
                size[0], size[1], size[2], (bits & 1) != 0, (bits & 2) != 0, (bits & 4) != 0, true};
            const Case c = make_case(random, config);
            for (bool accumulate : {false, true}) {
                const double bound = 1e-6 + 1e-7 * std::sqrt((double)config.k);
                EXPECT_LT(error(run(c, accumulate), reference(c, accumulate)), bound)
                    << size[0] << "x" << size[1] << "x" << size[2] << " bits " << bits
                    << " accumulate " << accumulate;
            }
        }
    }
}

// y = x Wᵀ, dx = dy W, dw = dyᵀ x at the shapes of transformers.
TEST(KernelsMatmul, SameBitsForAllThreads) {
    Random random(2);
    const int64_t layers[][2] = {{64, 64},    {256, 96},   {96, 256},
                                 {2304, 768}, {768, 3072}, {768, 768}};
    for (int64_t rows : {24, 64, 256, 1024}) {
        for (const auto &layer : layers) {
            const int64_t n = layer[0], k = layer[1];
            if (rows * n * k > 300 << 20)
                continue;
            const crl_matmul_config configs[] = {{rows, n, k, false, true, true, true},
                                                 {rows, k, n, false, false, false, true},
                                                 {n, k, rows, true, false, false, true}};
            for (const crl_matmul_config &config : configs) {
                SCOPED_TRACE(testing::Message() << config.m << "x" << config.n << "x" << config.k);
                const Case c = make_case(random, config);
                same_for_all_threads([&] { return run(c, false); });
                same_for_all_threads([&] { return run(c, true); });
            }
        }
    }
}

TEST(KernelsMatmul, SameBitsForAllThreadsWithALargeVocabulary) {
    Random random(3);
    const crl_matmul_config configs[] = {{24, 50257, 64, false, true, false, true},
                                         {24, 64, 50257, false, false, false, true},
                                         {50257, 64, 24, true, false, false, true}};
    for (const crl_matmul_config &config : configs) {
        const Case c = make_case(random, config);
        same_for_all_threads([&] { return run(c, true); });
    }
}

// Created under one number of threads, run under another, and by several threads at once.
TEST(KernelsMatmul, RunsInSeveralThreadsAtOnce) {
    Random random(4);
    const Case c = make_case(random, {256, 768, 256, false, true, true, true});
    crl_kernels_set_threads(1);
    const Floats expected = run(c, false);
    crl_kernels_set_threads(kMaxThreads);
    crl_matmul *matmul = nullptr;
    EXPECT_OK(kOps.create(&matmul, &c.config, nullptr));
    std::vector<std::thread> threads;
    for (int i = 0; i < 2; i++) {
        threads.emplace_back([&, i] {
            crl_kernels_set_threads(std::min(1 + i, kMaxThreads));
            Floats scratch((int64_t)(kOps.scratch_bytes(matmul) / sizeof(float)));
            for (int repeat = 0; repeat < 10; repeat++) {
                Floats y(c.before.size());
                crl_matmul_call call = {};
                call.a = c.a.data();
                call.b = c.b.data();
                call.bias = c.bias.data();
                call.y = y.data();
                call.scratch = scratch.data();
                EXPECT_OK(kOps.run(matmul, nullptr, &call));
                EXPECT_TRUE(same_bits(expected, y));
            }
        });
    }
    for (std::thread &thread : threads)
        thread.join();
    kOps.destroy(matmul);
    crl_kernels_set_threads(1);
}

TEST(KernelsMatmul, CountsPrimitivesAndRestoresTheThreads) {
    const int64_t before = crl_kernels_primitives_created();
    Random random(5);
    const Case c = make_case(random, {64, 64, 64, false, false, false, false});
    crl_matmul *matmul = nullptr;
    EXPECT_OK(kOps.create(&matmul, &c.config, nullptr));
    const int64_t created = crl_kernels_primitives_created();
    EXPECT_EQ(created, before + 1);
    Floats y(64 * 64), scratch((int64_t)(kOps.scratch_bytes(matmul) / sizeof(float)));
    crl_matmul_call call = {};
    call.a = c.a.data();
    call.b = c.b.data();
    call.y = y.data();
    call.scratch = scratch.data();
    EXPECT_OK(kOps.run(matmul, nullptr, &call));
    EXPECT_EQ(crl_kernels_primitives_created(), created);
    kOps.destroy(matmul);
}

TEST(KernelsMatmul, RejectsImpossibleSizes) {
    crl_matmul *matmul = nullptr;
    const crl_matmul_config empty = {0, 1, 1, false, false, false, false};
    EXPECT_EQ(kOps.create(&matmul, &empty, nullptr), CRL_STATUS_INVALID);
    EXPECT_STREQ(crl_error_message(), "matmul: size is 0 x 1 x 1, expected 1 or more each");
    const crl_matmul_config huge = {INT64_MAX / 2, 8, 8, false, false, false, false};
    EXPECT_EQ(kOps.create(&matmul, &huge, nullptr), CRL_STATUS_INVALID);
    EXPECT_EQ(matmul, nullptr);
}

TEST(KernelsMatmul, SurvivesFailedAllocations) {
    const crl_matmul_config config = {300, 500, 5000, false, true, true, true};
    crl_alloc_watch watch = {};
    crl_alloc_attach(&watch);
    crl_matmul *matmul = nullptr;
    int failures = 0;
    for (int64_t n = 1; matmul == nullptr; n++) {
        watch.fail_at = n;
        const crl_status status = kOps.create(&matmul, &config, nullptr);
        failures += status == CRL_STATUS_NOMEM;
        ASSERT_TRUE(status == CRL_STATUS_OK || status == CRL_STATUS_NOMEM);
    }
    kOps.destroy(matmul);
    crl_alloc_attach(nullptr);
    EXPECT_GT(failures, 1);
    EXPECT_EQ(watch.live_bytes, 0);
}

} // namespace
