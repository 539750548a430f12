/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Timing the nodes of a whole model on every rank of a group, all at the same time. The times of a
 * node are medians over rounds. Their sum misses what goes on between nodes and what single rounds
 * take longer, so all are scaled to the median time that whole rounds were computing.
 *
 *     whole   F0 F1 B0 F2 B1 F3 B2 B3                  a few in flight, as on most positions
 *     split   F0 F1 I0 F2 I1 W0 F3 I2 W1 I3 W2 W3      weight gradients come late, as in schedules
 *                                                      that fill bubbles with them
 */
#include <string.h>

#include "engine/base/alloc.h"
#include "engine/base/registry.h"
#include "engine/base/thread.h"
#include "engine/run/hosts.h"
#include "engine/run/measure_internal.h"
#include "engine/run/update.h"

enum { LEAST_ROUNDS = 3 };
static const int64_t enough_ns = 20000000000;

static crl_status append_whole(crl_program *program, int micro_batches) {
    for (int m = 0; m <= micro_batches; m++) {
        if (m < micro_batches) {
            CRL_TRY(crl_program_append(program, 0, CRL_ACTION_FORWARD, 0, m));
        }
        if (m > 0) {
            CRL_TRY(crl_program_append(program, 0, CRL_ACTION_BACKWARD, 0, m - 1));
        }
    }
    return CRL_STATUS_OK;
}

static crl_status append_split(crl_program *program, int micro_batches) {
    for (int m = 0; m <= micro_batches + 1; m++) {
        if (m < micro_batches) {
            CRL_TRY(crl_program_append(program, 0, CRL_ACTION_FORWARD, 0, m));
        }
        if (m > 0 && m <= micro_batches) {
            CRL_TRY(crl_program_append(program, 0, CRL_ACTION_INPUT, 0, m - 1));
        }
        if (m > 1) {
            CRL_TRY(crl_program_append(program, 0, CRL_ACTION_WEIGHT, 0, m - 2));
        }
    }
    return CRL_STATUS_OK;
}

static crl_status build(crl_program **out, const crl_schedule_request *request,
                        crl_status (*append)(crl_program *, int)) {
    crl_program *program = NULL;
    CRL_TRY(crl_program_create(&program, 1, 1, request->micro_batches));
    const crl_status status = append(program, request->micro_batches);
    if (status) {
        crl_program_destroy(program);
        return status;
    }
    *out = program;
    return CRL_STATUS_OK;
}

static crl_status build_whole(crl_program **out, const crl_schedule_request *request) {
    return build(out, request, append_whole);
}

static crl_status build_split(crl_program **out, const crl_schedule_request *request) {
    return build(out, request, append_split);
}

static double no_bubble(const crl_schedule_request *request) {
    (void)request;
    return 0;
}

static int two_in_flight(const crl_schedule_request *request, int stage) {
    (void)stage;
    return request->micro_batches < 2 ? request->micro_batches : 2;
}

static const crl_schedule schedule_whole = {.name = "whole",
                                            .help = "measured: backward at once",
                                            .least_virtual = 1,
                                            .most_virtual = 1,
                                            .build = build_whole,
                                            .bubble = no_bubble,
                                            .peak_activations = two_in_flight};
static const crl_schedule schedule_split = {.name = "split",
                                            .help = "measured: backward in halves",
                                            .least_virtual = 1,
                                            .most_virtual = 1,
                                            .build = build_split,
                                            .bubble = no_bubble,
                                            .peak_activations = two_in_flight};
static const void *const schedules[] = {&schedule_whole, &schedule_split, NULL};

/* One rank's rounds of one program. */
typedef struct rounds {
    const crl_measure_config *config;
    int count; /* of rounds: at most config->rounds */
    const crl_group *all;
    crl_settings settings;
    crl_registries registries; /* with the schedules above */
    crl_layout *layout;
    crl_stream *stream;
    crl_rank *rank;
    char *zeros;
    int64_t *node_ns; /* (node rows) of the round under way */
    double *sample_s; /* (rows)(rounds) */
    double *gather;   /* (ranks)(rows) */
} rounds;

