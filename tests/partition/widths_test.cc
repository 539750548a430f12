/* SPDX-License-Identifier: Apache-2.0 */
#include "partition/widths.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <functional>
#include <random>
#include <vector>

#include "engine/base/alloc.h"
#include "engine/base/json.h"
#include "tests/partition/numbers.h"

namespace {

/* The cost model of the solved cases: stage max(t/r, 2(r-1)/r w/BW), boundary 2a/BW, memory
 * 4w + stages left · a; with `sides` a boundary also depends on the replicas beside it. */
struct width_case {
    std::vector<double> time, weight, state, active;
    std::vector<unsigned char> may_cut;
    double rate = 1, limit = 0;
    int devices = 1, most_replicas = 0, most_stages = 0;
    bool all = false, sides = false;

    static double stage_s(const void *context, const crl_width_stage *stage, int r) {
        const auto *self = static_cast<const width_case *>(context);
        return std::max(stage->time_s / r, 2.0 * (r - 1) / r * stage->parameter_bytes / self->rate);
    }
    static double boundary_s(const void *context, int unit, int r, bool entering) {
        const auto *self = static_cast<const width_case *>(context);
        const double side = self->sides ? (entering ? 1.0 : 0.5) * r : 1;
        return 2 * self->active[(size_t)unit] / self->rate / side;
    }
    static double bytes(const void *, const crl_width_stage *stage, int, int left) {
        return stage->state_bytes + left * stage->active_bytes;
    }
    crl_width_problem problem() const {
        crl_width_problem out = {};
        out.units = (int)time.size();
        out.devices = devices;
        out.all_devices = all;
        out.most_replicas = most_replicas;
        out.most_stages = most_stages;
        out.time_s = time.data();
        out.parameter_bytes = weight.data();
        out.state_bytes = state.data();
        out.active_bytes = active.data();
        out.may_cut_before =
            may_cut.empty() ? nullptr : reinterpret_cast<const bool *>(may_cut.data());
        out.costs = {this, stage_s, boundary_s, bytes};
        out.limit_bytes = limit;
        return out;
    }
};

struct solution {
    std::vector<int> first, replicas;
    crl_width_plan plan = {};
    crl_status status = CRL_STATUS_OK;
};

solution solve(const width_case &c) {
    solution out;
    out.first.resize((size_t)c.devices);
    out.replicas.resize((size_t)c.devices);
    out.plan.first = out.first.data();
    out.plan.replicas = out.replicas.data();
    const crl_width_problem problem = c.problem();
    out.status = crl_widths_solve(&out.plan, "widths", &problem);
    return out;
}

struct figures {
    double time = 0, bytes = 0;
};

figures measure(const width_case &c, const std::vector<int> &first, const std::vector<int> &width) {
    figures out;
    const int stages = (int)first.size();
    for (int s = 0; s < stages; s++) {
        crl_width_stage stage = {};
        stage.first = first[(size_t)s];
        stage.last = s + 1 < stages ? first[(size_t)s + 1] : (int)c.time.size();
        for (int j = stage.first; j < stage.last; j++) {
            stage.time_s += c.time[(size_t)j];
            stage.parameter_bytes += c.weight[(size_t)j];
            stage.state_bytes += c.state[(size_t)j];
            stage.active_bytes += c.active[(size_t)j];
        }
        const int r = width[(size_t)s];
        out.time = std::max(out.time, width_case::stage_s(&c, &stage, r));
        if (s > 0) {
            out.time = std::max(out.time, width_case::boundary_s(&c, stage.first - 1, r, true));
        }
        if (s + 1 < stages) {
            out.time = std::max(out.time, width_case::boundary_s(&c, stage.last - 1, r, false));
        }
        out.bytes = std::max(out.bytes, width_case::bytes(&c, &stage, r, stages - s));
    }
    return out;
}

using plan_visit =
    std::function<void(const std::vector<int> &first, const std::vector<int> &width, int used)>;

void every_width(const width_case &c, const std::vector<int> &first, std::vector<int> *width,
                 int used, const plan_visit &visit) {
    if (width->size() == first.size()) {
        if (used == c.devices || !c.all) {
            visit(first, *width, used);
        }
        return;
    }
    const int most = c.most_replicas > 0 ? c.most_replicas : c.devices;
    for (int r = 1; r <= most && used + r <= c.devices; r++) {
        width->push_back(r);
        every_width(c, first, width, used + r, visit);
        width->pop_back();
    }
}

void every_plan(const width_case &c, const plan_visit &visit) {
    const int units = (int)c.time.size();
    for (unsigned mask = 0; mask < 1u << (units - 1); mask++) {
        std::vector<int> first(1, 0), width;
        bool allowed = true;
        for (int j = 1; j < units; j++) {
            if (mask & 1u << (j - 1)) {
                first.push_back(j);
                allowed = allowed && (c.may_cut.empty() || c.may_cut[(size_t)j]);
            }
        }
        if (allowed && (c.most_stages == 0 || (int)first.size() <= c.most_stages)) {
            every_width(c, first, &width, 0, visit);
        }
    }
}

width_case random_case(std::mt19937 &random) {
    auto pick = [&](int low, int high) {
        return std::uniform_int_distribution<int>(low, high)(random);
    };
    width_case c;
    const int units = pick(1, 6);
    c.devices = pick(1, 6);
    c.most_replicas = pick(0, c.devices);
    c.most_stages = pick(0, 3) ? 0 : pick(1, 3);
    c.all = pick(0, 1) != 0;
    c.sides = pick(0, 1) != 0;
    c.rate = pick(1, 20);
    const bool restricted = pick(0, 3) == 0;
    for (int j = 0; j < units; j++) {
        c.time.push_back(pick(0, 4) == 0 ? 0 : pick(1, 99) * 0.1);
        c.weight.push_back(pick(0, 1) ? pick(0, 20) : 0);
        c.state.push_back(pick(0, 20));
        c.active.push_back(pick(0, 5));
        if (restricted) {
            c.may_cut.push_back(pick(0, 2) != 0);
        }
    }
    c.limit = pick(0, 1) ? pick(5, 90) : 0;
    return c;
}

/* What exhaustive search finds. */
struct optimum {
    double time = INFINITY, peak = INFINITY;
    size_t stages = 0;
    int devices = 0;
};

optimum exhaust(const width_case &c) {
    optimum best;
    every_plan(c, [&](const std::vector<int> &first, const std::vector<int> &width, int used) {
        const figures f = measure(c, first, width);
        best.peak = std::min(best.peak, f.bytes);
        if (c.limit > 0 && f.bytes > c.limit) {
            return;
        }
        const auto rank = std::make_tuple(f.time, first.size(), used);
        if (rank < std::make_tuple(best.time, best.stages, best.devices)) {
            std::tie(best.time, best.stages, best.devices) = rank;
        }
    });
    return best;
}

} // namespace

