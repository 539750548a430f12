/* SPDX-License-Identifier: Apache-2.0 */
#include "partition/search.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <functional>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "engine/base/alloc.h"

#define CRL_SCHEDULE(x) extern "C" const crl_schedule crl_schedule_##x;
#include "schedules/schedules.def"
#undef CRL_SCHEDULE

namespace {

const void *const some_schedules[] = {&crl_schedule_gpipe, &crl_schedule_1f1b,
                                      &crl_schedule_interleaved, nullptr};

struct freed {
    void operator()(crl_profile *profile) const { crl_profile_destroy(profile); }
    void operator()(crl_search *search) const { crl_search_destroy(search); }
};
using profile_ptr = std::unique_ptr<crl_profile, freed>;
using search_ptr = std::unique_ptr<crl_search, freed>;

crl_machine machine_of(int nodes, int devices) {
    crl_machine machine = {};
    machine.name = "test";
    machine.nodes = nodes;
    machine.devices_per_node = devices;
    machine.peak_flops_per_s = 1e12;
    machine.efficiency = 1;
    machine.memory_bytes_per_s = 1e12;
    machine.within = {1e-6, 1e10};
    machine.between = {1e-5, 1e9};
    return machine;
}

/* Times and bytes of `base` for micro-batches of `size` samples: a fixed part and one per sample.
 */
profile_ptr random_profile(unsigned seed, int units, int64_t size) {
    std::mt19937 random(seed);
    auto pick = [&](int low, int high) {
        return std::uniform_int_distribution<int>(low, high)(random);
    };
    crl_profile *profile = nullptr;
    EXPECT_EQ(crl_profile_create(&profile, units), CRL_STATUS_OK);
    profile->micro_batch = size;
    const auto n = (double)size;
    for (int u = 0; u < units; u++) {
        const int before = u - 1;
        EXPECT_EQ(
            crl_profile_name_unit(profile, u, ("u" + std::to_string(u)).c_str(), u > 0, &before),
            CRL_STATUS_OK);
        crl_profile_unit *unit = &profile->unit[u];
        unit->forward_s = 1e-3 * (0.3 + 0.1 * pick(1, 20) * n);
        unit->input_s = unit->forward_s * 0.1 * pick(8, 14);
        unit->weight_s = unit->forward_s * 0.1 * pick(5, 12);
        unit->recompute_s[1] = 0.1 * unit->forward_s;
        unit->recompute_s[2] = unit->forward_s;
        unit->kept_bytes[0] = 1e6 * pick(5, 50) * n;
        unit->kept_bytes[1] = 0.5 * unit->kept_bytes[0];
        unit->kept_bytes[2] = 0.1 * unit->kept_bytes[0];
        unit->parameter_bytes = 1e6 * pick(1, 20);
        unit->state_bytes = 4 * unit->parameter_bytes;
        unit->output_bytes = 1e5 * pick(1, 10) * n;
        unit->update_s = 1e-5;
    }
    EXPECT_EQ(crl_profile_check(profile), CRL_STATUS_OK) << crl_error_message();
    return profile_ptr(profile);
}

struct search_case {
    crl_machine machine = machine_of(1, 4);
    std::vector<profile_ptr> profiles;
    std::vector<const crl_profile *> list;
    crl_search_request request = {};

