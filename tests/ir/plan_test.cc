/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/ir/toy_model.h"

using toy::dense;
using toy::desc;

namespace {

/* x | a | b (a, b) | c | join(c, a, x) | loss(join, y): a jumps over stages. */
toy::graph_ptr skip_graph() {
    return toy::graph({desc("source", "x"), desc("labels", "y"), dense("a", 8, {"x"}),
                       dense("b", 8, {"a"}), dense("c", 8, {"b"}),
                       desc("join", "j", {"c", "a", "x"}), desc("loss", "loss", {"j", "y"})});
}

} // namespace

TEST(IrPlan, ValuesHopFromConsumerToConsumer) {
    toy::graph_ptr graph = toy::graph({desc("source", "x"), dense("a", 8), dense("b", 8),
                                       desc("join", "j", {"a", "b"}), dense("c", 8),
                                       desc("join", "k", {"c", "a"}), desc("loss", "loss")});
    toy::plan_ptr plan = toy::plan(graph, 5, {0, 2, 3, 4, 5});
    ASSERT_TRUE(plan);
    /* a: 0 -> 1 (b) -> 2 (j) -> 4 (k); b: 1 -> 2; j: 2 -> 3; c: 3 -> 4 */
    const int expected[][3] = {{0, 1, 1}, {1, 2, 1}, {1, 2, 2}, {2, 3, 3}, {2, 4, 1}, {3, 4, 4}};
    ASSERT_EQ(plan->edges, 6);
    for (int e = 0; e < 6; e++) {
        EXPECT_EQ(plan->edge[e].from, expected[e][0]) << e;
        EXPECT_EQ(plan->edge[e].to, expected[e][1]) << e;
        EXPECT_EQ(plan->edge[e].value, expected[e][2]) << e;
        EXPECT_TRUE(plan->edge[e].gradient);
        EXPECT_EQ(plan->edge[e].bytes, 2u * 8 * 4);
    }
}

TEST(IrPlan, InputsAreNeverSent) {
    toy::graph_ptr graph = skip_graph();
    toy::plan_ptr plan = toy::plan(graph, 3, {0, 3, 5});
    ASSERT_EQ(plan->edges, 3); /* a: 0 -> 1 -> 2, c: 1 -> 2 */
    for (int e = 0; e < plan->edges; e++) {
        EXPECT_FALSE(graph->value[plan->edge[e].value].from_input);
    }
}

TEST(IrPlan, GradientFollowsOnlyConsumersThatGiveOne) {
    /* a is used in stage 1 with a gradient and in stage 2 without: the last hop carries none. */
    toy::graph_ptr graph = toy::graph({desc("source", "x"), dense("a", 8), dense("b", 8),
                                       desc("peek", "p", {"b", "a"}), desc("loss", "loss")});
    toy::plan_ptr plan = toy::plan(graph, 3, {0, 2, 3});
    ASSERT_EQ(plan->edges, 3);
    EXPECT_TRUE(plan->edge[0].gradient);  /* a 0 -> 1 */
    EXPECT_FALSE(plan->edge[1].gradient); /* a 1 -> 2 */
    EXPECT_TRUE(plan->edge[2].gradient);  /* b 1 -> 2 */
    /* Used in stage 1 without and in stage 2 with a gradient: both hops carry it. */
    graph = toy::graph({desc("source", "x"), dense("a", 8), dense("c", 8, {"x"}),
                        desc("peek", "p", {"c", "a"}), desc("join", "j", {"p", "a"}),
                        desc("loss", "loss")});
    plan = toy::plan(graph, 3, {0, 2, 4});
    ASSERT_EQ(plan->edges, 3);
    EXPECT_TRUE(plan->edge[0].gradient && plan->edge[1].gradient && plan->edge[2].gradient);
    /* No parameter upstream: no gradient. */
    graph = toy::graph({desc("source", "x"), desc("join", "j"), dense("a", 8), desc("loss", "l")});
    plan = toy::plan(graph, 2, {0, 2});
    ASSERT_EQ(plan->edges, 1);
    EXPECT_FALSE(plan->edge[0].gradient);
}

TEST(IrPlan, StagesCycleOverPositions) {
    toy::graph_ptr graph = toy::chain(6);
    toy::plan_ptr plan = toy::even_plan(graph, 2, 6);
    for (int s = 0; s < 6; s++) {
        EXPECT_EQ(plan->stage[s].position, s % 2);
        EXPECT_EQ(plan->stage[s].replicas, 1);
        for (int n = plan->stage[s].first; n < plan->stage[s].last; n++) {
            EXPECT_EQ(crl_plan_stage_of(plan.get(), n), s);
        }
    }
    EXPECT_EQ(plan->stage[0].first, 0);
    EXPECT_EQ(plan->stage[5].last, graph->nodes);
}

