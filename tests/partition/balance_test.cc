/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/partition/numbers.h"
#include "tests/partition/partition_case.h"

#include <fstream>

#include "engine/base/alloc.h"
#include "engine/base/json.h"

namespace {

/* What every cut of a case comes to at best. */
struct best_cut {
    double bottleneck = INFINITY, squares = INFINITY, peak = INFINITY;
    size_t fewest = 0, cuts = 0;
};

best_cut best_of(const partition_case &c, double limit) {
    best_cut best;
    every_cut(c, [&](const std::vector<int> &first) {
        const cut_figures figures = measure(c, first);
        best.cuts++;
        best.peak = std::min(best.peak, figures.peak);
        if (figures.peak > limit || figures.bottleneck > best.bottleneck) {
            return;
        }
        if (figures.bottleneck < best.bottleneck || first.size() < best.fewest) {
            best.bottleneck = figures.bottleneck;
            best.fewest = first.size();
            best.squares = figures.squares;
        } else if (first.size() == best.fewest) {
            best.squares = std::min(best.squares, figures.squares);
        }
    });
    return best;
}

} // namespace

TEST(PartitionBalance, EqualsExhaustiveSearch) {
    const unsigned seed = 20240607;
    SCOPED_TRACE("seed " + std::to_string(seed));
    std::mt19937 random(seed);
    int infeasible = 0, limited = 0;
    for (int n = 0; n < 3000; n++) {
        const partition_case c = random_case(random);
        const double limit = c.limit > 0 ? c.limit : INFINITY;
        const best_cut best = best_of(c, limit);
        const crl_partition_request request = c.request();
        crl_partition out = {};
        const crl_status status = crl_partitioner_balance.cut(&out, &request);
        if (best.cuts == 0) {
            ASSERT_EQ(status, CRL_STATUS_INVALID) << n;
            continue;
        }
        if (!std::isfinite(best.bottleneck)) {
            infeasible++;
            ASSERT_EQ(status, CRL_STATUS_UNSUPPORTED) << n;
            const std::string least = std::to_string((long)best.peak) + " bytes";
            ASSERT_NE(std::string(crl_error_message()).find("do is " + least), std::string::npos)
                << crl_error_message() << " expected " << least;
            continue;
        }
        limited += c.limit > 0;
        ASSERT_EQ(status, CRL_STATUS_OK) << n << crl_error_message();
        const cut_figures got = measure(c, firsts(out));
        ASSERT_EQ(got.bottleneck, best.bottleneck) << n;
        ASSERT_EQ(out.bottleneck_s, got.bottleneck) << n;
        ASSERT_EQ(out.peak_bytes, got.peak) << n;
        ASSERT_LE(got.peak, limit) << n;
        ASSERT_EQ((size_t)out.stages, best.fewest) << n;
        ASSERT_NEAR(got.squares, best.squares, 1e-12) << n;
        for (int s = 1; s < out.stages && !c.may_cut.empty(); s++) {
            ASSERT_TRUE(c.may_cut[out.first[s]]) << n;
        }
    }
    EXPECT_GT(infeasible, 100);
    EXPECT_GT(limited, 100);
}

TEST(PartitionBalance, ReachesThePublishedOptima) {
    json_t *cases = nullptr;
    const std::string path = CRL_SOURCE_DIR "/../shared/cases/planner/instances.json";
    if (!std::ifstream(path).good()) {
        GTEST_SKIP() << path << " is not there";
    }
    ASSERT_EQ(crl_json_load(&cases, path.c_str()), CRL_STATUS_OK) << crl_error_message();
    int solved = 0, infeasible = 0;
    for (size_t i = 0; i < json_array_size(cases); i++) {
        const json_t *item = json_array_get(cases, i);
        if (json_integer_value(json_object_get(item, "maxrep")) != 1) {
            continue;
        }
        const double rate = json_number_value(json_object_get(item, "BW"));
        partition_case c;
        c.time = numbers(item, "t", 1);
        c.state = numbers(item, "w", 4);
        c.active = numbers(item, "a", 1);
        c.boundary = numbers(item, "a", 2 / rate);
        c.stages = (int)json_integer_value(json_object_get(item, "D"));
        c.fewer = true;
        c.limit = json_number_value(json_object_get(item, "mem_cap"));
        const json_t *best = json_object_get(item, "best");
        const crl_partition_request request = c.request();
        crl_partition out = {};
        const crl_status status = crl_partitioner_balance.cut(&out, &request);
        if (json_is_null(best)) {
            EXPECT_EQ(status, CRL_STATUS_UNSUPPORTED) << "case " << i;
            infeasible++;
        } else {
            ASSERT_EQ(status, CRL_STATUS_OK) << "case " << i << ": " << crl_error_message();
            EXPECT_NEAR(out.bottleneck_s, json_number_value(best), 1e-9) << "case " << i;
            solved++;
        }
    }
    json_decref(cases);
    EXPECT_GT(solved, 5);
    EXPECT_GT(infeasible, 0);
}