    search_case(unsigned seed, int units, const std::vector<int64_t> &sizes) {
        for (const int64_t size : sizes) {
            profiles.push_back(random_profile(seed, units, size));
            list.push_back(profiles.back().get());
        }
        request.profile = list.data();
        request.profiles = (int)list.size();
        request.machine = &machine;
        request.predict = crl_predict;
        request.schedules = some_schedules;
        request.devices = 4;
        request.global_batch = 16;
    }
    search_ptr search() const {
        crl_search *out = nullptr;
        const crl_status status = crl_search_layouts(&out, &request);
        EXPECT_EQ(status == CRL_STATUS_OK, out != nullptr);
        return search_ptr(out);
    }
};

/* Every layout with equal widths, any cuts, one mode for all. */
void every_layout(const search_case &c,
                  const std::function<void(const crl_hybrid &, const crl_profile &)> &visit) {
    const int devices = c.request.devices, units = c.list[0]->units;
    for (const crl_profile *profile : c.list) {
        const int micro_batches =
            (int)((c.request.global_batch + profile->micro_batch - 1) / profile->micro_batch);
        for (int positions = 1; positions <= devices && positions <= units; positions++) {
            for (int i = 0; devices % positions == 0 && some_schedules[i]; i++) {
                const auto *schedule = static_cast<const crl_schedule *>(some_schedules[i]);
                for (unsigned mask = 0; mask < 1u << (units - 1); mask++) {
                    std::vector<int> first(1, 0);
                    for (int u = 1; u < units; u++) {
                        if (mask & 1u << (u - 1)) {
                            first.push_back(u);
                        }
                    }
                    const int stages = (int)first.size(), each = stages / positions;
                    const int data = devices / positions;
                    int lanes = 1;
                    while (lanes < data) {
                        lanes *= 2;
                    }
                    if (stages % positions != 0 || each < schedule->least_virtual ||
                        (schedule->most_virtual > 0 && each > schedule->most_virtual) ||
                        lanes > micro_batches || (positions == 1 && each > 1)) {
                        continue;
                    }
                    for (unsigned char mode = 0; mode < CRL_RECOMPUTES; mode++) {
                        const std::vector<unsigned char> recompute((size_t)stages, mode);
                        crl_hybrid layout = {};
                        layout.tensor = 1;
                        layout.pipelines = data;
                        layout.positions = positions;
                        layout.stages = stages;
                        layout.first = first.data();
                        layout.recompute = recompute.data();
                        layout.schedule = schedule;
                        layout.micro_batches = micro_batches;
                        layout.lanes = crl_search_lanes(micro_batches, 1, &data);
                        visit(layout, *profile);
                    }
                }
            }
        }
    }
}

void expect_sound(const search_case &c, const crl_search &search) {
    const double limit = c.request.memory_limit_bytes;
    ASSERT_GT(search.count, 0);
    for (int i = 0; i < search.count + search.refused; i++) {
        const crl_found &found = search.found[i];
        const crl_hybrid &layout = found.layout;
        crl_prediction again = {};
        std::vector<double> bytes((size_t)layout.positions);
        ASSERT_EQ(crl_predict(&again, bytes.data(), &layout, found.profile, &c.machine),
                  CRL_STATUS_OK);
        EXPECT_EQ(again.step_s, found.prediction.step_s);
        EXPECT_EQ(bytes, std::vector<double>(found.position_bytes,
                                             found.position_bytes + layout.positions));
        int devices = 0;
        std::vector<int> widths;
        for (int p = 0; p < layout.positions; p++) {
            widths.push_back(layout.pipelines * (layout.widths ? layout.widths[p] : 1));
            devices += widths.back();
        }
        EXPECT_EQ(devices, c.request.devices);
        EXPECT_EQ(layout.lanes,
                  crl_search_lanes(layout.micro_batches, layout.positions, widths.data()));
        EXPECT_EQ(layout.lanes & (layout.lanes - 1), 0);
        EXPECT_EQ(found.fits, i < search.count);
        EXPECT_EQ(found.fits, limit == 0 || found.prediction.peak_bytes <= limit);
        EXPECT_EQ(found.why[0] == '\0', i == 0) << found.why;
        if (i > 0 && i < search.count) {
            EXPECT_GE(found.prediction.step_s, search.found[i - 1].prediction.step_s);
        }
        if (i >= search.count) {
            EXPECT_LT(found.prediction.step_s, search.found[0].prediction.step_s);
        }
    }
}

} // namespace

TEST(PartitionSearch, FindsWhatExhaustiveSearchFinds) {
    const int cases = 150;
    int exact = 0, limited = 0;
    for (unsigned seed = 0; seed < cases; seed++) {
        SCOPED_TRACE("seed " + std::to_string(seed));
        std::mt19937 random(seed);
        search_case c(seed, 3 + (int)(random() % 4), {1, 2});
        c.request.devices = 2 + (int)(random() % 3);
        c.request.global_batch = 4 + (int)(random() % 5);
        c.request.equal_widths = true;
        if (random() % 2) {
            c.request.memory_limit_bytes = 1e6 * (double)(100 + random() % 500);
        }
        const double limit =
            c.request.memory_limit_bytes > 0 ? c.request.memory_limit_bytes : INFINITY;
        double best = INFINITY;
        every_layout(c, [&](const crl_hybrid &layout, const crl_profile &profile) {
            crl_prediction p = {};
            ASSERT_EQ(crl_predict(&p, nullptr, &layout, &profile, &c.machine), CRL_STATUS_OK)
                << crl_error_message();
            best = p.peak_bytes <= limit ? std::min(best, p.step_s) : best;
        });
        const search_ptr search = c.search();
        if (!search) {
            EXPECT_TRUE(std::isinf(best)) << crl_error_message();
            continue;
        }
        expect_sound(c, *search);
        limited += c.request.memory_limit_bytes > 0;
        const double got = search->found[0].prediction.step_s;
        EXPECT_LE(got, best * 1.05);
        exact += got <= best * (1 + 1e-12);
    }
    EXPECT_GE(exact, cases * 9 / 10);
    EXPECT_GT(limited, 5);
}

