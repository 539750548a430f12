/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/ir/toy_model.h"

#include <random>
#include <set>
#include <tuple>

#include "engine/base/alloc.h"

namespace {

using toy::desc;

toy::program_ptr with_messages(const std::string &text, const toy::plan_ptr &plan, int window = 1,
                               bool forward_only = false) {
    toy::program_ptr program = toy::parse(text);
    EXPECT_EQ(crl_program_add_messages(program.get(), plan.get(), window, forward_only),
              CRL_STATUS_OK)
        << crl_error_message();
    return program;
}

/*
 * Runs a program the way an executor does: nothing orders the positions but the messages, and every
 * send is a rendezvous. Keeps track of which stage has which value and gradient of a micro-batch.
 */
class machine {
  public:
    machine(const crl_program *program, const crl_plan *plan) : program_(program), plan_(plan) {}

    void run() {
        std::vector<int> at((size_t)program_->positions, 0);
        for (bool moved = true; moved;) {
            moved = false;
            for (int p = 0; p < program_->positions; p++) {
                while (at[p] < program_->position[p].count && step(p, at[p])) {
                    at[p]++;
                    moved = true;
                }
            }
        }
        for (int p = 0; p < program_->positions; p++) {
            ASSERT_EQ(at[p], program_->position[p].count) << "position " << p << " is stuck";
        }
        EXPECT_TRUE(open_.empty());
        EXPECT_EQ((int)sent_.size(), program_->messages);
    }

  private:
    using key = std::tuple<int, int, int>; /* stage, value, micro-batch */

    bool step(int position, int index) {
        const crl_action &a = program_->position[position].action[index];
        switch (a.kind) {
        case CRL_ACTION_FORWARD:
            forward(a);
            return true;
        case CRL_ACTION_BACKWARD:
        case CRL_ACTION_INPUT:
            backward(a);
            return true;
        case CRL_ACTION_SEND:
            send(position, a);
            return true;
        case CRL_ACTION_RECV:
            EXPECT_EQ(program_->message[a.message].to, position);
            EXPECT_TRUE(posted_.insert(a.message).second);
            return true;
        case CRL_ACTION_WAIT_SEND:
        case CRL_ACTION_WAIT_RECV:
            return wait(a);
        default:
            return true;
        }
    }

    /* Values a stage reads from elsewhere must have arrived. */
    void forward(const crl_action &a) {
        const crl_graph *graph = plan_->graph;
        for (int n = plan_->stage[a.stage].first; n < plan_->stage[a.stage].last; n++) {
            const crl_node &node = graph->node[n];
            for (int i = 0; i < node.spec.inputs; i++) {
                const bool own = graph->value[node.input[i]].from_input;
                EXPECT_TRUE(own || has_.count({a.stage, node.input[i], a.micro_batch}));
            }
            for (int o = 0; o < node.spec.outputs; o++) {
                has_.insert({a.stage, node.output[o], a.micro_batch});
            }
        }
    }

    /* The gradient of what a stage made or passed on comes from the next stage that uses it. */
    void backward(const crl_action &a) {
        for (int e = 0; e < plan_->edges; e++) {
            const crl_edge &edge = plan_->edge[e];
            if (edge.from == a.stage && edge.gradient) {
                EXPECT_TRUE(gradient_.count({a.stage, edge.value, a.micro_batch}));
            }
        }
        ran_backward_.insert({a.stage, 0, a.micro_batch});
    }

    void send(int position, const crl_action &a) {
        const crl_message &message = program_->message[a.message];
        const crl_edge &edge = plan_->edge[message.edge];
        EXPECT_EQ(message.from, position);
        EXPECT_EQ(message.micro_batch, a.micro_batch);
        EXPECT_EQ(message.bytes, edge.bytes);
        if (message.gradient) {
            EXPECT_EQ(a.stage, edge.to);
            EXPECT_TRUE(ran_backward_.count({edge.to, 0, a.micro_batch}));
        } else {
            EXPECT_EQ(a.stage, edge.from);
            EXPECT_TRUE(has_.count({edge.from, edge.value, a.micro_batch}));
        }
        EXPECT_TRUE(sent_.insert(a.message).second);
        open_.insert(a.message);
    }

