/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Published makespans of the hand-made schedules [qi23]. They time a step of a position from its
 * first start to its last end, on whichever position that is longest: steps in a row overlap by the
 * rest. A message takes Tcomm between two positions.
 */
#include "tests/schedules/figures.h"

using namespace schedules;

namespace {

/* A line of dense layers, one to a stage, without skips. */
toy::graph_ptr line_of(int stages) {
    toy::model_ptr list = toy::model();
    toy::add(list, toy::desc("source", "x"));
    for (int i = 0; i < stages; i++) {
        toy::add(list, toy::dense(crl_model_text(list.get(), "d%d", i), 8));
    }
    toy::add(list, toy::desc("loss", "loss"));
    crl_graph *out = nullptr;
    EXPECT_EQ(crl_graph_build(&out, list.get(), toy::registry(), 2, nullptr), CRL_STATUS_OK);
    return toy::graph_ptr(out);
}

/* The span of a step in us, with the messages as the executor sends them. */
double timed(const crl_schedule &schedule, const figure &row, int chunks) {
    const int stages = row.positions * chunks;
    toy::graph_ptr graph = line_of(stages);
    toy::plan_ptr plan = toy::even_plan(graph, row.positions, stages);
    toy::program_ptr program = build(schedule, {row.positions, stages, row.micro_batches});
    EXPECT_EQ(crl_program_add_messages(program.get(), plan.get(), 2, false), CRL_STATUS_OK);
    crl_stage_cost cost = {};
    cost.forward_s = row.forward / chunks, cost.input_s = row.input / chunks,
    cost.weight_s = row.weight / chunks;
    simulation_ptr simulation = simulate(program.get(), cost, row.message);
    return simulation ? span_of_compute(program.get(), simulation.get()) : 0;
}

/* Rows with bubbles alone, (makespan - ideal) / makespan to four digits: Table 5 of [qi23]. */
struct rate {
    int positions, micro_batches;
    double forward, input, weight, message, f1b1, h1, h2;
};
const rate rates[] = {{16, 48, 11347, 11248, 8132, 377, 0.2552, 0.1397, 0.0672},
                      {16, 128, 11325, 11308, 8109, 378, 0.1251, 0.0576, 0.0266},
                      {32, 96, 10419, 10207, 7715, 408, 0.2646, 0.1421, 0.0641},
                      {32, 256, 10402, 10248, 7698, 460, 0.1352, 0.0594, 0.0257}};

} // namespace

TEST(SchedulesFigures, MakespansArePublishedOnes) {
    const std::string path = CRL_SOURCE_DIR "/../shared/figures/zero_bubble_makespans.csv";
    if (!std::ifstream(path)) {
        GTEST_SKIP() << path << " is not there";
    }
    int compared = 0;
    for (const figure &row : read_figures(path)) {
        const bool plain = row.schedule.rfind("1F1B", 0) == 0;
        const bool interleaved = row.schedule.rfind("1F1B-I", 0) == 0;
        const std::string where = row.schedule + " p=" + std::to_string(row.positions) +
                                  " m=" + std::to_string(row.micro_batches);
        double makespan = 0;
        if (interleaved) {
            /* The published one makes only the first micro-batch of a group wait for its way from
             * the last position back to the first (and gradients likewise). Leaving the waits of
             * the others out of the timing gives its makespans; with them it is P Tcomm more. */
            const int chunks = std::stoi(row.schedule.substr(row.schedule.find('=') + 1));
            makespan = timed(crl_schedule_interleaved, row, chunks) - row.positions * row.message;
        } else if (plain) {
            makespan = timed(crl_schedule_1f1b, row, 1);
        } else if (row.schedule == "ZB-H1") {
            makespan = timed(crl_schedule_zb_h1, row, 1);
        } else if (row.schedule == "ZB-H2") {
            makespan = timed(crl_schedule_zb_h2, row, 1);
        } else {
            continue;
        }
        EXPECT_NEAR(makespan, row.makespan, 1) << where;
        compared++;
    }
    EXPECT_GT(compared, 20);
}

TEST(SchedulesFigures, BubblesOfDeeperPipelinesArePublishedOnes) {
    for (const rate &row : rates) {
        const figure sizes = {row.positions, row.micro_batches, row.forward,
                              row.input,     row.weight,        row.message};
        const double ideal = row.micro_batches * (row.forward + row.input + row.weight);
        EXPECT_NEAR(1 - ideal / timed(crl_schedule_1f1b, sizes, 1), row.f1b1, 5e-5);
        EXPECT_NEAR(1 - ideal / timed(crl_schedule_zb_h1, sizes, 1), row.h1, 5e-5);
        EXPECT_NEAR(1 - ideal / timed(crl_schedule_zb_h2, sizes, 1), row.h2, 5e-5);
    }
}