static size_t node_rows(const rounds *m) {
    return (size_t)m->layout->graph->nodes * CRL_PHASES;
}

static size_t all_rows(const rounds *m) {
    return node_rows(m) + CRL_MEASURE_TOTALS;
}

static crl_status begin(rounds *m) {
    size_t largest = 0;
    int64_t most = 0;
    const size_t micro_batches = (size_t)m->config->micro_batches;
    const crl_device *device = m->settings.backend->device;
    int threads; /* as many as training with so many ranks would take */
    CRL_TRY(crl_hosts_choose_device(&m->stream, &threads, m->all->comm, &m->settings));
    CRL_TRY(crl_layout_create(&m->layout, &m->settings, &m->registries, NULL));
    const crl_graph *graph = m->layout->graph;
    for (int v = 0; v < graph->values; v++) {
        if (graph->value[v].from_input && graph->value[v].bytes > largest) {
            largest = graph->value[v].bytes;
        }
    }
    CRL_TRY(crl_rank_create(&m->rank, m->layout, 0, true, m->stream));
    CRL_TRY(crl_hosts_reserve(&most, m->all->comm, device, m->rank->memory.total_bytes));
    CRL_TRY(crl_rank_bind(m->rank, m->all->comm));
    CRL_TRY(crl_params_init(m->rank->params, (uint64_t)m->settings.train.seed));
    CRL_TRY(crl_params_round(m->rank->params, m->settings.backend));
    CRL_TRY(crl_device_host_alloc(device, &m->zeros, largest * micro_batches));
    CRL_TRY(crl_alloc(&m->node_ns, node_rows(m), sizeof *m->node_ns));
    CRL_TRY(crl_alloc(&m->sample_s, all_rows(m) * (size_t)m->config->rounds, sizeof(double)));
    return crl_alloc(&m->gather, all_rows(m) * (size_t)m->all->size, sizeof(double));
}

static void end(rounds *m) {
    crl_rank_destroy(m->rank);
    crl_layout_destroy(m->layout);
    crl_device_host_free(m->settings.backend->device, m->zeros);
    crl_device_stream_destroy(m->settings.backend->device, m->stream);
    crl_free(m->node_ns);
    crl_free(m->sample_s);
    crl_free(m->gather);
}

/* Adding, and what follows the sums: the norm and an update that changes nothing. */
static crl_status run_sums(rounds *m, double *out_add_s, double *out_update_s) {
    const crl_params *params = m->rank->params;
    const crl_graph *graph = m->layout->graph;
    const crl_reduce_ops *reduce = m->settings.backend->f32->reduce;
    const crl_device *device = m->settings.backend->device;
    const int64_t count = params->weight_elements < params->gradient_elements
                              ? params->weight_elements
                              : params->gradient_elements;
    CRL_TRY(crl_device_stream_wait(device, m->stream));
    CRL_TRY(crl_barrier(m->all));
    const int64_t begin_ns = crl_clock_ns();
    CRL_TRY(reduce->add(m->stream, params->gradients, params->weights, count));
    CRL_TRY(crl_device_stream_wait(device, m->stream));
    const int64_t added_ns = crl_clock_ns();
    for (int p = 0; p < graph->params; p++) {
        CRL_TRY(reduce->sum_squares(m->stream, crl_grad_sync_gradient(m->rank->sync, p),
                                    graph->param[p].elements, &m->rank->squares[p]));
    }
    const crl_update update = {.step = 1};
    CRL_TRY(crl_update_run(m->rank, &update));
    CRL_TRY(crl_device_stream_wait(device, m->stream));
    *out_add_s = (double)(added_ns - begin_ns) * 1e-9;
    *out_update_s = (double)(crl_clock_ns() - added_ns) * 1e-9;
    return CRL_STATUS_OK;
}

static void keep_sample(rounds *m, size_t row, int round, double value) {
    if (round >= 0) {
        m->sample_s[row * (size_t)m->config->rounds + (size_t)round] = value;
    }
}

