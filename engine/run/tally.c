/* SPDX-License-Identifier: Apache-2.0 */
/* Who gives which number of a step, and how they are added up; see tally.h. */
#include "engine/run/tally.h"

#include <string.h>

#include "engine/base/alloc.h"

enum { LOSS_PARTS = 4, TIME_PARTS = 3, WORLD_CHANNEL = 0, PIECE_BYTES = 1 << 20 };

crl_status crl_tally_init(crl_tally *t, const crl_rank *rank, crl_comm *comm) {
    const crl_layout *layout = rank->layout;
    *t = (crl_tally){.rank = rank, .world = {comm, NULL, comm->ranks, comm->rank, WORLD_CHANNEL}};
    const crl_device *device = layout->settings->backend->device;
    CRL_TRY(crl_readback_init(&t->losses_read, device, rank->stream,
                              (size_t)layout->micro_batches * sizeof(crl_loss)));
    CRL_TRY(crl_readback_init(&t->norms_read, device, rank->stream,
                              (size_t)layout->graph->params * sizeof(double)));
    CRL_TRY(crl_agree_init(&t->losses, &t->world, CRL_TALLY_LOSSES,
                           (int64_t)layout->micro_batches * LOSS_PARTS + 1));
    return crl_agree_init(&t->norms, &t->world, CRL_TALLY_NORMS,
                          (int64_t)layout->graph->params + (int64_t)comm->ranks * TIME_PARTS);
}

void crl_tally_fini(crl_tally *t) {
    crl_agree_fini(&t->losses);
    crl_agree_fini(&t->norms);
    crl_readback_fini(&t->losses_read);
    crl_readback_fini(&t->norms_read);
}

static double *stopping_part(const crl_tally *t) {
    return t->losses.data + t->losses.count - 1;
}

static double *time_part(const crl_tally *t, int rank) {
    return t->norms.data + t->rank->layout->graph->params + (int64_t)rank * TIME_PARTS;
}

static bool has_loss(const crl_tally *t) {
    const crl_rank *r = t->rank;
    const crl_plan *plan = r->layout->plan;
    const int stage = crl_plan_stage_of(plan, r->layout->graph->loss_node);
    return plan->stage[stage].position == r->at.position;
}

/* This rank's share of the losses has reached the host. */
static crl_status give_losses(crl_tally *t) {
    const crl_range own = t->rank->micro_batches;
    const crl_loss *loss = t->losses_read.data;
    memset(t->losses.data, 0, (size_t)t->losses.count * sizeof(double));
    for (int m = own.first; has_loss(t) && m < own.last; m++) {
        const crl_loss *from = &loss[m - own.first];
        double *part = t->losses.data + (int64_t)m * LOSS_PARTS;
        part[0] = from->sum;
        part[1] = from->weight;
        part[2] = from->correct;
        part[3] = from->rows;
    }
    *stopping_part(t) = t->stopping ? 1 : 0;
    t->losses_due = false;
    return crl_agree_start(&t->losses);
}

crl_status crl_tally_start_losses(crl_tally *t, const crl_loss *loss, bool stopping) {
    const crl_range own = t->rank->micro_batches;
    t->stopping = stopping;
    t->losses_due = true;
    if (!has_loss(t)) {
        return give_losses(t);
    }
    CRL_TRY(
        crl_readback_start(&t->losses_read, loss, (size_t)(own.last - own.first) * sizeof *loss));
    return crl_tally_progress(t);
}

/* Of the replicas and stages that have the parameter, one speaks for it. */
static bool speaks_for(const crl_tally *t, int param) {
    const crl_rank *r = t->rank;
    const crl_plan *plan = r->layout->plan;
    const int stage = crl_plan_stage_of(plan, r->layout->graph->param[param].use[0].node);
    return r->at.replica == 0 && plan->stage[stage].position == r->at.position;
}

static crl_status give_norms(crl_tally *t) {
    const int params = t->rank->layout->graph->params;
    const double *squares = t->norms_read.data;
    memset(t->norms.data, 0, (size_t)t->norms.count * sizeof(double));
    for (int p = 0; p < params; p++) {
        t->norms.data[p] = speaks_for(t, p) ? squares[p] : 0;
    }
    double *time = time_part(t, t->world.me);
    time[0] = t->times.busy_ns;
    time[1] = t->times.span_ns;
    time[2] = t->times.exposed_s;
    t->norms_due = false;
    return crl_agree_start(&t->norms);
}

