/* SPDX-License-Identifier: Apache-2.0 */
/* List scheduling itself: any policy on any problem gives a sequence that keeps the rules. */
#include "schedules/list_internal.h"
#include "tests/schedules/schedules.h"

#include "engine/base/alloc.h"

#include <random>

using namespace schedules;

namespace {

struct problem_ptr {
    list_problem item = {};
    ~problem_ptr() { crl_list_problem_fini(&item); }
};

struct case_of {
    crl_schedule_request request = {};
    std::vector<crl_stage_cost> cost;
    std::vector<int> widths;
};

/* A random request; with auto's placement, so one or two stages per position. */
void draw(case_of *out, std::mt19937 *random) {
    const auto below = [&](int n) { return (int)((*random)() % (unsigned)n); };
    const int positions = 1 + below(5);
    out->request = {positions, positions * (1 + below(2)), 1 + below(12)};
    out->cost.assign((size_t)out->request.stages, crl_stage_cost{});
    double most = 0;
    for (crl_stage_cost &cost : out->cost) {
        cost.forward_s = 1 + below(9);
        cost.input_s = below(10);
        cost.weight_s = below(8);
        cost.kept_bytes = 1 + below(6);
        cost.held_bytes = below(9);
        most = std::max(most, cost.kept_bytes + cost.held_bytes);
    }
    out->request.cost = out->cost.data();
    out->request.message_s = below(3);
    out->request.memory_limit_bytes = 2 * most + below(40);
    if (below(3) == 0) {
        for (int p = 0; p < positions; p++) {
            out->widths.push_back(1 + below(3));
        }
        out->request.widths = out->widths.data();
    }
}

list_policy policy(std::mt19937 *random) {
    const auto below = [&](int n) { return (int)((*random)() % (unsigned)n); };
    list_policy out = {};
    out.lead = below(4) * 0.5;
    out.wait_f = below(5) * 0.25;
    out.wait_w = below(5) * 0.25;
    out.end_inputs = below(4);
    out.target_s = below(200);
    out.of_span = below(2) != 0;
    out.order = (list_order)below(3);
    out.make_room = below(2) != 0;
    out.deep_first = below(2) != 0;
    out.debt = below(3);
    return out;
}

/* On every stage, whichever replicas of its position run them. */
bool weights_ascend(const list_problem &problem, const std::vector<int> &task) {
    std::vector<int> next((size_t)problem.stages);
    for (int t : task) {
        const int group = t / problem.micro_batches;
        if (group % LIST_KINDS == LIST_WEIGHT &&
            t % problem.micro_batches != next[(size_t)(group / LIST_KINDS)]++) {
            return false;
        }
    }
    return true;
}

std::string label_of(int seed, const case_of &item) {
    return "seed " + std::to_string(seed) + " " + label(item.request);
}

} // namespace