TEST(PartitionWidths, EqualsExhaustiveSearch) {
    const unsigned seed = 20240611;
    SCOPED_TRACE("seed " + std::to_string(seed));
    std::mt19937 random(seed);
    int refused = 0, limited = 0, wide = 0;
    for (int n = 0; n < 4000; n++) {
        const width_case c = random_case(random);
        const optimum best = exhaust(c);
        const crl_width_problem problem = c.problem();
        double least = -1;
        ASSERT_EQ(crl_widths_least_bytes(&least, "widths", &problem), CRL_STATUS_OK);
        ASSERT_EQ(least, best.peak) << n;
        const solution got = solve(c);
        if (!std::isfinite(best.time)) {
            ASSERT_EQ(got.status, CRL_STATUS_UNSUPPORTED) << n;
            refused++;
            continue;
        }
        ASSERT_EQ(got.status, CRL_STATUS_OK) << n << crl_error_message();
        const std::vector<int> first(got.first.begin(), got.first.begin() + got.plan.stages);
        const std::vector<int> width(got.replicas.begin(), got.replicas.begin() + got.plan.stages);
        const figures f = measure(c, first, width);
        ASSERT_EQ(f.time, best.time) << n;
        ASSERT_EQ(got.plan.bottleneck_s, f.time) << n;
        ASSERT_EQ(got.plan.peak_bytes, f.bytes) << n;
        ASSERT_TRUE(c.limit == 0 || f.bytes <= c.limit) << n;
        ASSERT_EQ((size_t)got.plan.stages, best.stages) << n;
        ASSERT_EQ(got.plan.devices, best.devices) << n;
        limited += c.limit > 0;
        wide += *std::max_element(width.begin(), width.end()) > 1;
    }
    EXPECT_GT(refused, 100);
    EXPECT_GT(limited, 100);
    EXPECT_GT(wide, 100);
}