TEST(PartitionSearch, GivesTheSameAnswerTwice) {
    search_case c(3, 12, {1, 2, 4});
    c.machine = machine_of(2, 3);
    c.request.devices = 6;
    c.request.global_batch = 24;
    const search_ptr one = c.search(), two = c.search();
    ASSERT_TRUE(one && two);
    ASSERT_EQ(one->count, CRL_SEARCH_KEEPS);
    ASSERT_EQ(two->count, one->count);
    for (int i = 0; i < one->count; i++) {
        const crl_hybrid &a = one->found[i].layout, &b = two->found[i].layout;
        EXPECT_EQ(one->found[i].prediction.step_s, two->found[i].prediction.step_s);
        EXPECT_EQ(a.schedule, b.schedule);
        EXPECT_EQ(std::vector<int>(a.first, a.first + a.stages),
                  std::vector<int>(b.first, b.first + b.stages));
        EXPECT_STREQ(one->found[i].why, two->found[i].why);
    }
    expect_sound(c, *one);
}

TEST(PartitionSearch, WidensWhereOneLayerTakesMost) {
    search_case c(1, 4, {1});
    c.machine.within = {0, 1e13};
    crl_profile *profile = c.profiles[0].get();
    for (int u = 0; u < 4; u++) {
        crl_profile_unit *unit = &profile->unit[u];
        unit->forward_s = unit->input_s = unit->weight_s = u == 0 ? 3e-3 : 1e-3 / 3;
        unit->state_bytes = u == 0 ? 1e6 : 1e9; /* the whole on one device is too much */
        unit->parameter_bytes = 1e3;
        unit->output_bytes = 1e3;
        unit->kept_bytes[0] = unit->kept_bytes[1] = unit->kept_bytes[2] = 0;
    }
    c.request.global_batch = 96;
    c.request.memory_limit_bytes = 3.1e9;
    c.request.positions = 2;
    const search_ptr search = c.search();
    ASSERT_TRUE(search) << crl_error_message();
    const crl_hybrid &best = search->found[0].layout;
    ASSERT_TRUE(best.widths);
    EXPECT_EQ(std::vector<int>(best.widths, best.widths + 2), (std::vector<int>{3, 1}));
    EXPECT_EQ(best.first[1], 1);
    EXPECT_GE(best.lanes, 4);
    expect_sound(c, *search);
}

TEST(PartitionSearch, RecomputesOnlyWhereMemoryIsOver) {
    search_case c(1, 2, {1});
    crl_profile *profile = c.profiles[0].get();
    for (int u = 0; u < 2; u++) {
        crl_profile_unit *unit = &profile->unit[u];
        unit->forward_s = unit->input_s = unit->weight_s = 1e-3;
        unit->recompute_s[1] = 1e-5;
        unit->recompute_s[2] = 1e-3;
        unit->kept_bytes[0] = u == 0 ? 1e8 : 1e6;
        unit->kept_bytes[1] = unit->kept_bytes[0] / 2;
        unit->kept_bytes[2] = 0;
        unit->state_bytes = unit->parameter_bytes = 1e3;
        unit->workspace_bytes = 0;
        unit->output_bytes = 1e3;
    }
    c.request.devices = c.request.positions = 2;
    c.request.schedule = "1f1b";
    c.request.memory_limit_bytes = 1.5e8; /* position 0 keeps two micro-batches: 2e8, 1e8, 0 */
    const search_ptr search = c.search();
    ASSERT_TRUE(search) << crl_error_message();
    const crl_hybrid &best = search->found[0].layout;
    EXPECT_EQ(best.recompute[0], CRL_RECOMPUTE_SELECTIVE);
    EXPECT_EQ(best.recompute[1], CRL_RECOMPUTE_NONE);
    expect_sound(c, *search);
    EXPECT_GT(search->refused, 0);
}

