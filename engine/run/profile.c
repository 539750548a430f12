/* SPDX-License-Identifier: Apache-2.0 */
/* The job of measuring; see profile.h. */
#include "engine/run/profile.h"

#include <string.h>

#include "engine/base/alloc.h"
#include "engine/base/registry.h"
#include "engine/run/measure_internal.h"

enum { ROUNDS = 7, MICRO_BATCHES = 4, PROFILE_CHANNEL = 3 };

void crl_settings_alone(crl_settings *out, const crl_settings *settings,
                        const crl_registries *registries) {
    *out = *settings;
    out->parallel.pipeline = out->parallel.data = out->parallel.virtual_stages = 1;
    out->parallel.cuts.count = out->parallel.replicas.count = out->parallel.recompute.count = 0;
    out->parallel.widths = NULL;
    out->parallel.profile = out->parallel.machine = "";
    out->parallel.group = 0;
    out->parallel.memory_limit_bytes = 0;
    out->parallel.schedule = ((const crl_plugin *)registries->schedules[0])->name;
    out->parallel.partitioner = ((const crl_plugin *)registries->partitioners[0])->name;
    out->comm.transport = ((const crl_plugin *)registries->transports[0])->name;
    out->numerics.lanes = 1;
}

/* Arithmetic of the products of a micro-batch per second. */
static double flops_per_s(const crl_graph *graph, const double *node_s) {
    double flops = 0, time_s = 0;
    for (int n = 0; n < graph->nodes; n++) {
        const crl_layer_cost *cost = &graph->node[n].spec.cost;
        for (int p = 0; p < CRL_PHASES; p++) {
            const bool product = cost->flops[p] > 16 * cost->bytes[p]; /* arithmetic decides */
            flops += product ? cost->flops[p] : 0;
            time_s += product ? node_s[n * CRL_PHASES + p] : 0;
        }
    }
    return time_s > 0 ? flops / time_s : 0;
}

/* As cuts between blocks make it. */
static size_t largest_message(const crl_graph *graph) {
    size_t largest = 0;
    for (int v = 0; v < graph->values; v++) {
        const crl_value *value = &graph->value[v];
        const bool skips = value->consumers > 1 && value->has_gradient;
        largest = skips && value->bytes > largest ? value->bytes : largest;
    }
    return largest;
}

static double weights_bytes(const crl_graph *graph) {
    return (double)crl_graph_param_elements(graph) * sizeof(float);
}

/* One rank's part. */
typedef struct measuring {
    const crl_measure_config *config;
    crl_group all;
    crl_graph *graph;
    double *whole_s, *split_s; /* as crl_measure_nodes gives them */
} measuring;

static crl_status fill(crl_measured *out, const measuring *m) {
    const size_t nodes = (size_t)m->graph->nodes;
    const double *total = m->whole_s + nodes * CRL_PHASES, bytes = weights_bytes(m->graph);
    crl_measured_link link;
    CRL_TRY(crl_measure_link(&link, &m->all, largest_message(m->graph)));
    out->ranks = m->all.size;
    out->add_s_per_byte = bytes > 0 ? total[CRL_MEASURE_ADD] / bytes : 0;
    out->update_s_per_byte = bytes > 0 ? total[CRL_MEASURE_UPDATE] / bytes : 0;
    out->flops_per_s = flops_per_s(m->graph, m->whole_s);
    out->traffic_bytes_per_s = total[CRL_MEASURE_ADD] > 0 ? 3 * bytes / total[CRL_MEASURE_ADD] : 0;
    out->link = link.link;
    out->message_s = link.message_s;
    CRL_TRY(crl_alloc(&out->node_s, nodes * CRL_PHASES, sizeof(double)));
    CRL_TRY(crl_alloc(&out->split_s, nodes, sizeof(double)));
    memcpy(out->node_s, m->whole_s, nodes * CRL_PHASES * sizeof(double));
    for (size_t n = 0; n < nodes && m->config->split; n++) {
        for (size_t p = CRL_PHASE_INPUT; p < CRL_PHASES; p++) {
            out->split_s[n] += m->split_s[n * CRL_PHASES + p] - m->whole_s[n * CRL_PHASES + p];
        }
        out->split_s[n] = out->split_s[n] > 0 ? out->split_s[n] : 0;
    }
    return CRL_STATUS_OK;
}

typedef struct measure_job {
    const crl_measure_config *config;
    crl_measured *out; /* written by rank 0, by every process where ranks are processes */
    bool processes;
} measure_job;

static crl_status measure_rank(void *argument, crl_comm *comm) {
    crl_status status = CRL_STATUS_OK;
    const measure_job *j = argument;
    const crl_settings *settings = j->config->settings;
    crl_measured result = {0};
    measuring m = {.config = j->config,
                   .all = {comm, NULL, comm->ranks, comm->rank, PROFILE_CHANNEL}};
    CRL_TRY_OUT(
        crl_layout_graph(&m.graph, settings, j->config->registries, settings->train.micro_batch));
    const size_t rows = (size_t)m.graph->nodes * CRL_PHASES + CRL_MEASURE_TOTALS;
    CRL_TRY_OUT(crl_alloc(&m.whole_s, rows, sizeof(double)));
    CRL_TRY_OUT(crl_alloc(&m.split_s, rows, sizeof(double)));
    CRL_TRY_OUT(crl_measure_nodes(m.whole_s, j->config, false, &m.all));
    if (j->config->split) {
        CRL_TRY_OUT(crl_measure_nodes(m.split_s, j->config, true, &m.all));
    }
    CRL_TRY_OUT(fill(&result, &m));
    if (comm->rank == 0 || j->processes) {
        *j->out = result;
        result = (crl_measured){0};
    }
out:
    crl_measured_fini(&result);
    crl_graph_destroy(m.graph);
    crl_free(m.whole_s);
    crl_free(m.split_s);
    return status;
}

crl_status crl_measure(crl_measured *out, const crl_measure_config *config) {
    crl_measure_config full = *config;
    crl_settings settings = *config->settings;
    full.rounds = full.rounds > 0 ? full.rounds : ROUNDS;
    full.micro_batches = full.micro_batches > 0 ? full.micro_batches : MICRO_BATCHES;
    if (full.rounds > CRL_MEASURE_MOST_ROUNDS || full.ranks < 1) {
        return CRL_FAIL(INVALID,
                        "measuring: %d rounds on %d ranks, expected at most %d, at least 1",
                        full.rounds, full.ranks, CRL_MEASURE_MOST_ROUNDS);
    }
    if (full.ranks == 1) {
        settings.comm.transport = ((const crl_plugin *)full.registries->transports[0])->name;
    }
    measure_job j = {&full, out, strcmp(settings.comm.transport, "local") != 0};
    return crl_session_launch(&settings, full.registries, full.ranks, measure_rank, &j);
}

void crl_measured_fini(crl_measured *measured) {
    crl_free(measured->node_s);
    crl_free(measured->split_s);
    *measured = (crl_measured){0};
}

crl_status crl_layout_profile(double **out, const crl_settings *settings,
                              const crl_registries *registries) {
    const crl_measure_config config = {.settings = settings,
                                       .registries = registries,
                                       .ranks = 1,
                                       .micro_batches = 1,
                                       .rounds = 5};
    crl_measured measured = {0};
    CRL_TRY(crl_measure(&measured, &config));
    *out = measured.node_s;
    measured.node_s = NULL;
    crl_measured_fini(&measured);
    return CRL_STATUS_OK;
}