TEST(SchedulesList, AnyPolicyEndsWithinMemoryAndIsTimedAlike) {
    for (int seed = 0; seed < 1500; seed++) {
        std::mt19937 random((unsigned)seed);
        case_of item;
        problem_ptr problem;
        draw(&item, &random);
        ASSERT_EQ(crl_list_problem_init(&problem.item, &crl_schedule_auto, &item.request, 1),
                  CRL_STATUS_OK)
            << label_of(seed, item) << crl_error_message();
        list_machine *machine = nullptr;
        ASSERT_EQ(crl_list_machine_create(&machine, &problem.item), CRL_STATUS_OK);
        std::vector<int> task((size_t)problem.item.tasks);
        list_sequence sequence = {task.data(), 0, 0};
        list_timer timer = {};
        ASSERT_EQ(crl_list_timer_init(&timer, &problem.item), CRL_STATUS_OK);
        for (int i = 0; i < 4; i++) {
            const list_policy how = policy(&random);
            crl_list_run(machine, &how, &sequence);
            const list_sequence run = sequence;
            std::vector<int> sorted = task;
            std::sort(sorted.begin(), sorted.end());
            for (int t = 0; t < problem.item.tasks; t++) {
                ASSERT_EQ(sorted[(size_t)t], t) << label_of(seed, item);
            }
            ASSERT_TRUE(crl_list_time(&timer, &sequence, LIST_GOAL_MAKESPAN))
                << label_of(seed, item);
            /* the timer never waits by choice */
            ASSERT_LE(sequence.makespan_s, run.makespan_s + 1e-9) << label_of(seed, item);
            ASSERT_GE(sequence.makespan_s, problem.item.least_s - 1e-9) << label_of(seed, item);
            ASSERT_GE(sequence.span_s, problem.item.least_span_s - 1e-9) << label_of(seed, item);
            const list_sequence before = sequence;
            crl_list_improve(&timer, &sequence, LIST_GOAL_SPAN, 50);
            ASSERT_FALSE(crl_list_is_better(&before, &sequence, LIST_GOAL_SPAN));
            ASSERT_TRUE(crl_list_time(&timer, &sequence, LIST_GOAL_SPAN)) << label_of(seed, item);
            ASSERT_TRUE(weights_ascend(problem.item, task)) << label_of(seed, item);
        }
        crl_list_timer_fini(&timer);
        crl_list_machine_destroy(machine);
    }
}

TEST(SchedulesList, TimesAsTheSimulatorDoes) {
    for (int seed = 0; seed < 100; seed++) {
        std::mt19937 random((unsigned)seed);
        case_of item;
        problem_ptr problem;
        draw(&item, &random);
        ASSERT_EQ(crl_list_problem_init(&problem.item, &crl_schedule_auto, &item.request, 1),
                  CRL_STATUS_OK);
        list_sequence best = {};
        ASSERT_EQ(crl_list_search(&best, &problem.item, LIST_GOAL_MAKESPAN, 20), CRL_STATUS_OK);
        crl_program *made = nullptr;
        ASSERT_EQ(crl_program_create(&made, item.request.positions, item.request.stages,
                                     item.request.micro_batches),
                  CRL_STATUS_OK);
        toy::program_ptr program(made);
        const crl_action_kind kinds[] = {CRL_ACTION_FORWARD, CRL_ACTION_INPUT, CRL_ACTION_WEIGHT};
        const int M = item.request.micro_batches;
        for (int i = 0; i < problem.item.tasks; i++) {
            const int stage = best.task[i] / M / LIST_KINDS;
            ASSERT_EQ(crl_program_append(program.get(), problem.item.position_of[stage],
                                         kinds[best.task[i] / M % LIST_KINDS], stage,
                                         best.task[i] % M),
                      CRL_STATUS_OK);
        }
        if (item.request.widths) {
            deal(program.get(), item.request);
        }
        crl_simulation_config config = {};
        config.stage = item.cost.data();
        config.link.latency_s = item.request.message_s;
        crl_simulation *out = nullptr;
        ASSERT_EQ(crl_simulate(&out, program.get(), &config), CRL_STATUS_OK)
            << label_of(seed, item) << crl_error_message();
        simulation_ptr simulation(out);
        EXPECT_LE(simulation->makespan_s, best.makespan_s + 1e-9) << label_of(seed, item);
        list_timer timer = {};
        ASSERT_EQ(crl_list_timer_init(&timer, &problem.item), CRL_STATUS_OK);
        ASSERT_TRUE(crl_list_time(&timer, &best, LIST_GOAL_MAKESPAN));
        EXPECT_NEAR(simulation->makespan_s, best.makespan_s, 1e-9) << label_of(seed, item);
        crl_list_timer_fini(&timer);
        crl_free(best.task);
    }
}