crl_status crl_tally_start_norms(crl_tally *t, const crl_tally_times *times) {
    const crl_rank *r = t->rank;
    const crl_graph *graph = r->layout->graph;
    for (int p = 0; p < graph->params; p++) {
        if (speaks_for(t, p)) {
            CRL_TRY(r->layout->settings->backend->f32->reduce->sum_squares(
                r->stream, crl_grad_sync_gradient(r->sync, p), graph->param[p].elements,
                &r->squares[p]));
        }
    }
    t->times = *times;
    t->norms_due = true;
    CRL_TRY(
        crl_readback_start(&t->norms_read, r->squares, (size_t)graph->params * sizeof *r->squares));
    return crl_tally_progress(t);
}

/* What was started has reached the host. */
static crl_status take_arrived(crl_tally *t) {
    bool arrived = false;
    if (t->losses_due) {
        CRL_TRY(crl_readback_test(&t->losses_read, &arrived));
        CRL_TRY(arrived ? give_losses(t) : CRL_STATUS_OK);
    }
    if (t->norms_due) {
        CRL_TRY(crl_readback_test(&t->norms_read, &arrived));
        CRL_TRY(arrived ? give_norms(t) : CRL_STATUS_OK);
    }
    return CRL_STATUS_OK;
}

crl_status crl_tally_progress(void *tally) {
    crl_tally *t = tally;
    bool done;
    CRL_TRY(take_arrived(t));
    CRL_TRY(crl_agree_progress(&t->losses, &done));
    return crl_agree_progress(&t->norms, &done);
}

/* Blocks until what is due has reached the host. */
static crl_status arrive(crl_tally *t, const bool *due, const char *what) {
    if (*due) {
        CRL_TRY(crl_comm_wait_stream(t->rank->tensors, what, crl_tally_progress, t));
        CRL_TRY(take_arrived(t));
    }
    return CRL_STATUS_OK;
}

crl_status crl_tally_wait_losses(crl_tally *t, crl_loss *total, bool *stopping) {
    CRL_TRY(arrive(t, &t->losses_due, "the losses"));
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

crl_status crl_tally_wait_norms(crl_tally *t, crl_tally_norms *out) {
    double busy_ns = 0, span_ns = 0;
    CRL_TRY(arrive(t, &t->norms_due, "the norms of the gradients"));
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

/* In pieces through the host. */
static crl_status hash_param(const crl_rank *r, int param, char *piece, uint64_t *hash) {
    const char *w = (const char *)crl_params_weight(r->params, param);
    const size_t bytes = (size_t)r->layout->graph->param[param].elements * sizeof(float);
    const crl_device *device = r->layout->settings->backend->device;
    for (size_t done = 0; done < bytes; done += PIECE_BYTES) {
        const size_t part = bytes - done < PIECE_BYTES ? bytes - done : PIECE_BYTES;
        CRL_TRY(crl_device_copy_wait(device, r->stream, piece, w + done, part));
        *hash = fnv1a(*hash, piece, part);
    }
    return CRL_STATUS_OK;
}

/* Each owner hashes its parameters; two exact halves of every hash are exchanged. */
crl_status crl_tally_hash(const crl_tally *t, uint64_t *out) {
    const crl_graph *graph = t->rank->layout->graph;
    crl_status status = CRL_STATUS_OK;
    const crl_device *device = t->rank->layout->settings->backend->device;
    double *half = NULL;
    char *piece = NULL;
    uint64_t hash = 0xcbf29ce484222325u;
    const size_t count = (size_t)graph->params * 2;
    CRL_TRY_OUT(crl_alloc(&half, count, sizeof *half));
    CRL_TRY_OUT(crl_device_host_alloc(device, &piece, PIECE_BYTES));
    for (int p = 0; p < graph->params; p++) {
        if (speaks_for(t, p)) {
            uint64_t own = hash;
            CRL_TRY_OUT(hash_param(t->rank, p, piece, &own));
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
    crl_device_host_free(device, piece);
    crl_free(half);
    return status;
}
