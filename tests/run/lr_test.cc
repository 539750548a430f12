/* SPDX-License-Identifier: Apache-2.0 */
/* The learning-rate curve: exact where it is anchored, monotone between. */
#include <math.h>

#include <gtest/gtest.h>

#include "engine/run/optimizer.h"

namespace {

crl_lr_config make(crl_lr_kind kind, int64_t warmup, int64_t total) {
    crl_lr_config config = {};
    config.kind = kind;
    config.peak = 3e-4;
    config.minimum = 1e-5;
    config.warmup_steps = warmup;
    config.total_steps = total;
    return config;
}

TEST(RunLr, WarmUpRisesFromZeroToExactlyThePeak) {
    for (const crl_lr_kind kind : {CRL_LR_CONSTANT, CRL_LR_LINEAR, CRL_LR_COSINE}) {
        const crl_lr_config config = make(kind, 10, 100);
        EXPECT_EQ(crl_lr_at(&config, 0), 0.0);
        EXPECT_EQ(crl_lr_at(&config, 1), 3e-4 * 0.1);
        EXPECT_EQ(crl_lr_at(&config, 5), 3e-4 * 0.5);
        EXPECT_EQ(crl_lr_at(&config, 10), 3e-4);
    }
}

TEST(RunLr, WithoutWarmUpTheFirstStepHasThePeak) {
    for (const crl_lr_kind kind : {CRL_LR_CONSTANT, CRL_LR_LINEAR, CRL_LR_COSINE}) {
        for (const int64_t warmup : {0, 1}) {
            const crl_lr_config config = make(kind, warmup, 100);
            EXPECT_EQ(crl_lr_at(&config, 1), 3e-4);
        }
        const crl_lr_config one = make(kind, 0, 1);
        EXPECT_EQ(crl_lr_at(&one, 1), 3e-4);
    }
}

TEST(RunLr, EndsExactlyAtTheMinimumAndStaysThere) {
    for (const crl_lr_kind kind : {CRL_LR_LINEAR, CRL_LR_COSINE}) {
        const crl_lr_config config = make(kind, 10, 100);
        EXPECT_GT(crl_lr_at(&config, 99), 1e-5);
        EXPECT_EQ(crl_lr_at(&config, 100), 1e-5);
        EXPECT_EQ(crl_lr_at(&config, 1000), 1e-5);
    }
    const crl_lr_config constant = make(CRL_LR_CONSTANT, 10, 100);
    EXPECT_EQ(crl_lr_at(&constant, 1000), 3e-4);
}

TEST(RunLr, FallsByItsKind) {
    const crl_lr_config linear = make(CRL_LR_LINEAR, 10, 110);
    const crl_lr_config cosine = make(CRL_LR_COSINE, 10, 110);
    const double middle = 0.5 * (3e-4 + 1e-5);
    EXPECT_DOUBLE_EQ(crl_lr_at(&linear, 60), middle);
    EXPECT_DOUBLE_EQ(crl_lr_at(&linear, 35), 3e-4 - 0.25 * (3e-4 - 1e-5));
    EXPECT_DOUBLE_EQ(crl_lr_at(&cosine, 60), middle);
    EXPECT_DOUBLE_EQ(crl_lr_at(&cosine, 35),
                     1e-5 + (3e-4 - 1e-5) * 0.5 * (1 + cos(acos(-1.0) * 0.25)));
    for (int64_t step = 10; step < 110; ++step) {
        EXPECT_LT(crl_lr_at(&linear, step + 1), crl_lr_at(&linear, step));
        EXPECT_LT(crl_lr_at(&cosine, step + 1), crl_lr_at(&cosine, step));
    }
}

TEST(RunLr, TotalBelowTheWarmUpEndsItAtThePeak) {
    const crl_lr_config config = make(CRL_LR_COSINE, 10, 5);
    EXPECT_EQ(crl_lr_at(&config, 10), 3e-4);
    EXPECT_EQ(crl_lr_at(&config, 11), 1e-5);
}

} // namespace
