// SPDX-License-Identifier: Apache-2.0
// Measured profiles: what is there, never how long it takes.
#include "engine/run/profile.h"

#include <gtest/gtest.h>

#include <cmath>

#include "engine/base/alloc.h"
#include "engine/run/counted.h"
#include "engine/run/stage_layout.h"
#include "tests/layouts/job.h"

namespace {

struct Measured {
    explicit Measured(const job::Sets &sets, int ranks, bool split = true) : settings(sets) {
        crl_measure_config config = {};
        config.settings = settings.get();
        config.registries = crl_builtins();
        config.ranks = ranks;
        config.micro_batches = 2;
        config.rounds = 3;
        config.split = split;
        EXPECT_EQ(settings.status(), CRL_STATUS_OK) << crl_error_message();
        EXPECT_EQ(crl_measure(&measured, &config), CRL_STATUS_OK) << crl_error_message();
        EXPECT_EQ(crl_layout_graph(&graph, settings.get(), crl_builtins(),
                                   settings.get()->train.micro_batch),
                  CRL_STATUS_OK);
        EXPECT_EQ(crl_measured_profile(&profile, &measured, settings.get(), crl_builtins()),
                  CRL_STATUS_OK);
    }
    ~Measured() {
        crl_measured_fini(&measured);
        crl_profile_destroy(profile);
        crl_graph_destroy(graph);
    }
    job::Settings settings;
    crl_measured measured = {};
    crl_graph *graph = nullptr;
    crl_profile *profile = nullptr;
};

void ExpectTimesWhereThereIsWork(const Measured &m) {
    for (int n = 0; n < m.graph->nodes; n++) {
        const crl_node &node = m.graph->node[n];
        const double *s = &m.measured.node_s[n * CRL_PHASES];
        EXPECT_EQ(s[CRL_PHASE_FORWARD] > 0, !node.layer->is_input) << node.name;
        EXPECT_EQ(s[CRL_PHASE_WEIGHT] > 0, node.spec.params > 0) << node.name;
        bool wanted = false;
        for (int i = 0; i < node.spec.inputs; i++) {
            wanted = wanted || crl_graph_slot_has_gradient(m.graph, n, i);
        }
        EXPECT_EQ(s[CRL_PHASE_INPUT] > 0, wanted) << node.name;
        EXPECT_GE(m.measured.split_s[n], 0) << node.name;
    }
}

TEST(LayoutsProfile, RanksMeasureAllThatWorks) {
    const Scratch scratch;
    const Measured m(job::Gpt(scratch), 2);
    ExpectTimesWhereThereIsWork(m);
    EXPECT_EQ(m.measured.ranks, 2);
    EXPECT_GT(m.measured.add_s_per_byte, 0);
    EXPECT_GT(m.measured.update_s_per_byte, 0);
    EXPECT_GT(m.measured.link.latency_s, 0);
    EXPECT_GT(m.measured.message_s, 0);
    const crl_machine machine = crl_measured_machine(&m.measured, "here");
    EXPECT_EQ(crl_machine_check(&machine), CRL_STATUS_OK) << crl_error_message();
    EXPECT_EQ(machine.devices_per_node, 2);
    EXPECT_EQ(machine.within.latency_s, m.measured.link.latency_s);
}

TEST(LayoutsProfile, OneRankHasNoLinksAndNoOther) {
    const Scratch scratch;
    const Measured m(job::Gpt(scratch) + job::Sets{{"comm.transport", "mpi"}}, 1, false);
    ExpectTimesWhereThereIsWork(m);
    EXPECT_EQ(m.measured.link.latency_s, 0);
    EXPECT_EQ(m.measured.message_s, 0);
    for (int n = 0; n < m.graph->nodes; n++) {
        EXPECT_EQ(m.measured.split_s[n], 0);
    }
}

// Everything but the times is counted, whoever measures.
TEST(LayoutsProfile, BytesAndInputsAreTheCounted) {
    const Scratch scratch;
    const Measured m(job::Gpt(scratch), 1, false);
    crl_profile *counted = nullptr;
    ASSERT_EQ(crl_profile_counted(&counted, m.graph, crl_counted_nominal(), nullptr, 2),
              CRL_STATUS_OK);
    ASSERT_EQ(m.profile->units, counted->units);
    EXPECT_EQ(crl_profile_check(m.profile), CRL_STATUS_OK) << crl_error_message();
    for (int u = 0; u < counted->units; u++) {
        for (const crl_profile_number *n = crl_profile_numbers; n->name; n++) {
            const auto at = [n](const crl_profile_unit &unit) {
                return *reinterpret_cast<const double *>(reinterpret_cast<const char *>(&unit) +
                                                         n->offset);
            };
            if (n->seconds) { // whole nanoseconds
                EXPECT_EQ(at(m.profile->unit[u]),
                          std::floor(at(m.profile->unit[u]) * 1e9 + 0.5) / 1e9);
            } else {
                EXPECT_EQ(at(m.profile->unit[u]), at(counted->unit[u])) << n->name;
            }
        }
        EXPECT_EQ(m.profile->unit[u].inputs, counted->unit[u].inputs);
        EXPECT_EQ(m.profile->unit[u].update_s > 0, counted->unit[u].parameter_bytes > 0);
    }
    crl_profile_destroy(counted);
}

TEST(LayoutsProfile, RefusesMoreRoundsThanItKeeps) {
    const Scratch scratch;
    const job::Settings settings(job::Gpt(scratch));
    crl_measured measured = {};
    crl_measure_config config = {};
    config.settings = settings.get();
    config.registries = crl_builtins();
    config.ranks = 1;
    config.rounds = 1000;
    EXPECT_EQ(crl_measure(&measured, &config), CRL_STATUS_INVALID);
}

// Memory runs out at every allocation of a measurement: one error, everything given back.
TEST(LayoutsProfile, EveryAllocationMayFail) {
    const Scratch scratch;
    const job::Settings settings(job::Gpt(scratch) + job::Sets{{"model.layers", "1"},
                                                               {"model.channels", "8"},
                                                               {"model.context", "4"}});
    crl_measure_config config = {};
    config.settings = settings.get();
    config.registries = crl_builtins();
    config.ranks = 2;
    config.micro_batches = config.rounds = 1;
    config.split = true;
    for (int n = 1, step = 1;; n += step) {
        crl_alloc_watch watch = {};
        watch.fail_at = n;
        crl_alloc_watch *const before = crl_alloc_attach(&watch);
        crl_measured measured = {};
        const crl_status status = crl_measure(&measured, &config);
        crl_measured_fini(&measured);
        crl_alloc_attach(before);
        const bool reached = watch.fail_at <= 0;
        EXPECT_EQ(status, reached ? CRL_STATUS_NOMEM : CRL_STATUS_OK) << n << crl_error_message();
        EXPECT_EQ(watch.live_bytes, 0) << n;
        if (!reached) {
            EXPECT_GT(n, 100);
            break;
        }
        step = n < 60 ? 1 : 37;
    }
}

} // namespace
