/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/ir/toy_model.h"

#include <cmath>

#include "engine/base/alloc.h"
#include "engine/ir/simulate.h"

namespace {

struct simulation_deleter {
    void operator()(crl_simulation *item) const { crl_simulation_destroy(item); }
};
using simulation_ptr = std::unique_ptr<crl_simulation, simulation_deleter>;

simulation_ptr simulate(const toy::program_ptr &program, const crl_simulation_config &config) {
    crl_simulation *out = nullptr;
    EXPECT_EQ(crl_simulate(&out, program.get(), &config), CRL_STATUS_OK) << crl_error_message();
    return simulation_ptr(out);
}

simulation_ptr simulate(const toy::program_ptr &program, const std::vector<crl_stage_cost> &times,
                        double latency = 0, double rate = 0) {
    return simulate(program, crl_simulation_config{times.data(), {latency, rate}});
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
    EXPECT_EQ(s->span_s, 120); /* of position 1 */
    s = simulate(toy::parse("0F0,0B0\n1F0,1B0"), {{1, 1, 0}, {5, 5, 5}});
    EXPECT_EQ(s->makespan_s, 17);
    EXPECT_EQ(s->span_s, 17);
    s = simulate(toy::parse("0F0\n1F0"), {{1, 1, 0}, {5, 5, 5}});
    EXPECT_EQ(s->makespan_s, 6);
    EXPECT_EQ(s->span_s, 5);
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

TEST(IrSimulate, RefusesBytesAndMessageTimesThatCannotBe) {
    toy::program_ptr program = toy::parse("0F0,0B0");
    crl_simulation *out = nullptr;
    for (const crl_stage_cost &bad : {crl_stage_cost{1, 1, 1, -1}, crl_stage_cost{1, 1, 1, 0, NAN},
                                      crl_stage_cost{1, 1, 1, 0, 0, INFINITY}}) {
        const crl_simulation_config config = {&bad};
        EXPECT_EQ(crl_simulate(&out, program.get(), &config), CRL_STATUS_INVALID);
    }
    const crl_stage_cost good = {1, 1, 1};
    crl_simulation_config config = {&good};
    config.message_s = -1;
    EXPECT_EQ(crl_simulate(&out, program.get(), &config), CRL_STATUS_INVALID);
    const crl_stage_cost large = {1e308, 1e308, 1e308};
    config = {&large};
    EXPECT_EQ(crl_simulate(&out, program.get(), &config), CRL_STATUS_INVALID);
    EXPECT_EQ(out, nullptr);
}

/* Without messages every dependency between positions is one. */
TEST(IrSimulate, ABareProgramPaysForItsDependencies) {
    toy::program_ptr program = toy::parse("0F0,0F1,0B0,0B1\n1F0,1B0,1F1,1B1");
    const std::vector<crl_stage_cost> times = {{10, 10, 10, 0, 0, 64}, {10, 10, 10}};
    simulation_ptr s = simulate(program, times, 1, 32); /* 64 bytes: 1 + 2 s */
    EXPECT_EQ(start_of(program, s, CRL_ACTION_FORWARD, 0, 1), 10);
    EXPECT_EQ(start_of(program, s, CRL_ACTION_FORWARD, 1, 0), 13);
    EXPECT_EQ(start_of(program, s, CRL_ACTION_BACKWARD, 1, 0), 23);
    EXPECT_EQ(start_of(program, s, CRL_ACTION_BACKWARD, 0, 0), 46);
    EXPECT_EQ(s->messages, 4);
    EXPECT_EQ(s->position[0].wait_input_s, 23 + 7); /* B0 is made at 43, B1 at 73 */
    EXPECT_EQ(s->position[0].wait_message_s, 3 + 3);
}

TEST(IrSimulate, AMessageTakesTimeOfBothItsEnds) {
    toy::program_ptr program = toy::parse("0F0,0B0\n1F0,1B0");
    const std::vector<crl_stage_cost> times = {{10, 10, 10}, {10, 10, 10}};
    crl_simulation_config config = {times.data(), {5, 0}};
    config.message_s = 2;
    simulation_ptr s = simulate(program, config);
    EXPECT_EQ(start_of(program, s, CRL_ACTION_FORWARD, 1, 0), 10 + 2 + 5 + 2);
    EXPECT_EQ(start_of(program, s, CRL_ACTION_BACKWARD, 0, 0), 19 + 30 + 2 + 5 + 2);
    EXPECT_EQ(s->position[0].message_s, 4);
    EXPECT_EQ(s->position[1].message_s, 4);
}

TEST(IrSimulate, SharedLinksSendInTurn) {
    toy::program_ptr program = toy::parse("0F0,0F1,0B0,0B1\n1F0,1F1,1B0,1B1");
    const std::vector<crl_stage_cost> times = {{1, 1, 1, 0, 0, 10}, {1, 1, 1}};
    crl_simulation_config config = {times.data(), {3, 1}};
    EXPECT_EQ(start_of(program, simulate(program, config), CRL_ACTION_FORWARD, 1, 1), 2 + 13);
    config.shared_links = true; /* the second leaves at 11, when the first has left */
    EXPECT_EQ(start_of(program, simulate(program, config), CRL_ACTION_FORWARD, 1, 1), 11 + 13);
}

TEST(IrSimulate, LinksBetweenNodesAreTheirOwn) {
    toy::program_ptr program = toy::parse("0F0,0B0\n1F0,1B0\n2F0,2B0");
    const std::vector<crl_stage_cost> times(3, crl_stage_cost{1, 1, 1});
    const int node[] = {0, 0, 1};
    const crl_simulation_config config = {times.data(), {10, 0}, {100, 0}, node};
    EXPECT_EQ(simulate(program, config)->makespan_s, 3 + 6 + 2 * (10 + 100));
}

TEST(IrSimulate, EveryPositionAccountsForTheWholeTime) {
    toy::graph_ptr graph = toy::chain(4);
    toy::plan_ptr plan = toy::even_plan(graph, 4, 4);
    for (const bool messages : {false, true}) {
        toy::program_ptr program = toy::parse("0F0,0F1,0F2,0B0,0B1,0B2\n1F0,1F1,1B0,1F2,1B1,1B2\n"
                                              "2F0,2I0,2F1,2W0,2I1,2F2,2I2,2W1,2W2\n"
                                              "3F0,3B0,3F1,3B1,3F2,3B2");
        if (messages) {
            ASSERT_EQ(crl_program_add_messages(program.get(), plan.get(), 1, false), CRL_STATUS_OK);
        }
        const std::vector<crl_stage_cost> times = {
            {1, 2, 3, 0, 0, 8}, {3, 1, 2, 0, 0, 4}, {2, 2, 1, 0, 0, 8}, {1, 5, 1}};
        crl_simulation_config config = {times.data(), {0.5, 16}};
        config.message_s = 0.25;
        config.shared_links = true;
        simulation_ptr s = simulate(program, config);
        for (int p = 0; p < 4; p++) {
            const crl_position_times &t = s->position[p];
            const double computing = t.forward_s + t.input_s + t.weight_s;
            EXPECT_NEAR(computing, s->busy_s[p], 1e-12);
            EXPECT_NEAR(computing + t.message_s + t.wait_input_s + t.wait_message_s +
                            t.wait_send_s + t.after_s,
                        s->makespan_s, 1e-12);
            EXPECT_GT(t.message_s, 0);
        }
        EXPECT_EQ(s->position[2].input_s, 6);
        EXPECT_EQ(s->position[2].weight_s, 3);
        EXPECT_EQ(s->messages, messages ? program->messages : 18);
    }
}

/* With room for every send the inserted messages change nothing. */
TEST(IrSimulate, InsertedMessagesCostWhatBareOnesDo) {
    toy::graph_ptr graph = toy::chain(2);
    toy::plan_ptr plan = toy::even_plan(graph, 2, 2);
    const std::string text = "0F0,0F1,0F2,0B0,0F3,0B1,0B2,0B3\n1F0,1B0,1F1,1B1,1F2,1B2,1F3,1B3";
    const std::vector<crl_stage_cost> times = {{1, 2, 3, 0, 0, 64}, {3, 1, 2}};
    for (const bool shared : {false, true}) {
        crl_simulation_config config = {times.data(), {0.5, 16}};
        config.message_s = 0.125;
        config.shared_links = shared;
        simulation_ptr bare = simulate(toy::parse(text), config);
        toy::program_ptr program = toy::parse(text);
        ASSERT_EQ(crl_program_add_messages(program.get(), plan.get(), 4, false), CRL_STATUS_OK);
        simulation_ptr inserted = simulate(program, config);
        EXPECT_EQ(inserted->makespan_s, bare->makespan_s);
        EXPECT_EQ(inserted->path_steps, bare->path_steps);
    }
}

TEST(IrSimulate, CountsMemoryFromForwardToItsEnd) {
    const std::vector<crl_stage_cost> costs = {{1, 1, 1, 100, 30}, {1, 1, 1, 10, 3}};
    simulation_ptr s = simulate(toy::parse("0F0,0F1,0B0,0B1\n1F0,1B0,1F1,1B1"), costs);
    EXPECT_EQ(s->position[0].peak_bytes, 200);
    EXPECT_EQ(s->position[0].peak_activations, 2);
    EXPECT_EQ(s->position[1].peak_bytes, 10);
    EXPECT_EQ(s->position[1].peak_activations, 1);
    s = simulate(toy::parse("0F0,0I0,0F1,0I1,0F2,0I2,0W0,0W1,0W2"), {{1, 1, 1, 100, 30}});
    EXPECT_EQ(s->position[0].peak_bytes, 160); /* two are held when the third is kept */
    EXPECT_EQ(s->position[0].peak_activations, 1);
    s = simulate(toy::parse("0F0,0I0,0W0"), {{1, 1, 1, 10, 30}});
    EXPECT_EQ(s->position[0].peak_bytes, 30);
    s = simulate(toy::parse("0F0,0I0,0W0,0F1,0I1,0W1"), {{1, 1, 1, 10, 30}});
    EXPECT_EQ(s->position[0].peak_bytes, 30);
    s = simulate(toy::parse("0F0,0F1,0F2"), {{1, 1, 1, 10, 30}}); /* evaluation keeps nothing */
    EXPECT_EQ(s->position[0].peak_bytes, 10);
}

/* "0F0 1F0": the critical path. Every step starts when the simulation says. */
std::string path_of(const toy::program_ptr &program, const simulation_ptr &s) {
    std::string text;
    for (int i = 0; i < s->path_steps; i++) {
        const crl_path_step &step = s->path[i];
        const crl_action &a = program->position[step.position].action[step.index];
        text += (i ? " " : "") + std::to_string(a.stage) + "FBIW"[a.kind] +
                std::to_string(a.micro_batch);
        EXPECT_EQ(step.start_s, s->start_s[step.position][step.index]);
        EXPECT_EQ(step.end_s, s->end_s[step.position][step.index]);
    }
    EXPECT_EQ(s->path[s->path_steps - 1].end_s, s->makespan_s);
    return text;
}

TEST(IrSimulate, TheCriticalPathSpansTheMakespan) {
    toy::program_ptr program = toy::parse("0F0,0F1,0B0,0B1\n1F0,1B0,1F1,1B1");
    simulation_ptr s = simulate(program, {{1, 2, 3}, {10, 20, 30}}, 4, 0);
    EXPECT_EQ(path_of(program, s), "0F0 1F0 1B0 1F1 1B1 0B1");
    const double start[] = {0, 5, 15, 65, 75, 129};
    for (int i = 0; i < s->path_steps; i++) {
        EXPECT_EQ(s->path[i].start_s, start[i]);
    }
}

TEST(IrSimulate, TheCriticalPathStaysOnAPositionThatIsNotIdle) {
    toy::program_ptr program = toy::parse("0F0,0F1\n1F0,1F1");
    EXPECT_EQ(path_of(program, simulate(program, {{1, 1, 1}, {1, 1, 1}})), "0F0 1F0 1F1");
    /* Position 1 is still sending a gradient when its next input arrives. */
    program = toy::parse("0F0,0F1,0B0,0B1\n1F0,1B0,1F1,1B1");
    const std::vector<crl_stage_cost> times = {{1, 0.125, 0.125}, {0.125, 0.125, 0.25}};
    crl_simulation_config config = {times.data()};
    config.message_s = 1;
    EXPECT_EQ(path_of(program, simulate(program, config)), "0F0 1F0 1B0 1F1 1B1 0B1");
}

TEST(IrSimulate, TheCriticalPathPassesThroughMessages) {
    toy::graph_ptr graph = toy::chain(3);
    toy::plan_ptr plan = toy::even_plan(graph, 3, 3);
    toy::program_ptr program = toy::parse("0F0,0F1,0B0,0B1\n1F0,1F1,1B0,1B1\n2F0,2B0,2F1,2B1");
    ASSERT_EQ(crl_program_add_messages(program.get(), plan.get(), 1, false), CRL_STATUS_OK);
    const std::vector<crl_stage_cost> times(3, crl_stage_cost{2, 2, 2});
    crl_simulation_config config = {times.data(), {1, 0}};
    config.message_s = 0.5;
    simulation_ptr s = simulate(program, config);
    ASSERT_GE(s->path_steps, 6);
    EXPECT_EQ(s->path[0].start_s, 0);
    for (int i = 1; i < s->path_steps; i++) {
        const bool moves = s->path[i].position != s->path[i - 1].position;
        const double gap = s->path[i].start_s - s->path[i - 1].end_s;
        EXPECT_GE(gap, moves ? 0.5 + 1 + 0.5 : 0) << i;
        EXPECT_LE(gap, 4) << i; /* no path leads through idle time */
    }
    EXPECT_EQ(s->path[s->path_steps - 1].end_s, s->makespan_s);
}

TEST(IrSimulate, TimesThousandsOfPositions) {
    const int positions = 3072, micro_batches = 64;
    crl_program *out = nullptr;
    ASSERT_EQ(crl_program_create(&out, positions, positions, micro_batches), CRL_STATUS_OK);
    toy::program_ptr program(out);
    for (int p = 0; p < positions; p++) {
        for (int i = 0; i < 2 * micro_batches; i++) {
            ASSERT_EQ(crl_program_append(
                          out, p, i < micro_batches ? CRL_ACTION_FORWARD : CRL_ACTION_BACKWARD, p,
                          i % micro_batches),
                      CRL_STATUS_OK);
        }
    }
    simulation_ptr s =
        simulate(program, std::vector<crl_stage_cost>(positions, crl_stage_cost{1, 1, 1}), 0.5, 0);
    EXPECT_EQ(s->makespan_s, 3 * (micro_batches + positions - 1) + 2 * 0.5 * (positions - 1));
    EXPECT_EQ(s->messages, 2LL * (positions - 1) * micro_batches);
    EXPECT_EQ(s->path[0].start_s, 0);
    EXPECT_EQ(s->path[s->path_steps - 1].end_s, s->makespan_s);
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