TEST(PartitionBalance, SaysWhatWouldFit) {
    partition_case c;
    c.time = {1, 1, 1, 1};
    c.state = {4e9, 4e9, 4e9, 4e9};
    c.active = {1e9, 1e9, 1e9, 1e9};
    c.stages = 2;
    c.limit = 8.0 * 1024 * 1024 * 1024;
    const crl_partition_request request = c.request();
    crl_partition out = {};
    ASSERT_EQ(crl_partitioner_balance.cut(&out, &request), CRL_STATUS_UNSUPPORTED);
    EXPECT_STREQ(crl_error_message(),
                 "balance: no cut into 2 stages fits in 8.0 GiB (8589934592 bytes) per device, the "
                 "least that would do is 11.2 GiB (12000000000 bytes)");
}

TEST(PartitionBalance, RefusesTimesWhoseSquaresOverflow) {
    partition_case c;
    c.time = {1e200, 1e200, 1e200};
    c.stages = 2;
    const crl_partition_request request = c.request();
    crl_partition out = {};
    EXPECT_EQ(crl_partitioner_balance.cut(&out, &request), CRL_STATUS_INVALID);
    EXPECT_STREQ(crl_error_message(), "balance: time of unit 0 is 1e+200, expected 0 to 1e+100");
}

TEST(PartitionBalance, PrefersEvenStagesBelowTheBottleneck) {
    partition_case c;
    c.time = {5, 1, 1, 1, 1};
    c.stages = 3;
    const crl_partition_request request = c.request();
    crl_partition out = {};
    ASSERT_EQ(crl_partitioner_balance.cut(&out, &request), CRL_STATUS_OK);
    EXPECT_EQ(firsts(out), (std::vector<int>{0, 1, 3}));
}

TEST(PartitionBalance, TakesManyUnitsAndStages) {
    std::mt19937 random(7);
    partition_case c;
    for (int j = 0; j < 2000; j++) {
        c.time.push_back((double)(random() % 1000 + 1));
        c.state.push_back((double)(random() % 1000));
        c.active.push_back((double)(random() % 10));
        c.boundary.push_back((double)(random() % 1000));
    }
    c.stages = 64;
    c.limit = 1e9;
    const crl_partition_request request = c.request();
    crl_partition out = {};
    ASSERT_EQ(crl_partitioner_balance.cut(&out, &request), CRL_STATUS_OK);
    EXPECT_EQ(out.stages, 64);
}

TEST(PartitionBalance, SurvivesEveryFailedAllocation) {
    partition_case c;
    c.time = {1, 2, 3};
    c.state = {10, 10, 10};
    c.stages = 2;
    for (double limit : {0.0, 1.0}) {
        c.limit = limit;
        const crl_partition_request request = c.request();
        const crl_status expected = limit > 0 ? CRL_STATUS_UNSUPPORTED : CRL_STATUS_OK;
        for (int64_t n = 1;; n++) {
            crl_alloc_watch watch = {};
            crl_alloc_attach(&watch);
            watch.fail_at = n;
            crl_partition out = {};
            const crl_status status = crl_partitioner_balance.cut(&out, &request);
            const bool done = watch.fail_at > 0;
            crl_alloc_attach(nullptr);
            EXPECT_EQ(watch.live_bytes, 0);
            EXPECT_EQ(status, done ? expected : CRL_STATUS_NOMEM);
            if (done) {
                break;
            }
        }
    }
}
