/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Measuring nodes; see profile.h. The times of a node are medians over the rounds. Their sum misses
 * what goes on between nodes and what single rounds take longer, so all are scaled to the median
 * time that whole rounds were computing.
 */
#include "engine/run/profile.h"

#include <math.h>
#include <string.h>

#include "engine/base/alloc.h"
#include "engine/base/registry.h"
#include "engine/base/thread.h"
#include "engine/run/counted.h"
#include "engine/run/hosts.h"
#include "engine/run/measure_internal.h"
#include "engine/run/run_internal.h"
#include "engine/run/update.h"

enum { ROUNDS = 7, MICRO_BATCHES = 4, PROFILE_CHANNEL = 3 };

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

/* One rank's measuring. */
typedef struct measuring {
    const crl_measure_config *config;
    const crl_settings *alone;
    crl_group all;
    crl_layout *layout;
    crl_rank *rank;
    crl_loss *loss;
    char *zeros;
    int64_t *node_ns; /* (nodes × CRL_PHASES) of the round under way */
    double *sample_s; /* (nodes × CRL_PHASES + TOTALS)(rounds) */
    double *result_s; /* (nodes × CRL_PHASES + TOTALS) medians, then averages */
    double *gather;
} measuring;

enum { TOTAL_BUSY = 0, TOTAL_ADD, TOTAL_UPDATE, TOTALS }; /* rows after the nodes' */

static size_t nodes_rows(const measuring *m) {
    return (size_t)m->layout->graph->nodes * CRL_PHASES;
}

static double *total(const measuring *m, double *row, int which, int stride) {
    return row + (nodes_rows(m) + (size_t)which) * (size_t)stride;
}

/* As many threads as training with so many ranks would take. */
static crl_status set_threads(const measuring *m) {
    crl_host_numbers hosts;
    int threads = (int)m->alone->run.threads;
    if (threads == 0) {
        CRL_TRY(crl_hosts_gather(&hosts, m->all.comm, 0));
        threads = crl_cpu_count() / hosts.ranks_here;
    }
    crl_kernels_set_threads(threads < 1 ? 1 : threads);
    return CRL_STATUS_OK;
}

static crl_status prepare(measuring *m) {
    size_t largest = 0;
    const size_t micro_batches = (size_t)m->config->micro_batches;
    CRL_TRY(set_threads(m));
    CRL_TRY(crl_layout_create(&m->layout, m->alone, m->config->registries, NULL));
    const crl_graph *graph = m->layout->graph;
    for (int v = 0; v < graph->values; v++) {
        if (graph->value[v].from_input && graph->value[v].bytes > largest) {
            largest = graph->value[v].bytes;
        }
    }
    CRL_TRY(crl_rank_create(&m->rank, m->layout, 0, true));
    CRL_TRY(crl_rank_bind(m->rank, m->all.comm));
    CRL_TRY(crl_params_init(m->rank->params, (uint64_t)m->alone->train.seed));
    const size_t rows = nodes_rows(m) + TOTALS;
    CRL_TRY(crl_alloc(&m->zeros, largest * micro_batches, 1));
    CRL_TRY(crl_alloc(&m->loss, micro_batches, sizeof *m->loss));
    CRL_TRY(crl_alloc(&m->node_ns, rows, sizeof *m->node_ns));
    CRL_TRY(crl_alloc(&m->sample_s, rows * (size_t)m->config->rounds, sizeof(double)));
    CRL_TRY(crl_alloc(&m->gather, rows * (size_t)m->all.size, sizeof(double)));
    return crl_alloc(&m->result_s, rows, sizeof(double));
}

static void finish(measuring *m) {
    crl_rank_destroy(m->rank);
    crl_layout_destroy(m->layout);
    crl_free(m->zeros);
    crl_free(m->loss);
    crl_free(m->node_ns);
    crl_free(m->sample_s);
    crl_free(m->gather);
    crl_free(m->result_s);
}