TEST(IrPlan, RefusesBadCuts) {
    toy::graph_ptr graph = toy::chain(4);
    crl_plan *plan = nullptr;
    auto refused = [&](int positions, const int *first, const int *position = nullptr,
                       const int *widths = nullptr) {
        const crl_plan_config config = {graph.get(), positions, 3, first, position, widths};
        crl_error_clear();
        EXPECT_EQ(crl_plan_create(&plan, &config), CRL_STATUS_INVALID);
        return std::string(crl_error_message());
    };
    const int equal[] = {0, 2, 2}, late[] = {1, 2, 3}, beyond[] = {0, 2, 6}, good[] = {0, 2, 3};
    const int outside[] = {0, 1, 2}, unused[] = {0, 0, 0}, none[] = {1, 0, 1};
    EXPECT_EQ(refused(3, equal),
              "plan: stage 2 begins at node 2, expected more than 2 and less than 6");
    EXPECT_EQ(refused(3, late), "plan: stage 0 begins at node 1, expected 0");
    EXPECT_EQ(refused(3, beyond),
              "plan: stage 2 begins at node 6, expected more than 2 and less than 6");
    EXPECT_EQ(refused(2, good), "plan: 3 stages on 2 positions, expected a multiple");
    EXPECT_EQ(refused(0, good), "plan: 3 stages on 0 positions, expected 1 or more");
    EXPECT_EQ(refused(2, good, outside), "plan: stage 2 on position 2, expected less than 2");
    EXPECT_EQ(refused(2, good, unused), "plan: position 1 has no stage");
    EXPECT_EQ(refused(3, good, nullptr, none),
              "plan: position 1 has 0 replicas, expected 1 or more");
    EXPECT_EQ(plan, nullptr);
}

TEST(IrPlan, StagesSitWhereTheyAreTold) {
    toy::graph_ptr graph = toy::chain(4);
    const int first[] = {0, 2, 3, 4}, vee[] = {0, 1, 1, 0}, widths[] = {3, 1};
    const crl_plan_config config = {graph.get(), 2, 4, first, vee, widths};
    crl_plan *out = nullptr;
    ASSERT_EQ(crl_plan_create(&out, &config), CRL_STATUS_OK) << crl_error_message();
    toy::plan_ptr plan(out);
    for (int s = 0; s < 4; s++) {
        EXPECT_EQ(plan->stage[s].position, vee[s]);
        EXPECT_EQ(plan->stage[s].replicas, widths[vee[s]]);
    }
}

TEST(IrPlan, CutBytesCountEveryValueThatCrosses) {
    toy::graph_ptr graph = skip_graph();
    const size_t value = 2 * 8 * 4;
    EXPECT_EQ(crl_graph_cut_bytes(graph.get(), 0), 0u);
    EXPECT_EQ(crl_graph_cut_bytes(graph.get(), 2), 0u); /* only inputs before it */
    EXPECT_EQ(crl_graph_cut_bytes(graph.get(), 3), value);
    EXPECT_EQ(crl_graph_cut_bytes(graph.get(), 4), 2 * value); /* b and the skipping a */
    EXPECT_EQ(crl_graph_cut_bytes(graph.get(), 5), 2 * value);
    EXPECT_EQ(crl_graph_cut_bytes(graph.get(), 6), value);
}

TEST(IrPlan, LanesCoverMicroBatchesInOrder) {
    for (int lanes = 1; lanes <= 16; lanes *= 2) {
        for (int micro_batches = 1; micro_batches <= 40; micro_batches++) {
            int next = 0;
            for (int lane = 0; lane < lanes; lane++) {
                const crl_range range = crl_lane_micro_batches(lane, lanes, micro_batches);
                EXPECT_EQ(range.first, next);
                EXPECT_GE(range.last, range.first);
                next = range.last;
            }
            EXPECT_EQ(next, micro_batches);
            for (int replicas = 1; replicas <= lanes; replicas++) {
                next = 0;
                for (int r = 0; r < replicas; r++) {
                    const crl_range lane = crl_replica_lanes(r, replicas, lanes);
                    const crl_range mine =
                        crl_replica_micro_batches(r, replicas, lanes, micro_batches);
                    EXPECT_EQ(mine.first, next);
                    EXPECT_EQ(
                        mine.last,
                        lane.last == 0
                            ? 0
                            : crl_lane_micro_batches(lane.last - 1, lanes, micro_batches).last);
                    next = mine.last;
                }
                EXPECT_EQ(next, micro_batches);
            }
        }
    }
}
