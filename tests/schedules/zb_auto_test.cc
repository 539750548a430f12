/* SPDX-License-Identifier: Apache-2.0 */
/*
 * zb-1p, zb-2p and auto on a V against the published makespans of schedules made for measured times
 * [qi23]: no longer, within the same memory, with the messages as the executor sends them.
 *
 * Published is the time of a position from its first start to its last end, of the longest one
 * (steps in a row overlap by the rest): ZB-1p's rows equal ZB-H1's, and those of ZB-2p are shorter
 * than any step can be from its first start anywhere to its last end.
 * Memory of a micro-batch, of h hidden and a heads at s = 1024: 34h + 5as until I, 32h until W.
 */
#include "tests/schedules/figures.h"

using namespace schedules;

namespace {

const char *const figures = CRL_SOURCE_DIR "/../shared/figures/zero_bubble_makespans.csv";

toy::program_ptr made_for(const crl_schedule &schedule, const figure &row, int chunks,
                          double limit) {
    const int stages = row.positions * chunks;
    const std::vector<crl_stage_cost> cost((size_t)stages, row.cost(chunks));
    crl_schedule_request request = {row.positions, stages, row.micro_batches};
    request.cost = cost.data();
    request.message_s = row.message;
    request.memory_limit_bytes = limit;
    return build(schedule, request);
}

/* Most bytes of a position: what its list has begun and not ended. */
double peak_bytes(const crl_program *program, const crl_stage_cost &cost) {
    double most = 0;
    for (int p = 0; p < program->positions; p++) {
        double now = 0;
        for (int i = 0; i < program->position[p].count; i++) {
            switch (program->position[p].action[i].kind) {
            case CRL_ACTION_FORWARD:
                now += cost.kept_bytes;
                break;
            case CRL_ACTION_INPUT:
                now += cost.held_bytes - cost.kept_bytes;
                break;
            default:
                now -= cost.held_bytes;
            }
            most = std::max(most, now);
        }
    }
    return most;
}

/* Dense layers, one to a stage, without skips. */
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

struct timing {
    double span, makespan;
};

timing timed(const crl_schedule &schedule, toy::program_ptr program, const figure &row,
             int chunks) {
    const int stages = row.positions * chunks;
    const crl_schedule_request request = {row.positions, stages, row.micro_batches};
    std::vector<int> first(1, 0), position;
    for (int s = 0; s < stages; s++) {
        position.push_back(crl_schedule_position(&schedule, &request, s));
        if (s > 0) {
            first.push_back(s + 1);
        }
    }
    toy::graph_ptr graph = line_of(stages);
    toy::plan_ptr plan = toy::plan(graph, row.positions, first, position);
    EXPECT_EQ(crl_program_add_messages(program.get(), plan.get(), 2, false), CRL_STATUS_OK);
    simulation_ptr simulation = simulate(program.get(), row.cost(chunks), row.message);
    return {span_of_compute(program.get(), simulation.get()), simulation->makespan_s};
}

} // namespace

TEST(SchedulesZbAuto, IsNoLongerThanPublished) {
    if (!std::ifstream(figures)) {
        GTEST_SKIP() << figures << " is not there";
    }
    int compared = 0;
    for (const figure &row : read_figures(figures)) {
        const int chunks = row.is("ZB-V") ? 2 : 1;
        if (!row.is("ZB-1p") && !row.is("ZB-2p") && !row.is("ZB-V")) {
            continue;
        }
        const crl_schedule &schedule = row.is("ZB-V")    ? crl_schedule_auto
                                       : row.is("ZB-1p") ? crl_schedule_zb_1p
                                                         : crl_schedule_zb_2p;
        const std::string where = row.schedule + " p=" + std::to_string(row.positions) +
                                  " m=" + std::to_string(row.micro_batches);
        toy::program_ptr program = made_for(schedule, row, chunks, row.limit());
        ASSERT_TRUE(program) << where;
        EXPECT_LE(peak_bytes(program.get(), row.cost(chunks)), row.limit() * (1 + 1e-9)) << where;
        const timing made = timed(schedule, std::move(program), row, chunks);
        EXPECT_LE(made.span, row.makespan + 1e-3) << where;
        if (row.is("ZB-1p")) { /* no barrier would be shorter either */
            EXPECT_LE(made.makespan, row.makespan + 1e-3) << where;
        }
        compared++;
    }
    EXPECT_GE(compared, 12);
}

TEST(SchedulesZbAuto, ItsOwnLimitIsThePublishedOne) {
    const figure row = {8, 24, 18522, 18086, 9337, 601, 2304, 24, "", 0};
    for (const auto &[schedule, pipelines] :
         {std::pair(&crl_schedule_zb_1p, 1), std::pair(&crl_schedule_zb_2p, 2)}) {
        toy::program_ptr own = made_for(*schedule, row, 1, 0);
        toy::program_ptr given = made_for(*schedule, row, 1, pipelines * row.limit());
        const double own_bytes = peak_bytes(own.get(), row.cost(1));
        EXPECT_LE(own_bytes, pipelines * row.limit() * (1 + 1e-9));
        EXPECT_GT(own_bytes, (pipelines - 0.5) * row.limit());
        EXPECT_EQ(timed(*schedule, std::move(own), row, 1).span,
                  timed(*schedule, std::move(given), row, 1).span);
    }
}

/* Deeper pipelines of the same table, of which only ZB-H1 is in reach of a formula: the first
 * position waits for a way to the last and back, with no W to fill it, and again at the end. */
TEST(SchedulesZbAuto, IsAsGoodAsZbH1WhereMemoryIsTheSame) {
    for (const figure &row : {figure{16, 48, 11347, 11248, 8132, 377, 5120, 40, "", 0},
                              figure{4, 12, 100, 110, 90, 3, 5120, 40, "", 0}}) {
        const double work = row.micro_batches * (row.forward + row.input + row.weight);
        const double idle =
            (row.positions - 1) * (row.forward + row.input - row.weight + 4 * row.message);
        toy::program_ptr program = made_for(crl_schedule_zb_1p, row, 1, row.limit());
        const timing made = timed(crl_schedule_zb_1p, std::move(program), row, 1);
        EXPECT_LE(made.span, work + idle + 1e-3);
    }
}