    bool wait(const crl_action &a) {
        if (!sent_.count(a.message) || !posted_.count(a.message)) {
            return false;
        }
        const crl_message &message = program_->message[a.message];
        const crl_edge &edge = plan_->edge[message.edge];
        if (a.kind == CRL_ACTION_WAIT_SEND) {
            EXPECT_EQ(open_.erase(a.message), 1u);
        } else if (message.gradient) {
            gradient_.insert({edge.from, edge.value, a.micro_batch});
        } else {
            has_.insert({edge.to, edge.value, a.micro_batch});
        }
        return true;
    }

    const crl_program *program_;
    const crl_plan *plan_;
    std::set<key> has_, gradient_, ran_backward_;
    std::set<int> sent_, posted_, open_;
};

} // namespace

TEST(IrProgramMessages, PlacesEveryPartWhereTheRuleSays) {
    toy::graph_ptr graph = toy::chain(2);
    toy::plan_ptr plan = toy::even_plan(graph, 2, 2);
    toy::program_ptr program = with_messages("0F0,0F1,0B0,0B1\n1F0,1B0,1F1,1B1", plan);
    EXPECT_EQ(program->messages, 4);
    EXPECT_EQ(toy::write(program, true),
              "0F0,0SEND_F0,0RECV_B0,0WAIT_SEND_F0,0F1,0SEND_F1,"
              "0RECV_B1,0WAIT_RECV_B0,0B0,0WAIT_RECV_B1,0WAIT_SEND_F1,0B1,0REDUCE,0STEP\n"
              "1RECV_F0,1WAIT_RECV_F0,1F0,1RECV_F1,1B0,1SEND_B0,1WAIT_RECV_F1,1F1,"
              "1WAIT_SEND_B0,1B1,1SEND_B1,1REDUCE,1WAIT_SEND_B1,1STEP\n");
    EXPECT_EQ(toy::write(program, false), "0F0,0F1,0B0,0B1\n1F0,1B0,1F1,1B1\n");
}

TEST(IrProgramMessages, EvaluationHasNoGradients) {
    toy::graph_ptr graph = toy::chain(2);
    toy::plan_ptr plan = toy::even_plan(graph, 2, 2);
    toy::program_ptr program = with_messages("0F0,0F1\n1F0,1F1", plan, 1, true);
    EXPECT_EQ(toy::write(program, true), "0F0,0SEND_F0,0WAIT_SEND_F0,0F1,0SEND_F1,0WAIT_SEND_F1\n"
                                         "1RECV_F0,1RECV_F1,1WAIT_RECV_F0,1F0,1WAIT_RECV_F1,1F1\n");
}

TEST(IrProgramMessages, LocalCopiesWaitForBothSidesAtTheReceiver) {
    toy::graph_ptr graph = toy::chain(2);
    toy::plan_ptr plan = toy::even_plan(graph, 1, 2);
    toy::program_ptr program = with_messages("0F0,0F1,1F0,1F1,1B0,0B0,1B1,0B1", plan);
    EXPECT_EQ(toy::write(program, true),
              "0F0,0SEND_F0,1RECV_F0,0F1,0SEND_F1,1RECV_F1,1WAIT_RECV_F0,0WAIT_SEND_F0,1F0,"
              "1WAIT_RECV_F1,0WAIT_SEND_F1,1F1,0RECV_B0,1B0,1SEND_B0,"
              "0WAIT_RECV_B0,1WAIT_SEND_B0,0B0,0RECV_B1,1B1,1SEND_B1,1REDUCE,"
              "0WAIT_RECV_B1,1WAIT_SEND_B1,0B1,0REDUCE,0STEP,1STEP\n");
    machine(program.get(), plan.get()).run();
}

TEST(IrProgramMessages, WindowBoundsOpenSends) {
    toy::graph_ptr graph = toy::chain(2);
    toy::plan_ptr plan = toy::even_plan(graph, 2, 2);
    const std::string text = "0F0,0F1,0F2,0F3,0B0,0B1,0B2,0B3\n1F0,1F1,1F2,1F3,1B0,1B1,1B2,1B3";
    for (int window = 1; window <= 4; window++) {
        toy::program_ptr program = with_messages(text, plan, window);
        int open = 0, most = 0;
        for (int i = 0; i < program->position[0].count; i++) {
            const crl_action_kind kind = program->position[0].action[i].kind;
            open += kind == CRL_ACTION_SEND ? 1 : kind == CRL_ACTION_WAIT_SEND ? -1 : 0;
            most = std::max(most, open);
        }
        EXPECT_EQ(most, window);
        EXPECT_EQ(open, 0);
    }
}