/* Adding, and what follows the sums: the norm and an update that changes nothing. */
static crl_status run_sums(measuring *m, double *out_add_s, double *out_update_s) {
    const crl_params *params = m->rank->params;
    const crl_graph *graph = m->layout->graph;
    const crl_reduce_ops *reduce = crl_kernels_cpu.reduce;
    const int64_t count = params->weight_elements < params->gradient_elements
                              ? params->weight_elements
                              : params->gradient_elements;
    CRL_TRY(crl_barrier(&m->all));
    const int64_t begin_ns = crl_clock_ns();
    CRL_TRY(reduce->add(NULL, params->gradients, params->weights, count));
    const int64_t added_ns = crl_clock_ns();
    for (int p = 0; p < graph->params; p++) {
        double squares = 0;
        CRL_TRY(reduce->sum_squares(NULL, crl_grad_sync_gradient(m->rank->sync, p),
                                    graph->param[p].elements, &squares));
    }
    const crl_update update = {.step = 1};
    CRL_TRY(crl_update_run(m->rank, &update));
    *out_add_s = (double)(added_ns - begin_ns) * 1e-9;
    *out_update_s = (double)(crl_clock_ns() - added_ns) * 1e-9;
    return CRL_STATUS_OK;
}

/* One round; its times go into column `round`, none of them when it is below 0. */
static crl_status run_round(measuring *m, int round) {
    const void *field[CRL_EXECUTOR_MAX_FIELDS];
    const int stride = m->config->rounds, batches = m->config->micro_batches;
    double add_s = 0, update_s = 0;
    for (int f = 0; f < CRL_EXECUTOR_MAX_FIELDS; f++) {
        field[f] = m->zeros;
    }
    crl_executor_step step = {
        .training = true, .samples = m->alone->train.global_batch, .field = field, .loss = m->loss};
    memset(m->node_ns, 0, nodes_rows(m) * sizeof *m->node_ns);
    crl_executor_profile(m->rank->executor, m->node_ns);
    CRL_TRY(crl_barrier(&m->all));
    crl_grad_sync_begin(m->rank->sync);
    CRL_TRY(crl_executor_run(m->rank->executor, &step));
    CRL_TRY(crl_grad_sync_finish(m->rank->sync));
    CRL_TRY(run_sums(m, &add_s, &update_s));
    if (round >= 0) {
        for (size_t i = 0; i < nodes_rows(m); i++) {
            m->sample_s[i * (size_t)stride + (size_t)round] =
                (double)m->node_ns[i] * 1e-9 / batches;
        }
        total(m, m->sample_s, TOTAL_BUSY, stride)[round] = (double)step.busy_ns * 1e-9 / batches;
        total(m, m->sample_s, TOTAL_ADD, stride)[round] = add_s;
        total(m, m->sample_s, TOTAL_UPDATE, stride)[round] = update_s;
    }
    return CRL_STATUS_OK;
}

/* Medians over rounds, scaled to whole rounds; then the average over ranks. */
static crl_status summarize(measuring *m) {
    const int rounds = m->config->rounds;
    const size_t rows = nodes_rows(m) + TOTALS;
    double nodes_s = 0;
    for (size_t i = 0; i < rows; i++) {
        m->result_s[i] = crl_measure_median(m->sample_s + i * (size_t)rounds, rounds);
        nodes_s += i < nodes_rows(m) ? m->result_s[i] : 0;
    }
    const double busy_s = *total(m, m->result_s, TOTAL_BUSY, 1);
    for (size_t i = 0; i < nodes_rows(m) && nodes_s > 0; i++) {
        m->result_s[i] *= busy_s / nodes_s;
    }
    memcpy(m->gather + rows * (size_t)m->all.me, m->result_s, rows * sizeof(double));
    CRL_TRY(crl_all_gather(&m->all, m->gather, rows * sizeof(double)));
    for (size_t i = 0; i < rows; i++) {
        double sum = 0;
        for (int r = 0; r < m->all.size; r++) {
            sum += m->gather[rows * (size_t)r + i];
        }
        m->result_s[i] = sum / m->all.size;
    }
    return CRL_STATUS_OK;
}

