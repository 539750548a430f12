/* SPDX-License-Identifier: Apache-2.0 */
/* Requests whose arrays live as long as they do, and every possible cut for comparison. */
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <random>
#include <string>
#include <vector>

#include "engine/ir/partitioner.h"

#define CRL_PARTITIONER(name) extern "C" const crl_partitioner crl_partitioner_##name;
#include "partition/partitioners.def"
#undef CRL_PARTITIONER

struct partition_case {
    std::vector<double> time, state, active, boundary;
    std::vector<unsigned char> may_cut; /* empty: everywhere */
    int stages = 1;
    bool fewer = false;
    double limit = 0;
    std::vector<const char *> names, cuts;
    std::vector<int> in_flight; // empty: stages to the end
    std::vector<int> widths;    // empty: 1 each

    crl_partition_request request() const {
        crl_partition_request out = {};
        out.units = (int)time.size();
        out.compute_s = time.data();
        out.state_bytes = state.empty() ? nullptr : state.data();
        out.activation_bytes = active.empty() ? nullptr : active.data();
        out.boundary_s = boundary.empty() ? nullptr : boundary.data();
        out.may_cut_before =
            may_cut.empty() ? nullptr : reinterpret_cast<const bool *>(may_cut.data());
        out.stages = stages;
        out.fewer_stages = fewer;
        out.memory_limit_bytes = limit;
        out.unit_name = names.empty() ? nullptr : names.data();
        out.in_flight = in_flight.empty() ? nullptr : in_flight.data();
        out.widths = widths.empty() ? nullptr : widths.data();
        out.cuts.count = (int)cuts.size();
        out.cuts.item = const_cast<const char **>(cuts.data());
        return out;
    }
    int units() const { return (int)time.size(); }
};

struct cut_figures {
    double bottleneck = 0, peak = 0, squares = 0;
};

inline cut_figures measure(const partition_case &c, const std::vector<int> &first) {
    cut_figures out;
    const int stages = (int)first.size();
    for (int s = 0; s < stages; s++) {
        const int last = s + 1 < stages ? first[s + 1] : c.units();
        double time = 0, state = 0, active = 0;
        for (int j = first[s]; j < last; j++) {
            time += c.time[j];
            state += c.state.empty() ? 0 : c.state[j];
            active += c.active.empty() ? 0 : c.active[j];
        }
        time = c.widths.empty() ? time : time / c.widths[(size_t)s];
        out.bottleneck = std::max(out.bottleneck, time);
        if (s > 0 && !c.boundary.empty()) {
            out.bottleneck = std::max(out.bottleneck, c.boundary[first[s] - 1]);
        }
        out.peak = std::max(out.peak,
                            state + active * (c.in_flight.empty() ? stages - s : c.in_flight[s]));
        out.squares += time * time;
    }
    return out;
}

/* Every allowed cut into at most c.stages stages (exactly so many unless `fewer`). */
inline void every_cut(const partition_case &c,
                      const std::function<void(const std::vector<int> &)> &visit) {
    for (unsigned mask = 0; mask < 1u << (c.units() - 1); mask++) {
        std::vector<int> first(1, 0);
        bool allowed = true;
        for (int j = 1; j < c.units(); j++) {
            if (mask & 1u << (j - 1)) {
                first.push_back(j);
                allowed = allowed && (c.may_cut.empty() || c.may_cut[j]);
            }
        }
        const int stages = (int)first.size();
        if (allowed && (stages == c.stages || (c.fewer && stages < c.stages))) {
            visit(first);
        }
    }
}

inline std::vector<int> firsts(const crl_partition &partition) {
    return std::vector<int>(partition.first, partition.first + partition.stages);
}

inline partition_case random_case(std::mt19937 &random) {
    auto pick = [&](int low, int high) {
        return std::uniform_int_distribution<int>(low, high)(random);
    };
    partition_case c;
    const int units = pick(1, 10);
    c.stages = pick(1, units);
    c.fewer = pick(0, 1) != 0;
    const bool restricted = pick(0, 2) == 0;
    for (int j = 0; j < units; j++) {
        c.time.push_back(pick(0, 4) == 0 ? 0 : pick(1, 9) * 0.1);
        c.state.push_back(pick(0, 20));
        c.active.push_back(pick(0, 5));
        c.boundary.push_back(pick(0, 9) * 0.2);
        if (restricted) {
            c.may_cut.push_back(pick(0, 2) != 0);
        }
    }
    if (pick(0, 1)) {
        c.limit = pick(5, 120);
    }
    for (int s = 0; !c.fewer && pick(0, 2) > 0 && s < c.stages; s++) {
        c.in_flight.resize((size_t)c.stages, 1);
        c.in_flight[(size_t)s] = pick(1, 6);
    }
    for (int s = 0; !c.fewer && pick(0, 1) > 0 && s < c.stages; s++) {
        c.widths.resize((size_t)c.stages, 1);
        c.widths[(size_t)s] = pick(1, 4);
    }
    return c;
}
