/* SPDX-License-Identifier: Apache-2.0 */
/* Replicas: a stage warms up for all that come after it. */
#include "tests/schedules/schedules.h"

using namespace schedules;

namespace {

/* Makespan when stage s takes as many units for each of F, I and W as it has replicas. */
double makespan_of(const std::vector<int> &widths, int micro_batches) {
    const int positions = (int)widths.size();
    const crl_schedule_request request = {positions, positions, micro_batches, widths.data()};
    toy::program_ptr program = build(crl_schedule_1f1b, request);
    deal(program.get(), request);
    std::vector<crl_stage_cost> cost;
    for (int width : widths) {
        crl_stage_cost one = {};
        one.forward_s = one.input_s = one.weight_s = width;
        cost.push_back(one);
    }
    crl_simulation_config config = {};
    config.stage = cost.data();
    crl_simulation *out = nullptr;
    EXPECT_EQ(crl_simulate(&out, program.get(), &config), CRL_STATUS_OK) << crl_error_message();
    const simulation_ptr simulation(out);
    return out ? out->makespan_s : 0;
}

} // namespace

TEST(Schedules1f1b, KeepsEveryReplicaBusy) {
    for (const std::vector<int> &widths :
         {std::vector<int>{3, 1}, {1, 3}, {2, 1, 1}, {1, 1, 1, 1}, {4, 1, 1}}) {
        double fill = 0;
        for (int width : widths) {
            fill += 3 * width;
        }
        /* All stages keep up with each other: what is left is to fill and to empty. */
        EXPECT_LE(makespan_of(widths, 72), 3 * 72 + fill) << widths.size() << " " << widths[0];
        EXPECT_EQ(makespan_of(widths, 96) - makespan_of(widths, 72), 3 * 24)
            << widths.size() << " " << widths[0];
    }
}

TEST(Schedules1f1b, AReplicaHoldsWhatComesAfterItSharedOut) {
    const int widths[] = {3, 1};
    const crl_schedule_request request = {2, 2, 12, widths};
    toy::program_ptr program = build(crl_schedule_1f1b, request);
    deal(program.get(), request);
    ASSERT_EQ(program->positions, 4);
    EXPECT_EQ(peaks(program.get())[0], 2);
    EXPECT_EQ(crl_schedule_1f1b.peak_activations(&request, 0), 2);
    EXPECT_EQ(peaks(program.get())[1], 1);
    EXPECT_EQ(crl_schedule_1f1b.peak_activations(&request, 1), 1);
}
