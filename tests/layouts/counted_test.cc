// SPDX-License-Identifier: Apache-2.0
// Counted profiles of real models, against what can be said by hand and what training reserves.
#include "engine/run/counted.h"

#include <gtest/gtest.h>

#include "tests/layouts/job.h"

namespace {

// The graph and the counted profile of some settings.
struct Counted {
    explicit Counted(const job::Sets &sets, const crl_machine *machine = crl_counted_nominal())
        : settings(sets) {
        EXPECT_EQ(settings.status(), CRL_STATUS_OK) << crl_error_message();
        EXPECT_EQ(crl_layout_graph(&graph, settings.get(), crl_builtins(),
                                   settings.get()->train.micro_batch),
                  CRL_STATUS_OK);
        EXPECT_EQ(crl_profile_counted(&profile, graph, machine, nullptr, 2), CRL_STATUS_OK);
    }
    ~Counted() {
        crl_profile_destroy(profile);
        crl_graph_destroy(graph);
    }
    const crl_profile_unit &unit(const char *name) const {
        const int at = crl_profile_find(profile, name);
        EXPECT_GE(at, 0) << name;
        return profile->unit[at < 0 ? 0 : at];
    }
    double Sum(double crl_profile_unit::*field) const {
        double sum = 0;
        for (int u = 0; u < profile->units; u++) {
            sum += profile->unit[u].*field;
        }
        return sum;
    }
    double Kept(int mode) const {
        double sum = 0;
        for (int u = 0; u < profile->units; u++) {
            sum += profile->unit[u].kept_bytes[mode];
        }
        return sum;
    }
    int unit(int node) const { return crl_profile_find(profile, graph->node[node].name); }
    job::Settings settings;
    crl_graph *graph = nullptr;
    crl_profile *profile = nullptr;
};

TEST(LayoutsCounted, UnitsAreTheNodesButTheDatasets) {
    const Scratch scratch;
    const Counted c(job::Gpt(scratch));
    int unit = 0;
    for (int n = 0; n < c.graph->nodes; n++) {
        const bool input = c.graph->node[n].layer->is_input;
        EXPECT_EQ(c.unit(n), input ? -1 : unit);
        if (input) {
            continue;
        }
        const crl_profile_unit &u = c.profile->unit[unit++];
        EXPECT_STREQ(u.name, c.graph->node[n].name);
        for (int i = 0; i < u.inputs; i++) { // every input is a value that the node reads
            bool reads = false;
            for (int k = 0; k < c.graph->node[n].spec.inputs; k++) {
                const int producer = c.graph->value[c.graph->node[n].input[k]].producer;
                reads = reads || c.unit(producer) == u.input[i];
            }
            EXPECT_TRUE(reads) << u.name;
        }
    }
    EXPECT_EQ(unit, c.profile->units);
    EXPECT_EQ(c.profile->tokens_per_sample, 16);
    EXPECT_EQ(c.profile->micro_batch, 2);
}

TEST(LayoutsCounted, ALinearLayerByHand) {
    const Scratch scratch;
    crl_machine machine = *crl_counted_nominal();
    machine.peak_flops_per_s = 1e9; // slow arithmetic: it alone decides
    machine.efficiency = 0.5;
    machine.memory_bytes_per_s = 1e15;
    machine.launch_s = 1e-3;
    const Counted c(job::Mlp(scratch, "x", "y"), &machine);
    double found = 0;
    for (int n = 0; n < c.graph->nodes; n++) {
        const crl_node &node = c.graph->node[n];
        if (std::string(node.layer->name) != "linear") {
            continue;
        }
        const double in = double(node.spec.input[0].shape.size[1]);
        const double out = double(node.spec.output[0].shape.size[1]);
        const crl_profile_unit &u = c.profile->unit[c.unit(n)];
        EXPECT_NEAR(u.forward_s, 1e-3 + 2 * 8 * in * out / 0.5e9, 0.02 * u.forward_s) << u.name;
        EXPECT_EQ(u.parameter_bytes, 4 * (in * out + out)) << u.name;
        EXPECT_EQ(u.state_bytes, 16 * (in * out + out)) << u.name;
        EXPECT_EQ(u.output_bytes, 4 * 8 * out) << u.name;
        found++;
    }
    EXPECT_EQ(found, 3);
}

TEST(LayoutsCounted, RecomputeTradesBytesForTime) {
    const Scratch scratch;
    const Counted c(job::Gpt(scratch));
    EXPECT_LT(c.Kept(CRL_RECOMPUTE_SELECTIVE), c.Kept(CRL_RECOMPUTE_NONE));
    EXPECT_LT(c.Kept(CRL_RECOMPUTE_FULL), c.Kept(CRL_RECOMPUTE_SELECTIVE));
    double again[CRL_RECOMPUTES] = {};
    for (int u = 0; u < c.profile->units; u++) {
        for (int m = 0; m < CRL_RECOMPUTES; m++) {
            again[m] += c.profile->unit[u].recompute_s[m];
        }
    }
    EXPECT_EQ(again[CRL_RECOMPUTE_NONE], 0);
    EXPECT_GT(again[CRL_RECOMPUTE_SELECTIVE], 0);
    EXPECT_GT(again[CRL_RECOMPUTE_FULL], again[CRL_RECOMPUTE_SELECTIVE]);
    EXPECT_LT(again[CRL_RECOMPUTE_FULL], c.Sum(&crl_profile_unit::forward_s));
}

// What the profile says is held once is what a rank alone reserves for it. A tied matrix is there
// once, but has a gradient per use.
void ExpectStateIsReserved(const char *precision, double weight_bytes) {
    const Scratch scratch;
    const Counted c(job::Gpt(scratch) +
                    job::Sets{{"numerics.lanes", "1"}, {"numerics.precision", precision}});
    crl_layout *layout = nullptr;
    crl_memory_report report = {};
    ASSERT_EQ(crl_layout_create(&layout, c.settings.get(), crl_builtins(), nullptr), CRL_STATUS_OK);
    ASSERT_EQ(crl_layout_memory(&report, layout, 0), CRL_STATUS_OK);
    crl_layout_destroy(layout);
    const double tied = 61 * 32 * (weight_bytes + 2 * 4); // weights and states, counted twice
    const double reserved =
        double(report.weights_bytes + report.gradients_bytes + report.optimizer_bytes);
    EXPECT_NEAR(c.Sum(&crl_profile_unit::state_bytes) - tied, reserved, 0.02 * reserved)
        << precision;
}

TEST(LayoutsCounted, StateIsWhatARankReserves) {
    ExpectStateIsReserved("f32", 4);
    ExpectStateIsReserved("bf16", 4 + 2);
}

} // namespace