/*
 *     0 | F0 F1 .. I0 .. .. .. .. .. I1 W0--------- W1---------      18
 *     1 | .. F0 I0 W0--------- F1 I1 W1---------
 *
 *     0 | F0 F1 .. I0 .. I1 W0--------- W1---------                  14
 *     1 | .. F0 I0 F1 I1 W0--------- W1---------
 */
TEST(SchedulesList, WeightsMoveBehindWhatWaitsForThem) {
    std::vector<crl_stage_cost> cost(2, crl_stage_cost{});
    for (crl_stage_cost &stage : cost) {
        stage.forward_s = stage.input_s = stage.kept_bytes = stage.held_bytes = 1;
        stage.weight_s = 4;
    }
    crl_schedule_request request = {2, 2, 2};
    request.cost = cost.data();
    problem_ptr problem;
    ASSERT_EQ(crl_list_problem_init(&problem.item, &crl_schedule_auto, &request, 1), CRL_STATUS_OK);
    int task[] = {0, 1, 6, 8, 2, 10, 7, 9, 3, 11, 4, 5}; /* (3 stage + kind) M + micro-batch */
    list_sequence sequence = {task, 0, 0};
    list_timer timer = {};
    ASSERT_EQ(crl_list_timer_init(&timer, &problem.item), CRL_STATUS_OK);
    ASSERT_TRUE(crl_list_time(&timer, &sequence, LIST_GOAL_MAKESPAN));
    EXPECT_EQ(sequence.makespan_s, 18);
    EXPECT_EQ(sequence.span_s, 18);
    crl_list_improve(&timer, &sequence, LIST_GOAL_MAKESPAN, 1);
    EXPECT_EQ(sequence.makespan_s, 18); /* behind F1 alone is no gain yet */
    crl_list_improve(&timer, &sequence, LIST_GOAL_MAKESPAN, 100);
    EXPECT_EQ(sequence.makespan_s, 14);
    crl_list_timer_fini(&timer);
}

TEST(SchedulesList, RefusesToTimeWhatMemoryDoesNotHold) {
    crl_schedule_request request = {1, 1, 2};
    crl_stage_cost cost = {};
    cost.kept_bytes = 2;
    cost.held_bytes = 1;
    request.cost = &cost;
    request.memory_limit_bytes = 3;
    problem_ptr problem;
    ASSERT_EQ(crl_list_problem_init(&problem.item, &crl_schedule_auto, &request, 1), CRL_STATUS_OK);
    list_timer timer = {};
    ASSERT_EQ(crl_list_timer_init(&timer, &problem.item), CRL_STATUS_OK);
    int together[] = {0, 1, 2, 3, 4, 5}, after_input[] = {0, 2, 1, 3, 4, 5};
    list_sequence sequence = {together, 0, 0};
    EXPECT_FALSE(crl_list_time(&timer, &sequence, LIST_GOAL_MAKESPAN));
    sequence.task = after_input;
    EXPECT_TRUE(crl_list_time(&timer, &sequence, LIST_GOAL_MAKESPAN));
    crl_list_timer_fini(&timer);
}

TEST(SchedulesList, EveryFailedAllocationIsReportedAndCleanedUp) {
    std::mt19937 random(3);
    case_of item;
    draw(&item, &random);
    crl_alloc_watch watch = {};
    crl_alloc_watch *before = crl_alloc_attach(&watch);
    crl_status status = CRL_STATUS_NOMEM;
    int failed = 0;
    for (; status == CRL_STATUS_NOMEM && failed < 1000; failed++) {
        crl_program *out = nullptr;
        watch.fail_at = failed + 1;
        status = crl_schedule_auto.build(&out, &item.request);
        EXPECT_EQ(out == nullptr, status != CRL_STATUS_OK);
        crl_program_destroy(out);
        EXPECT_EQ(watch.live_bytes, 0) << "allocation " << failed + 1;
    }
    crl_alloc_attach(before);
    EXPECT_EQ(status, CRL_STATUS_OK) << crl_error_message();
    EXPECT_GT(failed, 30);
}
