/* SPDX-License-Identifier: Apache-2.0 */
/* What zb-h1 and zb-h2 cost in time and memory [qi23]. */
#include "tests/schedules/schedules.h"

using namespace schedules;

namespace {

/* F, I and W that differ, W the shortest. */
crl_stage_cost uneven_cost() {
    crl_stage_cost cost = {};
    cost.forward_s = 7, cost.input_s = 6, cost.weight_s = 4;
    return cost;
}

double step_of(const crl_schedule &schedule, int positions, int micro_batches) {
    toy::program_ptr program = build(schedule, {positions, positions, micro_batches});
    simulation_ptr simulation = simulate(program.get(), uneven_cost());
    return simulation ? span_of_compute(program.get(), simulation.get()) : 0;
}

} // namespace

TEST(SchedulesZeroBubble, StepsTakeWhatTheCostCardSays) {
    for (int p : {1, 2, 4, 8}) {
        for (int m : {2 * p, 3 * p, 40}) {
            EXPECT_EQ(step_of(crl_schedule_1f1b, p, m), 17 * m + (p - 1) * 17);
            EXPECT_EQ(step_of(crl_schedule_zb_h1, p, m), 17 * m + (p - 1) * (7 + 6 - 4));
            EXPECT_EQ(step_of(crl_schedule_zb_h2, p, m), 17 * m + (p - 1) * (7 + 6 - 2 * 4));
        }
    }
}

TEST(SchedulesZeroBubble, HoldsOnceAndTwiceWhat1f1bDoes) {
    for (int p : {2, 5, 16}) {
        for (int m : {1, p, 3 * p}) {
            const crl_schedule_request request = {p, p, m};
            toy::program_ptr h1 = build(crl_schedule_zb_h1, request);
            toy::program_ptr h2 = build(crl_schedule_zb_h2, request);
            for (int s = 0; s < p; s++) {
                EXPECT_EQ(most_held(h1.get(), s), std::min(p, m)) << label(request) << " " << s;
                EXPECT_EQ(most_held(h2.get(), s), std::min(2 * p - 1, m)) << label(request);
            }
        }
    }
}