TEST(PartitionWidths, ReachesEverySolvedCase) {
    const std::string path = CRL_SOURCE_DIR "/../shared/cases/planner/instances.json";
    if (!std::ifstream(path).good()) {
        GTEST_SKIP() << path << " is not there";
    }
    json_t *cases = nullptr;
    ASSERT_EQ(crl_json_load(&cases, path.c_str()), CRL_STATUS_OK) << crl_error_message();
    size_t solved = 0;
    for (size_t i = 0; i < json_array_size(cases); i++) {
        const json_t *item = json_array_get(cases, i);
        width_case c;
        c.time = numbers(item, "t", 1);
        c.weight = numbers(item, "w", 1);
        c.state = numbers(item, "w", 4);
        c.active = numbers(item, "a", 1);
        c.rate = json_number_value(json_object_get(item, "BW"));
        c.devices = (int)json_integer_value(json_object_get(item, "D"));
        c.most_replicas = (int)json_integer_value(json_object_get(item, "maxrep"));
        c.limit = json_number_value(json_object_get(item, "mem_cap"));
        const json_t *best = json_object_get(item, "best");
        const solution got = solve(c);
        if (json_is_null(best)) {
            EXPECT_EQ(got.status, CRL_STATUS_UNSUPPORTED) << "case " << i;
        } else {
            ASSERT_EQ(got.status, CRL_STATUS_OK) << "case " << i << ": " << crl_error_message();
            EXPECT_NEAR(got.plan.bottleneck_s, json_number_value(best), 1e-12) << "case " << i;
            solved++;
        }
    }
    EXPECT_GT(json_array_size(cases), solved);
    EXPECT_GT(solved, 10u);
    json_decref(cases);
}

TEST(PartitionWidths, SaysWhatWouldFit) {
    width_case c;
    c.time = c.weight = {1, 1, 1, 1};
    c.state = {1000, 1000, 1000, 1000};
    c.active = {10, 10, 10, 10};
    c.devices = 2;
    c.limit = 1500;
    EXPECT_EQ(solve(c).status, CRL_STATUS_UNSUPPORTED);
    EXPECT_STREQ(crl_error_message(), "widths: nothing fits 2 devices in 1.5 KiB (1500 bytes) "
                                      "each, the least that would do is 2.0 KiB (2040 bytes)");
    c.all = true;
    c.devices = 3;
    c.most_replicas = c.most_stages = 1;
    EXPECT_EQ(solve(c).status, CRL_STATUS_UNSUPPORTED);
    EXPECT_STREQ(crl_error_message(), "widths: 4 units in at most 1 stages of at most 1 replicas "
                                      "do not use 3 devices");
}

TEST(PartitionWidths, SurvivesEveryFailedAllocation) {
    width_case c;
    c.time = c.weight = c.state = c.active = {1, 2, 3};
    c.devices = 3;
    for (int64_t n = 1;; n++) {
        crl_alloc_watch watch = {};
        crl_alloc_attach(&watch);
        watch.fail_at = n;
        const crl_status status = solve(c).status;
        double least;
        const crl_width_problem problem = c.problem();
        const crl_status other = crl_widths_least_bytes(&least, "widths", &problem);
        const bool done = watch.fail_at > 0;
        crl_alloc_attach(nullptr);
        EXPECT_EQ(watch.live_bytes, 0);
        EXPECT_EQ(status == CRL_STATUS_OK && other == CRL_STATUS_OK, done);
        if (done) {
            break;
        }
    }
}

TEST(PartitionWidths, TakesManyUnitsAndDevices) {
    std::mt19937 random(7);
    width_case c;
    for (int j = 0; j < 150; j++) {
        c.time.push_back((double)(random() % 1000 + 1));
        c.weight.push_back((double)(random() % 1000));
        c.state.push_back((double)(random() % 1000));
        c.active.push_back((double)(random() % 10));
    }
    c.devices = 32;
    c.rate = 10;
    c.limit = 20000;
    const solution got = solve(c);
    ASSERT_EQ(got.status, CRL_STATUS_OK) << crl_error_message();
    EXPECT_LE(got.plan.devices, 32);
    EXPECT_LE(got.plan.peak_bytes, c.limit);
}
