/* SPDX-License-Identifier: Apache-2.0 */
/* Groups of any size. */
#include "tests/schedules/schedules.h"

using namespace schedules;

TEST(SchedulesInterleaved, GroupsOfAnySizeKeepTheirBubbleAndPeak) {
    int exact = 0;
    for (int p = 1; p <= 6; p++) {
        for (int v = 2; v <= 3; v++) {
            for (int group = 1; group <= 2 * p + 2; group++) {
                for (int m = 1; m <= 26; m++) {
                    crl_schedule_request request = {p, p * v, m};
                    request.group = group;
                    toy::program_ptr program = build(crl_schedule_interleaved, request);
                    ASSERT_TRUE(program);
                    simulation_ptr simulation = simulate(program.get(), unit_cost());
                    ASSERT_TRUE(simulation) << label(request);
                    const double bubble = crl_schedule_interleaved.bubble(&request);
                    ASSERT_LE(simulation->bubble, bubble + 1e-9) << label(request);
                    if (crl_schedule_interleaved.exact(&request)) {
                        ASSERT_NEAR(simulation->bubble, bubble, 1e-9) << label(request);
                        exact++;
                    }
                    const std::vector<int> held = peaks(program.get());
                    for (int s = 0; s < p * v; s++) {
                        ASSERT_EQ(held[(size_t)s],
                                  crl_schedule_interleaved.peak_activations(&request, s))
                            << label(request) << " stage " << s;
                    }
                }
            }
        }
    }
    EXPECT_GT(exact, 500);
}

TEST(SchedulesInterleaved, NoGroupMeansOneMicroBatchPerPosition) {
    crl_schedule_request request = {4, 12, 10};
    const std::string silent = toy::write(build(crl_schedule_interleaved, request), false);
    request.group = 4;
    EXPECT_EQ(silent, toy::write(build(crl_schedule_interleaved, request), false));
    request.group = 5;
    EXPECT_NE(silent, toy::write(build(crl_schedule_interleaved, request), false));
}

TEST(SchedulesInterleaved, LargerGroupsHideMessages) {
    double makespan[2];
    for (int i = 0; i < 2; i++) {
        crl_schedule_request request = {4, 8, 48};
        request.group = i == 0 ? 4 : 8;
        toy::program_ptr program = build(crl_schedule_interleaved, request);
        simulation_ptr simulation = simulate(program.get(), unit_cost(), 0.25);
        ASSERT_TRUE(simulation);
        makespan[i] = simulation->makespan_s;
    }
    EXPECT_LT(makespan[1], makespan[0]);
}