TEST(IrProgramMessages, NarrowWindowIsWidenedUntilNothingBlocks) {
    /* Position 0 would wait for 0F0 to be taken before it makes 0F1, but position 1 takes 1F1
     * first. */
    toy::graph_ptr graph = toy::chain(2);
    toy::plan_ptr plan = toy::even_plan(graph, 2, 2);
    const std::string text = "0F0,0F1,0F2,0F3,0F4,0B0,0B1,0B2,0B3,0B4\n"
                             "1F4,1F3,1F2,1F1,1F0,1B0,1B1,1B2,1B3,1B4";
    toy::program_ptr program = with_messages(text, plan, 1);
    crl_check_report report;
    crl_program_check(program.get(), &report);
    EXPECT_EQ(report.verdict, CRL_VERDICT_VALID) << report.why;
    machine(program.get(), plan.get()).run();
}

TEST(IrProgramMessages, CarryEveryValueOfRandomPlans) {
    const unsigned seed = 31;
    SCOPED_TRACE("seed " + std::to_string(seed));
    std::mt19937 random(seed);
    for (int n = 0; n < 300; n++) {
        const int positions = 1 + (int)(random() % 4);
        const int stages = positions * (1 + (int)(random() % 3));
        const int units = stages + (int)(random() % 6);
        const int micro_batches = 1 + (int)(random() % 6);
        toy::graph_ptr graph = toy::chain(units);
        std::set<int> cuts = {0};
        while ((int)cuts.size() < stages) {
            cuts.insert((int)(random() % (unsigned)graph->nodes));
        }
        toy::plan_ptr plan =
            toy::plan(graph, positions, std::vector<int>(cuts.begin(), cuts.end()));
        /* All forwards by micro-batch, then all backwards: legal for any stages. */
        crl_program *out = nullptr;
        ASSERT_EQ(crl_program_create(&out, positions, stages, micro_batches), CRL_STATUS_OK);
        toy::program_ptr program(out);
        const bool by_stage = random() % 2, split = random() % 2, only = random() % 4 == 0;
        const int outer = by_stage ? stages : micro_batches;
        const int inner = by_stage ? micro_batches : stages;
        for (int a = 0; a < outer; a++) {
            for (int b = 0; b < inner; b++) {
                const int s = by_stage ? a : b, m = by_stage ? b : a;
                ASSERT_EQ(crl_program_append(out, s % positions, CRL_ACTION_FORWARD, s, m),
                          CRL_STATUS_OK);
            }
        }
        for (int a = 0; a < outer && !only; a++) {
            for (int b = 0; b < inner; b++) {
                const int s = stages - 1 - (by_stage ? a : b), m = by_stage ? b : a;
                ASSERT_EQ(crl_program_append(out, s % positions,
                                             split ? CRL_ACTION_INPUT : CRL_ACTION_BACKWARD, s, m),
                          CRL_STATUS_OK);
                if (split) {
                    ASSERT_EQ(crl_program_append(out, s % positions, CRL_ACTION_WEIGHT, s, m),
                              CRL_STATUS_OK);
                }
            }
        }
        const int window = 1 + (int)(random() % 3);
        ASSERT_EQ(crl_program_add_messages(out, plan.get(), window, only), CRL_STATUS_OK)
            << crl_error_message();
        machine(out, plan.get()).run();
        ASSERT_FALSE(HasFailure()) << n << "\n" << toy::write(program, true);
    }
}

