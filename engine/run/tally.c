/* SPDX-License-Identifier: Apache-2.0 */
/* Who gives which number of a step, and how they are added up; see tally.h. */
#include "engine/run/tally.h"

#include <string.h>

#include "engine/base/alloc.h"

enum { LOSS_PARTS = 4, TIME_PARTS = 3, WORLD_CHANNEL = 0 };

crl_status crl_tally_init(crl_tally *t, const crl_rank *rank, crl_comm *comm) {
    const crl_layout *layout = rank->layout;
    *t = (crl_tally){.rank = rank, .world = {comm, NULL, comm->ranks, comm->rank, WORLD_CHANNEL}};
    CRL_TRY(crl_agree_init(&t->losses, &t->world, CRL_TALLY_LOSSES,
                           (int64_t)layout->micro_batches * LOSS_PARTS + 1));
    return crl_agree_init(&t->norms, &t->world, CRL_TALLY_NORMS,
                          (int64_t)layout->graph->params + (int64_t)comm->ranks * TIME_PARTS);
}

void crl_tally_fini(crl_tally *t) {
    crl_agree_fini(&t->losses);
    crl_agree_fini(&t->norms);
}

crl_status crl_tally_progress(void *tally) {
    crl_tally *t = tally;
    bool done;
    CRL_TRY(crl_agree_progress(&t->losses, &done));
    return crl_agree_progress(&t->norms, &done);
}

static double *stopping_part(const crl_tally *t) {
    return t->losses.data + t->losses.count - 1;
}

static double *time_part(const crl_tally *t, int rank) {
    return t->norms.data + t->rank->layout->graph->params + (int64_t)rank * TIME_PARTS;
}

/* This rank's share of the losses: only the position that holds the loss node has one. */
crl_status crl_tally_start_losses(crl_tally *t, const crl_loss *loss, bool stopping) {
    const crl_rank *r = t->rank;
    const crl_plan *plan = r->layout->plan;
    const int stage = crl_plan_stage_of(plan, r->layout->graph->loss_node);
    memset(t->losses.data, 0, (size_t)t->losses.count * sizeof(double));
    for (int m = r->micro_batches.first;
         plan->stage[stage].position == r->at.position && m < r->micro_batches.last; m++) {
        const crl_loss *from = &loss[m - r->micro_batches.first];
        double *part = t->losses.data + (int64_t)m * LOSS_PARTS;
        part[0] = from->sum;
        part[1] = from->weight;
        part[2] = from->correct;
        part[3] = from->rows;
    }
    *stopping_part(t) = stopping ? 1 : 0;
    return crl_agree_start(&t->losses);
}

crl_status crl_tally_wait_losses(crl_tally *t, crl_loss *total, bool *stopping) {
    CRL_TRY(crl_agree_wait(&t->losses, "the losses", crl_tally_progress, t));
    for (int m = 0; m < t->rank->layout->micro_batches; m++) {
        const double *part = t->losses.data + (int64_t)m * LOSS_PARTS;
        total->sum += part[0];
        total->weight += part[1];
        total->correct += part[2];
        total->rows += part[3];
    }
    *stopping = *stopping_part(t) > 0;
    return CRL_STATUS_OK;
}

/* Of the replicas and stages that have the parameter, one speaks for it. */
static bool speaks_for(const crl_tally *t, int param) {
    const crl_rank *r = t->rank;
    const crl_plan *plan = r->layout->plan;
    const int stage = crl_plan_stage_of(plan, r->layout->graph->param[param].use[0].node);
    return r->at.replica == 0 && plan->stage[stage].position == r->at.position;
}

crl_status crl_tally_start_norms(crl_tally *t, const crl_tally_times *times) {
    const crl_graph *graph = t->rank->layout->graph;
    memset(t->norms.data, 0, (size_t)t->norms.count * sizeof(double));
    for (int p = 0; p < graph->params; p++) {
        if (speaks_for(t, p)) {
            CRL_TRY(
                crl_kernels_cpu.reduce->sum_squares(NULL, crl_grad_sync_gradient(t->rank->sync, p),
                                                    graph->param[p].elements, &t->norms.data[p]));
        }
    }
    double *time = time_part(t, t->world.me);
    time[0] = times->busy_ns;
    time[1] = times->span_ns;
    time[2] = times->exposed_s;
    return crl_agree_start(&t->norms);
}

crl_status crl_tally_wait_norms(crl_tally *t, crl_tally_norms *out) {
    double busy_ns = 0, span_ns = 0;
    CRL_TRY(crl_agree_wait(&t->norms, "the norms of the gradients", crl_tally_progress, t));
    *out = (crl_tally_norms){0, 0, 0};
    for (int p = 0; p < t->rank->layout->graph->params; p++) {
        out->squares += t->norms.data[p];
    }
    for (int r = 0; r < t->world.size; r++) {
        const double *time = time_part(t, r);
        busy_ns += time[0];
        span_ns = time[1] > span_ns ? time[1] : span_ns;
        out->exposed_s = time[2] > out->exposed_s ? time[2] : out->exposed_s;
    }
    out->bubble = span_ns > 0 ? 1 - busy_ns / (t->world.size * span_ns) : 0;
    return CRL_STATUS_OK;
}

static uint64_t fnv1a(uint64_t hash, const void *data, size_t bytes) {
    const unsigned char *at = data;
    for (size_t i = 0; i < bytes; i++) {
        hash = (hash ^ at[i]) * 0x100000001b3u;
    }
    return hash;
}

/* Each owner hashes its parameters; two exact halves of every hash are exchanged. */
crl_status crl_tally_hash(const crl_tally *t, uint64_t *out) {
    const crl_graph *graph = t->rank->layout->graph;
    crl_status status = CRL_STATUS_OK;
    double *half = NULL;
    uint64_t hash = 0xcbf29ce484222325u;
    const size_t count = (size_t)graph->params * 2;
    CRL_TRY_OUT(crl_alloc(&half, count, sizeof *half));
    for (int p = 0; p < graph->params; p++) {
        if (speaks_for(t, p)) {
            const uint64_t own = fnv1a(hash, crl_params_weight(t->rank->params, p),
                                       (size_t)graph->param[p].elements * sizeof(float));
            half[p * 2] = (double)(own >> 32);
            half[p * 2 + 1] = (double)(own & 0xffffffffu);
        }
    }
    CRL_TRY_OUT(crl_agree_sum(&t->world, CRL_TALLY_ONCE, half, (int64_t)count,
                              "the hashes of the parameters"));
    for (size_t i = 0; i < count; i++) {
        const uint32_t part = (uint32_t)half[i];
        hash = fnv1a(hash, &part, sizeof part);
    }
    *out = hash;
out:
    crl_free(half);
    return status;
}
