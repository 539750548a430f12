/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Measuring nodes: a few steps of one micro-batch of zeros on one rank, the median of each node's
 * and phase's times. Used by partitioner `balance` with train.profile.
 */
#include <stdlib.h>

#include "engine/base/alloc.h"
#include "engine/base/registry.h"
#include "engine/run/run_internal.h"

enum { ROUNDS = 5 }; /* after one that warms up */

void crl_settings_alone(crl_settings *out, const crl_settings *settings,
                        const crl_registries *registries) {
    *out = *settings;
    out->parallel.pipeline = out->parallel.data = out->parallel.virtual_stages = 1;
    out->parallel.cuts.count = out->parallel.replicas.count = out->parallel.recompute.count = 0;
    out->parallel.widths = NULL;
    out->parallel.group = 0;
    out->parallel.memory_limit_bytes = 0;
    out->parallel.schedule = ((const crl_plugin *)registries->schedules[0])->name;
    out->parallel.partitioner = ((const crl_plugin *)registries->partitioners[0])->name;
    out->comm.transport = ((const crl_plugin *)registries->transports[0])->name;
    out->lanes = 1;
}

static int ascending(const void *left, const void *right) {
    const int64_t a = *(const int64_t *)left, b = *(const int64_t *)right;
    return (a > b) - (a < b);
}

typedef struct profile_job {
    const crl_settings *settings;
    const crl_registries *registries;
    double *node_s; /* result */
} profile_job;

/* Runs ROUNDS + 1 steps; round r's times are at ns[r · times]. */
static crl_status run_rounds(crl_session *s, int64_t *ns, size_t times, const void *zeros) {
    const void *field[CRL_EXECUTOR_MAX_FIELDS];
    for (int f = 0; f < CRL_EXECUTOR_MAX_FIELDS; f++) {
        field[f] = zeros;
    }
    for (int r = -1; r < ROUNDS; r++) {
        crl_executor_step step = {.training = true,
                                  .samples = s->settings->train.micro_batch,
                                  .field = field,
                                  .loss = s->stepper.loss};
        crl_executor_profile(s->rank->executor, r < 0 ? NULL : ns + (size_t)r * times);
        crl_grad_sync_begin(s->rank->sync);
        CRL_TRY(crl_executor_run(s->rank->executor, &step));
        CRL_TRY(crl_grad_sync_finish(s->rank->sync));
    }
    return CRL_STATUS_OK;
}

static crl_status profile_rank(void *argument, crl_comm *comm) {
    profile_job *j = argument;
    crl_status status = CRL_STATUS_OK;
    crl_session s = {0};
    int64_t *ns = NULL, round[ROUNDS];
    void *zeros = NULL;
    size_t largest = 0;
    CRL_TRY_OUT(crl_session_open(&s, j->settings, j->registries, comm, true));
    const crl_graph *graph = s.layout->graph;
    const size_t times = (size_t)graph->nodes * CRL_PHASES;
    for (int v = 0; v < graph->values; v++) {
        if (graph->value[v].from_input && graph->value[v].bytes > largest) {
            largest = graph->value[v].bytes;
        }
    }
    CRL_TRY_OUT(crl_alloc(&zeros, largest, 1));
    CRL_TRY_OUT(crl_alloc(&ns, times * ROUNDS, sizeof *ns));
    CRL_TRY_OUT(run_rounds(&s, ns, times, zeros));
    CRL_TRY_OUT(crl_alloc(&j->node_s, times, sizeof *j->node_s));
    for (size_t i = 0; i < times; i++) {
        for (size_t r = 0; r < ROUNDS; r++) {
            round[r] = ns[r * times + i];
        }
        qsort(round, ROUNDS, sizeof round[0], ascending);
        j->node_s[i] = (double)round[ROUNDS / 2] * 1e-9;
    }
out:
    crl_session_close(&s, status != CRL_STATUS_OK);
    crl_free(ns);
    crl_free(zeros);
    return status;
}

crl_status crl_layout_profile(double **out, const crl_settings *settings,
                              const crl_registries *registries) {
    crl_settings alone;
    crl_settings_alone(&alone, settings, registries);
    alone.train.profile = false;
    alone.train.global_batch = alone.train.micro_batch;
    profile_job j = {&alone, registries, NULL};
    CRL_TRY(crl_session_launch(&alone, registries, 1, profile_rank, &j));
    *out = j.node_s;
    return CRL_STATUS_OK;
}