TEST(IrProgramMessages, RefusesWhatDoesNotBelongTogether) {
    toy::graph_ptr graph = toy::chain(2);
    toy::plan_ptr plan = toy::even_plan(graph, 2, 2);
    auto failure = [&](const std::string &text, int window, bool forward_only) {
        toy::program_ptr program = toy::parse(text);
        const std::string before = toy::write(program, true);
        EXPECT_EQ(crl_program_add_messages(program.get(), plan.get(), window, forward_only),
                  CRL_STATUS_INVALID);
        EXPECT_EQ(toy::write(program, true), before);
        return std::string(crl_error_message());
    };
    EXPECT_EQ(failure("0F0,0B0", 1, false),
              "program: 1 stages on 1 positions, the plan has 2 stages on 2");
    EXPECT_EQ(failure("1F0,1B0\n0F0,0B0", 1, false),
              "program: 1F0 on position 0, the plan has stage 1 on 1");
    EXPECT_EQ(failure("0F0,0B0\n1F0,1B0", 1, true), "program: 0B0 in a forward-only program");
    EXPECT_EQ(failure("0F0,0B0\n1F0,1B0", 0, false),
              "program: send window is 0, expected 1 or more");
    EXPECT_EQ(failure("0F0,0B0\n1B0,1F0", 1, false),
              "schedule: deadlock: position 1 waits at 1B0 for 1F0");
    toy::program_ptr program = with_messages("0F0,0B0\n1F0,1B0", plan);
    EXPECT_EQ(crl_program_add_messages(program.get(), plan.get(), 1, false), CRL_STATUS_INVALID);
    EXPECT_STREQ(crl_error_message(), "program: has messages already");
}

TEST(IrProgramMessages, CheckerFindsBrokenMessages) {
    toy::graph_ptr graph = toy::chain(2);
    toy::plan_ptr plan = toy::even_plan(graph, 2, 2);
    const std::string text = "0F0,0F1,0B0,0B1\n1F0,1B0,1F1,1B1";
    toy::program_ptr whole = with_messages(text, plan);
    crl_check_report report;
    int caught = 0;
    for (int p = 0; p < 2; p++) {
        for (int i = 0; i < whole->position[p].count; i++) {
            if (whole->position[p].action[i].message < 0) {
                continue;
            }
            /* Without this one part. */
            toy::program_ptr program = with_messages(text, plan);
            crl_action_list &list = program->position[p];
            std::copy(list.action + i + 1, list.action + list.count, list.action + i);
            list.count--;
            crl_program_check(program.get(), &report);
            EXPECT_EQ(report.verdict, CRL_VERDICT_INVALID) << p << " " << i;
            caught++;
        }
    }
    EXPECT_EQ(caught, 16);
    /* A wait before its start can never end. */
    toy::program_ptr program = with_messages(text, plan);
    std::swap(program->position[1].action[0], program->position[1].action[1]);
    crl_program_check(program.get(), &report);
    EXPECT_EQ(report.verdict, CRL_VERDICT_DEADLOCK) << report.why;
    /* Computing before the data is there. */
    program = with_messages(text, plan);
    std::swap(program->position[1].action[1], program->position[1].action[2]);
    crl_program_check(program.get(), &report);
    EXPECT_EQ(report.verdict, CRL_VERDICT_INVALID);
    EXPECT_STREQ(report.why, "1WAIT_RECV_F0 comes after 1F0");
    /* Sending before computing. */
    program = with_messages(text, plan);
    std::swap(program->position[0].action[0], program->position[0].action[1]);
    crl_program_check(program.get(), &report);
    EXPECT_EQ(report.verdict, CRL_VERDICT_INVALID);
    EXPECT_STREQ(report.why, "0SEND_F0 comes before 0F0");
}

TEST(IrProgramMessages, SurviveEveryFailedAllocation) {
    toy::graph_ptr graph = toy::chain(2);
    toy::plan_ptr plan = toy::even_plan(graph, 2, 2);
    for (int64_t n = 1;; n++) {
        crl_alloc_watch watch = {};
        crl_alloc_attach(&watch);
        toy::program_ptr program = toy::parse("0F0,0F1,0B0,0B1\n1F0,1B0,1F1,1B1");
        watch.fail_at = n;
        const crl_status status = crl_program_add_messages(program.get(), plan.get(), 1, false);
        const bool done = watch.fail_at > 0;
        watch.fail_at = 0;
        EXPECT_EQ(status, done ? CRL_STATUS_OK : CRL_STATUS_NOMEM);
        EXPECT_EQ(program->messages, done ? 4 : 0);
        program.reset();
        crl_alloc_attach(nullptr);
        EXPECT_EQ(watch.live_bytes, 0);
        if (done) {
            break;
        }
    }
}
