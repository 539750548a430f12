/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/run/stage_layout.h"

#include <gtest/gtest.h>

#include <memory>
#include <vector>

#include "engine/run/params.h"
#include "tests/ir/toy_model.h"

struct LayoutDeleter {
    void operator()(crl_stage_layout *item) const { crl_stage_layout_destroy(item); }
};
using layout_ptr = std::unique_ptr<crl_stage_layout, LayoutDeleter>;

static layout_ptr layout(const toy::plan_ptr &plan, int stage, bool training, bool split) {
    crl_stage_layout *out = nullptr;
    EXPECT_EQ(crl_stage_layout_create(&out, plan.get(), stage, training, split), CRL_STATUS_OK);
    return layout_ptr(out);
}

/* Every value with a gradient in the stage has exactly one contribution that overwrites: the gradient
 * sent by a later stage, or one consumer's. */
static void expect_one_first_contribution(const crl_plan *plan, int stage,
                                          const crl_stage_layout *at) {
    const crl_graph *graph = plan->graph;
    for (int v = 0; v < graph->values; v++) {
        if (at->gradient[v].block == CRL_BLOCK_NONE) {
            continue;
        }
        int first = 0;
        for (int e = 0; e < plan->edges; e++) {
            first += plan->edge[e].value == v && plan->edge[e].from == stage &&
                     plan->edge[e].gradient;
        }
        for (int c = 0; c < graph->value[v].consumers; c++) {
            const crl_consumer user = graph->value[v].consumer[c];
            if (user.node >= at->first && user.node < at->last) {
                first += !at->accumulate[(user.node - at->first) * CRL_LAYER_MAX_INPUTS + user.slot];
            }
        }
        EXPECT_EQ(first, 1) << graph->value[v].name << " in stage " << stage;
    }
}

TEST(RunStageLayout, GradientsHaveOneFirstContribution) {
    const toy::graph_ptr graph = toy::chain(12);
    for (const std::vector<int> &cuts : std::vector<std::vector<int>>{
             {0}, {0, 5}, {0, 2, 4}, {0, 3, 6, 9}, {0, 4, 5, 12}}) {
        const toy::plan_ptr plan = toy::plan(graph, (int)cuts.size(), cuts);
        for (int s = 0; s < (int)cuts.size(); s++) {
            expect_one_first_contribution(plan.get(), s, layout(plan, s, true, false).get());
            expect_one_first_contribution(plan.get(), s, layout(plan, s, true, true).get());
        }
    }
}

TEST(RunStageLayout, ValuesThatCrossHaveTheirOwnBlock) {
    const toy::graph_ptr graph = toy::chain(6);
    const toy::plan_ptr plan = toy::plan(graph, 2, {0, 3});
    const layout_ptr at = layout(plan, 0, true, false);
    ASSERT_GT(plan->edges, 0);
    for (int e = 0; e < plan->edges; e++) {
        const crl_place place = at->value[plan->edge[e].value];
        ASSERT_GE(place.block, 0);
        EXPECT_EQ(at->block[place.block].edge_out, e);
        EXPECT_EQ(at->block[place.block].bytes % 64, 0u);
    }
}

TEST(RunStageLayout, OnlyASplitBackwardHoldsGradients) {
    const toy::graph_ptr graph = toy::chain(6);
    const toy::plan_ptr plan = toy::plan(graph, 1, {0});
    const unsigned weight = 1u << CRL_ACTION_WEIGHT, forward = 1u << CRL_ACTION_FORWARD;
    for (const bool split : {false, true}) {
        const layout_ptr at = layout(plan, 0, true, split);
        bool held = false;
        for (int b = 0; b < at->blocks; b++) {
            const unsigned touched = at->block[b].touched_by;
            held = held || ((touched & weight) && !(touched & forward));
        }
        EXPECT_EQ(held, split);
    }
}

TEST(RunStageLayout, EvaluationKeepsNothingForBackward) {
    const toy::graph_ptr graph = toy::chain(6);
    const toy::plan_ptr plan = toy::plan(graph, 1, {0});
    const layout_ptr at = layout(plan, 0, false, false);
    EXPECT_EQ(at->backward_bytes, 0u);
    EXPECT_EQ(at->blocks, 0);
    EXPECT_GT(at->forward_bytes, 0u);
}

TEST(RunParams, UsesFillTheFlatGradientByStageAndNode) {
    const toy::graph_ptr graph = toy::chain(7);
    const toy::plan_ptr plan = toy::plan(graph, 2, {0, 4});
    int64_t weights = 0;
    for (int position = 0; position < 2; position++) {
        crl_params *params = nullptr;
        crl_params_config config = {};
        config.plan = plan.get();
        config.position = position;
        config.lane_buffers = 3;
        config.states = 2;
        ASSERT_EQ(crl_params_create(&params, &config), CRL_STATUS_OK);
        int64_t end = 0;
        for (int u = 0; u < params->uses; u++) {
            EXPECT_EQ(params->use[u].offset % 16, 0);
            EXPECT_GE(params->use[u].offset, end);
            end = params->use[u].offset + params->use[u].elements;
        }
        EXPECT_LE(end, params->gradient_elements);
        EXPECT_EQ(crl_params_gradients_bytes(params), (size_t)params->gradient_elements * 4 * 3);
        EXPECT_EQ(crl_params_states_bytes(params), 2 * crl_params_weights_bytes(params));
        weights += params->weight_elements;
        crl_params_destroy(params);
    }
    EXPECT_GE(weights, crl_graph_param_elements(graph.get()));
}