TEST(PartitionSearch, KeepsWhatIsPinned) {
    search_case c(5, 8, {1, 2});
    c.request.schedule = "interleaved";
    c.request.positions = 2;
    c.request.virtual_stages = 3;
    c.request.lanes = 8;
    c.request.recompute = 1 + CRL_RECOMPUTE_FULL;
    const search_ptr search = c.search();
    ASSERT_TRUE(search) << crl_error_message();
    for (int i = 0; i < search->count; i++) {
        const crl_hybrid &layout = search->found[i].layout;
        EXPECT_STREQ(layout.schedule->name, "interleaved");
        EXPECT_EQ(layout.positions, 2);
        EXPECT_EQ(layout.stages, 6);
        EXPECT_EQ(layout.lanes, 8);
        EXPECT_EQ(layout.recompute[0], CRL_RECOMPUTE_FULL);
    }
}

TEST(PartitionSearch, SaysWhatWouldFit) {
    search_case c(7, 6, {1});
    c.request.memory_limit_bytes = 1e6;
    EXPECT_FALSE(c.search());
    const std::string tight = crl_error_message();
    EXPECT_NE(tight.find("plan: no layout of 4 devices fits in 977 KiB (1000000 bytes) each, "
                         "the least that would do is "),
              std::string::npos)
        << tight;
    EXPECT_NE(tight.find("recompute full"), std::string::npos) << tight;
    /* What it says would do, does. */
    const size_t open = tight.find('(', tight.find("would do")) + 1;
    c.request.memory_limit_bytes = std::stod(tight.substr(open));
    EXPECT_TRUE(c.search()) << crl_error_message();
}

TEST(PartitionSearch, SaysWhichDevicesCanBeUsed) {
    search_case c(7, 3, {1});
    c.request.global_batch = 4;
    c.request.devices = 13;
    EXPECT_FALSE(c.search());
    EXPECT_STREQ(crl_error_message(), "plan: 13 devices, machine test has 1 x 4");
    c.machine = machine_of(4, 4);
    EXPECT_FALSE(c.search());
    EXPECT_STREQ(crl_error_message(),
                 "plan: no layout uses 13 devices: 3 units and 4 micro-batches of 1 samples do "
                 "not suit them with what is given; 12 devices can be used");
    c.request.devices = 0;
    EXPECT_FALSE(c.search());
    c.request.devices = 4;
    c.request.lanes = 3;
    EXPECT_FALSE(c.search());
    EXPECT_STREQ(crl_error_message(), "plan: 3 lanes, expected a power of two");
}

TEST(PartitionSearch, TakesTheFewestLanesThatAreEven) {
    for (int micro_batches = 1; micro_batches <= 40; micro_batches++) {
        for (int width = 1; width <= micro_batches && width <= 9; width++) {
            for (int other = 1; other <= width; other++) {
                const int widths[] = {width, other};
                const int lanes = crl_search_lanes(micro_batches, 2, widths);
                ASSERT_GE(lanes, width);
                ASSERT_EQ(lanes & (lanes - 1), 0);
                auto uneven = [&](int l) {
                    return std::max(width * crl_search_most_micro_batches(micro_batches, l, width),
                                    other * crl_search_most_micro_batches(micro_batches, l, other));
                };
                for (int l = 1; l <= 1024; l *= 2) {
                    if (l >= width && (l <= micro_batches || l < 2 * width)) {
                        ASSERT_GE(uneven(l), uneven(lanes));
                        ASSERT_TRUE(l >= lanes || uneven(l) > uneven(lanes));
                    }
                }
            }
        }
    }
}

TEST(PartitionSearch, SurvivesEveryFailedAllocation) {
    search_case c(9, 4, {1});
    c.request.devices = 3;
    c.request.global_batch = 3;
    c.request.schedule = "1f1b";
    for (int64_t n = 1;; n++) {
        crl_alloc_watch watch = {};
        crl_alloc_attach(&watch);
        watch.fail_at = n;
        crl_search *search = nullptr;
        const crl_status status = crl_search_layouts(&search, &c.request);
        const bool done = watch.fail_at > 0;
        crl_search_destroy(search);
        crl_alloc_attach(nullptr);
        EXPECT_EQ(watch.live_bytes, 0);
        ASSERT_EQ(status, done ? CRL_STATUS_OK : CRL_STATUS_NOMEM);
        if (done) {
            break;
        }
    }
}
