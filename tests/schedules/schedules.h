/* SPDX-License-Identifier: Apache-2.0 */
/* The registry of schedules, and what its tests measure of a program. */
#pragma once

#include "tests/ir/toy_model.h"

#include "engine/ir/simulate.h"

#include <algorithm>
#include <cmath>

#define CRL_SCHEDULE(name) extern "C" const crl_schedule crl_schedule_##name;
#include "schedules/schedules.def"
#undef CRL_SCHEDULE

namespace schedules {

const crl_schedule *const all[] = {
#define CRL_SCHEDULE(name) &crl_schedule_##name,
#include "schedules/schedules.def"
#undef CRL_SCHEDULE
};

struct free_simulation {
    void operator()(crl_simulation *item) const { crl_simulation_destroy(item); }
};
using simulation_ptr = std::unique_ptr<crl_simulation, free_simulation>;

inline std::string label(const crl_schedule_request &request) {
    std::string text =
        "P=" + std::to_string(request.positions) + " S=" + std::to_string(request.stages) +
        " M=" + std::to_string(request.micro_batches) + " group=" + std::to_string(request.group);
    for (int p = 0; request.widths && p < request.positions; p++) {
        text += (p ? "," : " widths ") + std::to_string(request.widths[p]);
    }
    return text;
}

/* Null when it fails, and the test with it. */
inline toy::program_ptr build(const crl_schedule &schedule, const crl_schedule_request &request) {
    crl_program *out = nullptr;
    EXPECT_EQ(schedule.build(&out, &request), CRL_STATUS_OK)
        << schedule.name << " " << label(request) << ": " << crl_error_message();
    return toy::program_ptr(out);
}

/* Splits every position's micro-batches evenly among its replicas. */
inline void deal(crl_program *program, const crl_schedule_request &request) {
    std::vector<int> first_row(1, 0);
    std::vector<crl_range> range;
    for (int p = 0; p < request.positions; p++) {
        const int width = request.widths[p], m = request.micro_batches;
        for (int r = 0; r < width; r++) {
            range.push_back({r * m / width, (r + 1) * m / width});
        }
        first_row.push_back((int)range.size());
    }
    EXPECT_EQ(crl_program_deal(program, first_row.data(), range.data()), CRL_STATUS_OK)
        << label(request) << ": " << crl_error_message();
}

/* Null when the program is refused, and the test fails. `latency_s` is that of all messages. */
inline simulation_ptr simulate(const crl_program *program, const crl_stage_cost &cost,
                               double latency_s = 0) {
    const std::vector<crl_stage_cost> stage((size_t)program->stages, cost);
    crl_simulation_config config = {};
    config.stage = stage.data();
    config.link.latency_s = latency_s;
    crl_simulation *out = nullptr;
    EXPECT_EQ(crl_simulate(&out, program, &config), CRL_STATUS_OK) << crl_error_message();
    return simulation_ptr(out);
}

/* What the declared figures count with. */
inline crl_stage_cost unit_cost() {
    crl_stage_cost cost = {};
    cost.forward_s = cost.input_s = cost.weight_s = 1;
    return cost;
}

/* (S) the most micro-batches that a list holds of each stage from F to I or B. */
inline std::vector<int> peaks(const crl_program *program) {
    std::vector<int> peak((size_t)program->stages, 0);
    for (int p = 0; p < program->positions; p++) {
        std::vector<int> held(peak.size(), 0);
        for (int i = 0; i < program->position[p].count; i++) {
            const crl_action &action = program->position[p].action[i];
            const size_t stage = (size_t)action.stage;
            held[stage] +=
                action.kind == CRL_ACTION_FORWARD ? 1 : -(action.kind != CRL_ACTION_WEIGHT);
            peak[stage] = std::max(peak[stage], held[stage]);
        }
    }
    return peak;
}

/* The most that a position holds of all its stages from F to the end of backward: W or B. */
inline int most_held(const crl_program *program, int position) {
    int held = 0, most = 0;
    for (int i = 0; i < program->position[position].count; i++) {
        const crl_action_kind kind = program->position[position].action[i].kind;
        held += kind == CRL_ACTION_FORWARD ? 1 : -(kind != CRL_ACTION_INPUT);
        most = std::max(most, held);
    }
    return most;
}

/* From the first start to the last end of computing on one position, the longest. */
inline double span_of_compute(const crl_program *program, const crl_simulation *simulation) {
    double longest = 0;
    for (int p = 0; p < program->positions; p++) {
        double first = INFINITY, last = 0;
        for (int i = 0; i < program->position[p].count; i++) {
            if (program->position[p].action[i].kind <= CRL_ACTION_WEIGHT) {
                first = std::min(first, simulation->start_s[p][i]);
                last = std::max(last, simulation->end_s[p][i]);
            }
        }
        longest = std::max(longest, last - first);
    }
    return longest;
}

} // namespace schedules