/* One round; its times go into column `round`, none of them when it is below 0. */
static crl_status run_round(rounds *m, int round) {
    const void *field[CRL_EXECUTOR_MAX_FIELDS];
    const int batches = m->config->micro_batches;
    double add_s = 0, update_s = 0;
    for (int f = 0; f < CRL_EXECUTOR_MAX_FIELDS; f++) {
        field[f] = m->zeros;
    }
    crl_executor_step step = {.training = true,
                              .samples = m->settings.train.global_batch,
                              .field = field,
                              .loss = m->rank->loss,
                              .loss_scale = 1};
    memset(m->node_ns, 0, node_rows(m) * sizeof *m->node_ns);
    crl_executor_profile(m->rank->executor, m->node_ns);
    CRL_TRY(crl_barrier(m->all));
    crl_grad_sync_begin(m->rank->sync);
    CRL_TRY(crl_executor_run(m->rank->executor, &step));
    CRL_TRY(crl_grad_sync_finish(m->rank->sync));
    CRL_TRY(run_sums(m, &add_s, &update_s));
    for (size_t i = 0; i < node_rows(m); i++) {
        keep_sample(m, i, round, (double)m->node_ns[i] * 1e-9 / batches);
    }
    keep_sample(m, node_rows(m) + CRL_MEASURE_BUSY, round, (double)step.busy_ns * 1e-9 / batches);
    keep_sample(m, node_rows(m) + CRL_MEASURE_ADD, round, add_s);
    keep_sample(m, node_rows(m) + CRL_MEASURE_UPDATE, round, update_s);
    return CRL_STATUS_OK;
}

/* Medians over rounds, scaled to whole rounds; then the average over ranks. (rows) */
static crl_status summarize(const rounds *m, double *out_s) {
    const size_t stride = (size_t)m->config->rounds;
    const size_t rows = all_rows(m), nodes = node_rows(m);
    double nodes_s = 0;
    for (size_t i = 0; i < rows; i++) {
        out_s[i] = crl_measure_median(m->sample_s + i * stride, m->count);
        nodes_s += i < nodes ? out_s[i] : 0;
    }
    for (size_t i = 0; i < nodes && nodes_s > 0; i++) {
        out_s[i] *= out_s[nodes + CRL_MEASURE_BUSY] / nodes_s;
    }
    memcpy(m->gather + rows * (size_t)m->all->me, out_s, rows * sizeof(double));
    CRL_TRY(crl_all_gather(m->all, m->gather, rows * sizeof(double)));
    for (size_t i = 0; i < rows; i++) {
        double sum = 0;
        for (int r = 0; r < m->all->size; r++) {
            sum += m->gather[rows * (size_t)r + i];
        }
        out_s[i] = sum / m->all->size;
    }
    return CRL_STATUS_OK;
}

/* The round that warms up; large models then make fewer than was asked for. */
static crl_status warm_up(rounds *m) {
    const int64_t begin_ns = crl_clock_ns();
    CRL_TRY(run_round(m, -1));
    const int64_t fit = enough_ns / (crl_clock_ns() - begin_ns + 1);
    m->count = fit < LEAST_ROUNDS ? LEAST_ROUNDS : fit < 1000 ? (int)fit : 1000;
    m->count = m->count < m->config->rounds ? m->count : m->config->rounds;
    return crl_broadcast(m->all, 0, &m->count, sizeof m->count);
}

crl_status crl_measure_nodes(double *out_s, const crl_measure_config *config, bool split,
                             const crl_group *all) {
    crl_status status = CRL_STATUS_OK;
    rounds m = {.config = config, .all = all, .registries = *config->registries};
    m.registries.schedules = schedules;
    crl_settings_alone(&m.settings, config->settings, &m.registries);
    m.settings.parallel.schedule = split ? schedule_split.name : schedule_whole.name;
    m.settings.train.profile = false;
    m.settings.train.global_batch = m.settings.train.micro_batch * config->micro_batches;
    CRL_TRY_OUT(begin(&m));
    CRL_TRY_OUT(warm_up(&m));
    for (int r = 0; r < m.count; r++) {
        CRL_TRY_OUT(run_round(&m, r));
    }
    CRL_TRY_OUT(summarize(&m, out_s));
out:
    if (status) {
        crl_comm_abort(all->comm);
    }
    end(&m);
    return status;
}
