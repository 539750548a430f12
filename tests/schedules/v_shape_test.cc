/* SPDX-License-Identifier: Apache-2.0 */
/* What the schedules on a V promise about memory and idle time [qi24]. */
#include "tests/schedules/schedules.h"

using namespace schedules;

namespace {

const crl_schedule *const v_shapes[] = {&crl_schedule_zb_v, &crl_schedule_v_half,
                                        &crl_schedule_v_min};

/* The most bytes that a position holds at a time, when a micro-batch's activations of a whole
 * position are 1 and stay until W. */
double memory_of(const crl_schedule &schedule, int positions, int chunks, int micro_batches) {
    toy::program_ptr program = build(schedule, {positions, positions * chunks, micro_batches});
    crl_stage_cost cost = unit_cost();
    cost.kept_bytes = cost.held_bytes = 1.0 / chunks;
    simulation_ptr simulation = simulate(program.get(), cost);
    double most = 0;
    for (int p = 0; simulation && p < positions; p++) {
        most = std::max(most, simulation->position[p].peak_bytes);
    }
    return most;
}

double makespan_of(const crl_schedule &schedule, int positions, int chunks, int micro_batches) {
    toy::program_ptr program = build(schedule, {positions, positions * chunks, micro_batches});
    simulation_ptr simulation = simulate(program.get(), unit_cost());
    return simulation ? simulation->makespan_s : 0;
}

} // namespace

TEST(SchedulesVShape, HoldsAThirdAHalfOrAllOf1f1b) {
    for (int p : {6, 16, 33, 48}) {
        const double whole = memory_of(crl_schedule_1f1b, p, 1, 3 * p);
        EXPECT_EQ(whole, p);
        EXPECT_LE(memory_of(crl_schedule_zb_v, p, 2, 3 * p), whole);
        EXPECT_LE(memory_of(crl_schedule_v_half, p, 2, 3 * p), whole / 2 + 1);
        EXPECT_GE(memory_of(crl_schedule_v_half, p, 2, 3 * p), whole / 2);
        EXPECT_LE(memory_of(crl_schedule_v_min, p, 2, 3 * p), whole / 3 + 1);
        EXPECT_GE(memory_of(crl_schedule_v_min, p, 2, 3 * p), whole / 3);
    }
}

TEST(SchedulesVShape, PositionsAreNeverIdleOnceFull) {
    for (const crl_schedule *schedule : v_shapes) {
        for (int p : {1, 2, 3, 4, 7, 12, 16}) {
            const double more =
                makespan_of(*schedule, p, 2, 5 * p) - makespan_of(*schedule, p, 2, 4 * p);
            EXPECT_EQ(more, 6 * p) << schedule->name << " P=" << p;
        }
    }
}

TEST(SchedulesVShape, IdlesLessThan1f1b) {
    for (int p : {2, 3, 4, 8, 16}) {
        const int m = 4 * p;
        const double full = 6 * m, idle = 2 * makespan_of(crl_schedule_1f1b, p, 1, m) - full;
        EXPECT_LE(makespan_of(crl_schedule_v_min, p, 2, m) - full, 2 * idle / 3);
        EXPECT_LE(makespan_of(crl_schedule_v_half, p, 2, m) - full, idle / 2);
        EXPECT_LE(makespan_of(crl_schedule_zb_v, p, 2, m) - full, idle / 4);
        EXPECT_LE(makespan_of(crl_schedule_dualpipe_v, p, 2, m) - full, idle / 6);
    }
}

TEST(SchedulesVShape, PeaksAreReached) {
    for (const crl_schedule *schedule : v_shapes) {
        for (int p : {1, 2, 3, 6, 8, 13}) {
            const crl_schedule_request request = {p, 2 * p, 4 * p};
            const std::vector<int> held = peaks(build(*schedule, request).get());
            for (int s = 0; s < 2 * p; s++) {
                EXPECT_EQ(held[(size_t)s], schedule->peak_activations(&request, s))
                    << schedule->name << " " << label(request) << " stage " << s;
            }
        }
    }
}

TEST(SchedulesVShape, CostsOfTheRequestAreMadeUseOf) {
    crl_stage_cost uneven = {};
    uneven.forward_s = 9, uneven.input_s = 9, uneven.weight_s = 5;
    for (const crl_schedule *schedule : {&crl_schedule_zb_v, &crl_schedule_v_half}) {
        for (int p : {4, 8}) {
            const std::vector<crl_stage_cost> cost((size_t)p * 2, uneven);
            crl_schedule_request request = {p, 2 * p, 8 * p};
            toy::program_ptr blind = build(*schedule, request);
            request.cost = cost.data();
            toy::program_ptr aware = build(*schedule, request);
            simulation_ptr slow = simulate(blind.get(), uneven);
            simulation_ptr fast = simulate(aware.get(), uneven);
            ASSERT_TRUE(slow && fast);
            EXPECT_LT(fast->bubble, 0.75 * slow->bubble) << schedule->name << " P=" << p;
            const std::vector<int> held = peaks(aware.get());
            for (int s = 0; s < 2 * p; s++) {
                EXPECT_LE(held[(size_t)s], schedule->peak_activations(&request, s));
            }
        }
    }
}
