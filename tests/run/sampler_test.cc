// SPDX-License-Identifier: Apache-2.0
#include "engine/run/sampler.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <vector>

#include "engine/base/alloc.h"

namespace {

class Sampler {
  public:
    explicit Sampler(const crl_sampler_config &config) {
        EXPECT_EQ(crl_sampler_create(&sampler_, &config), CRL_STATUS_OK) << crl_error_message();
    }
    ~Sampler() { crl_sampler_destroy(sampler_); }
    Sampler(const Sampler &) = delete;
    Sampler &operator=(const Sampler &) = delete;

    std::vector<int64_t> Step(int64_t step) const {
        const int64_t *ids = nullptr;
        int64_t count = 0;
        crl_sampler_get(sampler_, step, &ids, &count);
        return {ids, ids + count};
    }
    std::vector<int64_t> Epoch(int64_t epoch) const {
        std::vector<int64_t> all;
        for (int64_t i = 0; i < Steps(); ++i) {
            const auto ids = Step(epoch * Steps() + i);
            all.insert(all.end(), ids.begin(), ids.end());
        }
        return all;
    }
    crl_sampler *get() const { return sampler_; }
    int64_t Steps() const { return crl_sampler_steps_per_epoch(sampler_); }

  private:
    crl_sampler *sampler_ = nullptr;
};

std::vector<int64_t> Range(int64_t count) {
    std::vector<int64_t> ids(static_cast<size_t>(count));
    std::iota(ids.begin(), ids.end(), 0);
    return ids;
}

TEST(RunSampler, EveryEpochIsAPermutationOfAllSamples) {
    for (int64_t samples : {1, 2, 7, 64, 1000}) {
        for (int64_t batch : {1, 3, 7, 64}) {
            Sampler sampler({samples, batch, 5, true});
            ASSERT_EQ(sampler.Steps(), (samples + batch - 1) / batch);
            std::vector<int64_t> previous;
            for (int64_t epoch = 0; epoch < 4; ++epoch) {
                auto ids = sampler.Epoch(epoch);
                EXPECT_TRUE(samples < 64 || ids != previous) << "same order in two epochs";
                previous = ids;
                std::sort(ids.begin(), ids.end());
                ASSERT_EQ(ids, Range(samples));
            }
        }
    }
}

TEST(RunSampler, LastBatchIsPartialAndNotMixed) {
    Sampler sampler({10, 4, 1, true});
    ASSERT_EQ(sampler.Steps(), 3);
    const size_t expected[] = {4, 4, 2, 4, 4, 2};
    for (int64_t step = 0; step < 6; ++step) {
        EXPECT_EQ(sampler.Step(step).size(), expected[step]);
    }
    Sampler whole({8, 4, 1, true});
    EXPECT_EQ(whole.Steps(), 2);
    EXPECT_EQ(whole.Step(1).size(), 4u);
    Sampler small({3, 16, 1, true});
    EXPECT_EQ(small.Steps(), 1);
    EXPECT_EQ(small.Step(7).size(), 3u);
}

TEST(RunSampler, IsAFunctionOfSeedAndStep) {
    const crl_sampler_config config = {500, 32, 77, true};
    Sampler a(config), b(config);
    std::vector<std::vector<int64_t>> forward;
    for (int64_t step = 0; step < 3 * a.Steps(); ++step) {
        forward.push_back(a.Step(step));
    }
    for (int64_t step = 3 * a.Steps() - 1; step >= 0; --step) { // any order, as after a resume
        EXPECT_EQ(b.Step(step), forward[static_cast<size_t>(step)]);
    }
    Sampler other({500, 32, 78, true});
    EXPECT_NE(other.Epoch(0), a.Epoch(0));
}

TEST(RunSampler, OrderDoesNotDependOnTheBatchSize) {
    Sampler a({100, 7, 9, true}), b({100, 32, 9, true});
    EXPECT_EQ(a.Epoch(2), b.Epoch(2));
}

TEST(RunSampler, OrderStaysTheSameForEver) {
    // A checkpoint resumed by a later version has to meet the same samples.
    Sampler sampler({10, 10, 1234, true});
    EXPECT_EQ(sampler.Step(0), (std::vector<int64_t>{1, 6, 8, 4, 0, 2, 9, 3, 5, 7}));
    EXPECT_EQ(sampler.Step(1), (std::vector<int64_t>{3, 4, 5, 7, 2, 0, 8, 6, 9, 1}));
    EXPECT_EQ(sampler.Step(int64_t{1} << 32), (std::vector<int64_t>{5, 9, 7, 1, 6, 0, 4, 3, 2, 8}));
}

TEST(RunSampler, KeepsOrderWithoutShuffling) {
    Sampler sampler({10, 4, 1, false});
    EXPECT_EQ(sampler.Epoch(0), Range(10));
    EXPECT_EQ(sampler.Epoch(5), Range(10));
    EXPECT_EQ(sampler.Step(4), (std::vector<int64_t>{4, 5, 6, 7}));
}

TEST(RunSampler, GetDoesNotAllocate) {
    Sampler sampler({100, 8, 1, true});
    crl_alloc_watch watch{};
    crl_alloc_attach(&watch);
    for (int64_t step = 0; step < 50; ++step) {
        const int64_t *ids = nullptr;
        int64_t count = 0;
        crl_sampler_get(sampler.get(), step, &ids, &count);
    }
    crl_alloc_attach(nullptr);
    EXPECT_EQ(watch.allocations, 0);
}

TEST(RunSampler, RefusesBadConfigs) {
    const struct {
        crl_sampler_config config;
        const char *message;
    } cases[] = {
        {{0, 4, 1, true}, "sampler: 0 samples, expected at least 1"},
        {{-3, 4, 1, true}, "sampler: -3 samples, expected at least 1"},
        {{4, 0, 1, true}, "sampler: global batch is 0, expected at least 1"},
        {{8589934593, 4, 1, true},
         "sampler: 8589934593 samples, expected at most 8589934592 to shuffle"},
    };
    for (const auto &bad : cases) {
        crl_sampler *sampler = nullptr;
        EXPECT_EQ(crl_sampler_create(&sampler, &bad.config), CRL_STATUS_INVALID);
        EXPECT_STREQ(crl_error_message(), bad.message);
        EXPECT_EQ(sampler, nullptr);
    }
    crl_sampler_destroy(nullptr);
}

TEST(RunSampler, CreateSurvivesEveryAllocationFailure) {
    const crl_sampler_config config = {100, 8, 1, true};
    crl_alloc_watch watch{};
    crl_alloc_attach(&watch);
    for (int64_t n = 1; n <= 3; ++n) {
        watch.fail_at = n;
        crl_sampler *sampler = nullptr;
        EXPECT_EQ(crl_sampler_create(&sampler, &config), n <= 2 ? CRL_STATUS_NOMEM : CRL_STATUS_OK);
        EXPECT_EQ(sampler != nullptr, n == 3);
        crl_sampler_destroy(sampler);
        EXPECT_EQ(watch.live_bytes, 0);
    }
    crl_alloc_attach(nullptr);
}

} // namespace
