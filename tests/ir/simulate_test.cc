/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/ir/toy_model.h"

#include "engine/base/alloc.h"
#include "engine/ir/simulate.h"

namespace {

struct simulation_deleter {
    void operator()(crl_simulation *item) const { crl_simulation_destroy(item); }
};
using simulation_ptr = std::unique_ptr<crl_simulation, simulation_deleter>;

simulation_ptr simulate(const toy::program_ptr &program, const std::vector<crl_stage_cost> &times,
                        double latency = 0, double rate = 0) {
    const crl_simulation_config config = {times.data(), {latency, rate}};
    crl_simulation *out = nullptr;
    EXPECT_EQ(crl_simulate(&out, program.get(), &config), CRL_STATUS_OK) << crl_error_message();
    return simulation_ptr(out);
}

/* Start of the first action of this kind, stage and micro-batch on its position. */
double start_of(const toy::program_ptr &program, const simulation_ptr &simulation,
                crl_action_kind kind, int stage, int micro_batch) {
    for (int p = 0; p < program->positions; p++) {
        for (int i = 0; i < program->position[p].count; i++) {
            const crl_action &a = program->position[p].action[i];
            if (a.kind == kind && a.stage == stage && a.micro_batch == micro_batch) {
                return simulation->start_s[p][i];
            }
        }
    }
    return -1;
}

} // namespace

TEST(IrSimulate, StartsEverythingAsEarlyAsPossible) {
    toy::program_ptr program = toy::parse("0F0,0F1,0B0,0B1\n1F0,1B0,1F1,1I1,1W1");
    simulation_ptr s = simulate(program, {{1, 2, 3}, {10, 20, 30}});
    EXPECT_EQ(start_of(program, s, CRL_ACTION_FORWARD, 1, 0), 1);
    EXPECT_EQ(start_of(program, s, CRL_ACTION_BACKWARD, 1, 0), 11);
    EXPECT_EQ(start_of(program, s, CRL_ACTION_FORWARD, 1, 1), 61);
    EXPECT_EQ(start_of(program, s, CRL_ACTION_INPUT, 1, 1), 71);
    EXPECT_EQ(start_of(program, s, CRL_ACTION_WEIGHT, 1, 1), 91);
    EXPECT_EQ(start_of(program, s, CRL_ACTION_BACKWARD, 0, 0), 61);
    EXPECT_EQ(start_of(program, s, CRL_ACTION_BACKWARD, 0, 1), 91); /* after I, not after W */
    EXPECT_EQ(s->makespan_s, 121);
    EXPECT_EQ(s->busy_s[0], 12);
    EXPECT_EQ(s->busy_s[1], 120);
    EXPECT_NEAR(s->bubble, 1 - 132.0 / 242, 1e-12);
}

TEST(IrSimulate, MessagesTakeLatencyAndBandwidth) {
    toy::graph_ptr graph = toy::chain(2);
    toy::plan_ptr plan = toy::even_plan(graph, 2, 2);
    toy::program_ptr program = toy::parse("0F0,0F1,0B0,0B1\n1F0,1B0,1F1,1B1");
    ASSERT_EQ(crl_program_add_messages(program.get(), plan.get(), 1, false), CRL_STATUS_OK);
    const std::vector<crl_stage_cost> times = {{10, 10, 10}, {10, 10, 10}};
    simulation_ptr s = simulate(program, times, 1, 32); /* 64 bytes: 1 + 2 s */
    EXPECT_EQ(start_of(program, s, CRL_ACTION_FORWARD, 1, 0), 13);
    EXPECT_EQ(start_of(program, s, CRL_ACTION_BACKWARD, 1, 0), 23);
    EXPECT_EQ(start_of(program, s, CRL_ACTION_BACKWARD, 0, 0), 46);
    EXPECT_EQ(start_of(program, s, CRL_ACTION_FORWARD, 0, 1), 13); /* its send buffer is free */
    s = simulate(program, times, 1, 0);
    EXPECT_EQ(start_of(program, s, CRL_ACTION_FORWARD, 1, 0), 11);
    s = simulate(program, times);
    EXPECT_EQ(start_of(program, s, CRL_ACTION_FORWARD, 1, 0), 10);
    EXPECT_EQ(start_of(program, s, CRL_ACTION_FORWARD, 0, 1), 10);
}

TEST(IrSimulate, CopiesInsideAPositionAreFree) {
    toy::graph_ptr graph = toy::chain(2);
    toy::plan_ptr plan = toy::even_plan(graph, 1, 2);
    toy::program_ptr program = toy::parse("0F0,1F0,1B0,0B0");
    ASSERT_EQ(crl_program_add_messages(program.get(), plan.get(), 1, false), CRL_STATUS_OK);
    EXPECT_EQ(simulate(program, {{1, 1, 1}, {1, 1, 1}}, 100, 1)->makespan_s, 6);
}

TEST(IrSimulate, RefusesBadProgramsAndTimes) {
    crl_simulation *out = nullptr;
    const crl_stage_cost good[] = {{1, 1, 1}}, bad[] = {{1, -1, 1}};
    crl_simulation_config config = {good};
    EXPECT_EQ(crl_simulate(&out, toy::parse("0B0,0F0").get(), &config), CRL_STATUS_INVALID);
    config.stage = bad;
    EXPECT_EQ(crl_simulate(&out, toy::parse("0F0,0B0").get(), &config), CRL_STATUS_INVALID);
    EXPECT_STREQ(crl_error_message(), "simulation: stage 0 takes -1 s, expected 0 or more");
    config = {good, {-1, 0}};
    EXPECT_EQ(crl_simulate(&out, toy::parse("0F0,0B0").get(), &config), CRL_STATUS_INVALID);
    EXPECT_EQ(out, nullptr);
}

TEST(IrSimulate, TakesNoTimeWhenNothingDoes) {
    simulation_ptr s = simulate(toy::parse("0F0,0B0"), {{0, 0, 0}});
    EXPECT_EQ(s->makespan_s, 0);
    EXPECT_EQ(s->bubble, 0);
}

TEST(IrSimulate, SurvivesEveryFailedAllocation) {
    toy::program_ptr program = toy::parse("0F0,0B0\n1F0,1B0");
    const crl_stage_cost times[] = {{1, 1, 1}, {1, 1, 1}};
    const crl_simulation_config config = {times};
    for (int64_t n = 1;; n++) {
        crl_alloc_watch watch = {};
        crl_alloc_attach(&watch);
        watch.fail_at = n;
        crl_simulation *out = nullptr;
        const crl_status status = crl_simulate(&out, program.get(), &config);
        const bool done = watch.fail_at > 0;
        crl_simulation_destroy(out);
        crl_alloc_attach(nullptr);
        EXPECT_EQ(watch.live_bytes, 0);
        EXPECT_EQ(status, done ? CRL_STATUS_OK : CRL_STATUS_NOMEM);
        if (done) {
            break;
        }
    }
}