/* Products of a micro-batch per second, all phases of the nodes that have any. */
static double flops_per_s(const measuring *m) {
    double flops = 0, time_s = 0;
    for (int n = 0; n < m->layout->graph->nodes; n++) {
        const crl_layer_cost *cost = &m->layout->graph->node[n].spec.cost;
        for (int p = 0; p < CRL_PHASES; p++) {
            const bool product = cost->flops[p] > 16 * cost->bytes[p]; /* arithmetic decides */
            flops += product ? cost->flops[p] : 0;
            time_s += product ? m->result_s[n * CRL_PHASES + p] : 0;
        }
    }
    return time_s > 0 ? flops / time_s : 0;
}

static size_t largest_message(const crl_graph *graph) {
    size_t largest = 0;
    for (int v = 0; v < graph->values; v++) {
        const crl_value *value = &graph->value[v];
        const bool sent = value->has_gradient && value->producer + 1 < graph->loss_node;
        largest = sent && value->bytes > largest ? value->bytes : largest;
    }
    return largest;
}

static crl_status fill(crl_measured *out, const measuring *m) {
    const crl_params *params = m->rank->params;
    const double weights_bytes = (double)params->weight_elements * sizeof(float);
    crl_measured_link link;
    CRL_TRY(crl_measure_link(&link, &m->all, largest_message(m->layout->graph)));
    const double add_s = *total(m, m->result_s, TOTAL_ADD, 1);
    const double update_s = *total(m, m->result_s, TOTAL_UPDATE, 1);
    *out = (crl_measured){.ranks = m->all.size,
                          .add_s_per_byte = weights_bytes > 0 ? add_s / weights_bytes : 0,
                          .update_s_per_byte = weights_bytes > 0 ? update_s / weights_bytes : 0,
                          .flops_per_s = flops_per_s(m),
                          .traffic_bytes_per_s = add_s > 0 ? 3 * weights_bytes / add_s : 0,
                          .link = link.link,
                          .message_s = link.message_s};
    CRL_TRY(crl_alloc(&out->node_s, nodes_rows(m), sizeof(double)));
    memcpy(out->node_s, m->result_s, nodes_rows(m) * sizeof(double));
    return CRL_STATUS_OK;
}

typedef struct measure_job {
    const crl_measure_config *config;
    const crl_settings *alone;
    crl_measured *out; /* written by rank 0, by every process where ranks are processes */
} measure_job;

static crl_status measure_rank(void *argument, crl_comm *comm) {
    crl_status status = CRL_STATUS_OK;
    const measure_job *j = argument;
    crl_measured result = {0};
    measuring m = {.config = j->config,
                   .alone = j->alone,
                   .all = {comm, NULL, comm->ranks, comm->rank, PROFILE_CHANNEL}};
    CRL_TRY_OUT(prepare(&m));
    for (int r = -1; r < j->config->rounds; r++) {
        CRL_TRY_OUT(run_round(&m, r));
    }
    CRL_TRY_OUT(summarize(&m));
    CRL_TRY_OUT(fill(&result, &m));
    if (comm->rank == 0 || strcmp(j->alone->comm.transport, "local") != 0) {
        *j->out = result;
        result = (crl_measured){0};
    }
out:
    if (status) {
        crl_comm_abort(comm);
    }
    crl_measured_fini(&result);
    finish(&m);
    return status;
}

crl_status crl_measure(crl_measured *out, const crl_measure_config *config) {
    crl_measure_config full = *config;
    crl_settings alone;
    full.rounds = full.rounds > 0 ? full.rounds : ROUNDS;
    full.micro_batches = full.micro_batches > 0 ? full.micro_batches : MICRO_BATCHES;
    if (full.rounds > CRL_MEASURE_MOST_ROUNDS || full.ranks < 1) {
        return CRL_FAIL(INVALID,
                        "measuring: %d rounds on %d ranks, expected at most %d, at least 1",
                        full.rounds, full.ranks, CRL_MEASURE_MOST_ROUNDS);
    }
    crl_settings_alone(&alone, full.settings, full.registries);
    if (full.ranks > 1) {
        alone.comm.transport = full.settings->comm.transport;
    }
    alone.train.profile = false;
    alone.train.global_batch = alone.train.micro_batch * full.micro_batches;
    measure_job j = {&full, &alone, out};
    return crl_session_launch(&alone, full.registries, full.ranks, measure_rank, &j);
}

void crl_measured_fini(crl_measured *measured) {
    crl_free(measured->node_s);
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
