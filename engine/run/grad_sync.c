/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Gradient summing; see grad_sync.h. Buckets are ranges of the flat gradient, cut from the end of
 * every stage backwards, and are started in that fixed order on all replicas, a few at a time.
 */
#include "engine/run/grad_sync.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "engine/base/alloc.h"
#include "engine/run/memory_plan.h"
#include "engine/run/tied.h"

enum { IN_FLIGHT = 4, REPLICA_CHANNEL = 1 };

typedef struct bucket {
    int64_t offset, count; /* elements */
    int pending;           /* uses that are not complete */
    int uses;
} bucket;

/* An all-reduce object and what it works on. */
typedef struct flight {
    crl_allreduce *allreduce;
    int bucket; /* -1: free */
    int nodes;
    crl_lane_node node[CRL_MAX_LANE_NODES];
} flight;

struct crl_grad_sync {
    crl_grad_sync_config config;
    crl_comm *comm;
    const crl_allreduce_algorithm *algorithm; /* the config's, as the comm has it */
    crl_range lanes;                          /* of this replica, in the whole step */
    int width;                                /* replicas of this position */
    int *lanes_left;                          /* (uses) that are not complete */
    const float **gradient; /* (params) where the complete sum of each will be; NULL: not here */
    int buckets, next;
    bucket *bucket;
    flight flight[IN_FLIGHT];
    crl_group group;
    int *member, *lane_first;
    crl_tied *tied;
    size_t staging_bytes;
};

static crl_allreduce_config allreduce_config(const crl_grad_sync *sync, int index) {
    int64_t largest = 0;
    for (int b = 0; b < sync->buckets; b++) {
        largest = sync->bucket[b].count > largest ? sync->bucket[b].count : largest;
    }
    return (crl_allreduce_config){.group = &sync->group,
                                  .reduce = sync->config.reduce,
                                  .stream = sync->config.stream,
                                  .channel = index,
                                  .max_count = largest,
                                  .segment_bytes = sync->config.segment_bytes,
                                  .lanes = sync->config.lanes,
                                  .lane_first = sync->lane_first};
}

/* Cuts [start, end) into buckets, from the end. */
static void cut_buckets(crl_grad_sync *sync, int64_t start, int64_t end, int64_t size) {
    while (end > start) {
        const int64_t from = end - start > size ? end - size : start;
        sync->bucket[sync->buckets++] = (bucket){from, end - from, 0, 0};
        end = from;
    }
}

static crl_status plan_buckets(crl_grad_sync *sync) {
    const crl_params *params = sync->config.params;
    const int64_t size = sync->config.bucket_bytes >= 64 ? sync->config.bucket_bytes / 64 * 16 : 16;
    const size_t most = (size_t)(params->gradient_elements / size + params->uses + 1);
    CRL_TRY(crl_alloc(&sync->bucket, most, sizeof *sync->bucket));
    for (int u = params->uses - 1; u >= 0;) {
        const int stage = params->use[u].stage;
        int first = u;
        while (first > 0 && params->use[first - 1].stage == stage) {
            first--;
        }
        const int64_t end =
            u + 1 < params->uses ? params->use[u + 1].offset : params->gradient_elements;
        cut_buckets(sync, params->use[first].offset, end, size);
        u = first - 1;
    }
    for (int b = 0; b < sync->buckets; b++) {
        bucket *k = &sync->bucket[b];
        for (int u = 0; u < params->uses; u++) {
            const crl_local_use *use = &params->use[u];
            k->uses +=
                use->offset < k->offset + k->count && k->offset < use->offset + use->elements;
        }
    }
    return CRL_STATUS_OK;
}

static crl_status plan_group(crl_grad_sync *sync) {
    const crl_mesh *mesh = sync->config.mesh;
    CRL_TRY(crl_alloc(&sync->member, (size_t)sync->width, sizeof(int)));
    CRL_TRY(crl_alloc(&sync->lane_first, (size_t)sync->width + 1, sizeof(int)));
    for (int r = 0; r < sync->width; r++) {
        const crl_range lanes = crl_replica_lanes(r, sync->width, sync->config.lanes);
        sync->member[r] = crl_mesh_rank(mesh, (crl_coordinates){sync->config.position, r, 0});
        sync->lane_first[r] = lanes.first;
        sync->lane_first[r + 1] = lanes.last;
    }
    sync->group =
        (crl_group){NULL, sync->member, sync->width, sync->config.replica, REPLICA_CHANNEL};
    return CRL_STATUS_OK;
}

crl_status crl_grad_sync_create(crl_grad_sync **out, const crl_grad_sync_config *config) {
    crl_status status = CRL_STATUS_OK;
    crl_grad_sync *sync = NULL;
    CRL_TRY_OUT(crl_alloc(&sync, 1, sizeof *sync));
    sync->config = *config;
    for (int f = 0; f < IN_FLIGHT; f++) {
        sync->flight[f].bucket = -1;
    }
    sync->width = crl_mesh_width(config->mesh, config->position);
    sync->lanes = crl_replica_lanes(config->replica, sync->width, config->lanes);
    CRL_TRY_OUT(
        crl_alloc(&sync->lanes_left, (size_t)config->params->uses, sizeof *sync->lanes_left));
    CRL_TRY_OUT(
        crl_alloc(&sync->gradient, (size_t)config->params->graph->params, sizeof *sync->gradient));
    CRL_TRY_OUT(plan_buckets(sync));
    sync->next = sync->buckets; /* nothing to start before a step begins */
    CRL_TRY_OUT(crl_tied_create(&sync->tied, config));
    CRL_TRY_OUT(plan_group(sync));
    if (sync->width > 1 && sync->buckets > 0) {
        const crl_allreduce_config allreduce = allreduce_config(sync, 0);
        sync->staging_bytes = crl_memory_round(config->algorithm->scratch_bytes(&allreduce));
    }
    *out = sync;
    sync = NULL;
out:
    crl_grad_sync_destroy(sync);
    return status;
}

void crl_grad_sync_destroy(crl_grad_sync *sync) {
    if (!sync) {
        return;
    }
    for (int f = 0; f < IN_FLIGHT; f++) {
        if (sync->flight[f].allreduce) {
            sync->algorithm->destroy(sync->flight[f].allreduce);
        }
    }
    crl_free(sync->lanes_left);
    crl_free(sync->gradient);
    crl_free(sync->bucket);
    crl_tied_destroy(sync->tied);
    crl_free(sync->member);
    crl_free(sync->lane_first);
    crl_free(sync);
}

size_t crl_grad_sync_bytes(const crl_grad_sync *sync) {
    return crl_tied_bytes(sync->tied) + IN_FLIGHT * sync->staging_bytes;
}

int crl_grad_sync_requests(const crl_grad_sync *sync) {
    /* Of an all-reduce with each other member: its nodes' pieces and this one's, and two results.
     * A replica has as many nodes as binary numbers of its lanes have digits, twice, at most. */
    int digits = 1;
    while (sync->width > 1 && sync->config.lanes / sync->width >> digits > 0) {
        digits++;
    }
    const int64_t each = (int64_t)(sync->width - 1) * (4 * digits + 2) * IN_FLIGHT;
    const crl_route *route;
    const int tied = crl_tied_routes(sync->tied, &route);
    return each + tied < INT32_MAX / 2 ? (int)(each + tied) : INT32_MAX / 2;
}

/* Sums end in the memory of a parameter's first use, be it local or received. */
static void find_gradients(crl_grad_sync *sync) {
    const crl_params *params = sync->config.params;
    for (int u = 0; u < params->uses; u++) {
        if (params->use[u].use == 0) {
            sync->gradient[params->use[u].param] = params->gradients + params->use[u].offset;
        }
    }
    for (int p = 0; p < params->graph->params; p++) {
        float *sum = crl_tied_sum(sync->tied, p);
        sync->gradient[p] = sum ? sum : sync->gradient[p];
    }
}

crl_status crl_grad_sync_bind(crl_grad_sync *sync, crl_comm *comm, void *memory) {
    char *at = memory;
    sync->comm = sync->group.comm = comm;
    sync->algorithm = crl_allreduce_on(comm, sync->config.algorithm);
    crl_tied_bind(sync->tied, comm, at);
    at += crl_tied_bytes(sync->tied);
    find_gradients(sync);
    for (int f = 0; f < IN_FLIGHT && sync->width > 1 && sync->buckets > 0; f++) {
        crl_allreduce_config config = allreduce_config(sync, f);
        config.scratch = at + (size_t)f * sync->staging_bytes;
        CRL_TRY(sync->algorithm->create(&sync->flight[f].allreduce, &config));
    }
    return CRL_STATUS_OK;
}

void crl_grad_sync_begin(crl_grad_sync *sync) {
    sync->next = 0;
    for (int u = 0; u < sync->config.params->uses; u++) {
        sync->lanes_left[u] = sync->lanes.last - sync->lanes.first;
    }
    const bool idle = sync->lanes.first == sync->lanes.last; /* nothing of this step is ours */
    for (int b = 0; b < sync->buckets; b++) {
        sync->bucket[b].pending = idle ? 0 : sync->bucket[b].uses;
    }
}

/* What micro-batch m of the step does to the sums of a stage. */
static const crl_lane_step *step_of(const crl_grad_sync *sync, int stage, int m) {
    const crl_lane_plan *plan = sync->config.lane_plan[stage];
    CRL_ASSERT(plan->own.first <= m && m < plan->own.last);
    return &plan->step[m - plan->own.first];
}

static float *buffer_of(const crl_grad_sync *sync, int buffer, int64_t offset) {
    const crl_params *params = sync->config.params;
    return params->gradients + buffer * params->gradient_elements + offset;
}

float *crl_grad_sync_target(const crl_grad_sync *sync, int node, int slot, int m,
                            bool *out_accumulate) {
    const crl_params *params = sync->config.params;
    const crl_local_use *use = &params->use[params->first_use[node] + slot];
    const crl_lane_step *step = step_of(sync, use->stage, m);
    *out_accumulate = !step->begins;
    return buffer_of(sync, step->buffer, use->offset);
}

static void complete_use(crl_grad_sync *sync, int u) {
    const crl_local_use *use = &sync->config.params->use[u];
    for (int b = 0; b < sync->buckets; b++) {
        bucket *k = &sync->bucket[b];
        if (use->offset < k->offset + k->count && k->offset < use->offset + use->elements) {
            k->pending--;
        }
    }
}

/* A lane of a use is complete: combines what has become siblings. */
static crl_status end_lane(crl_grad_sync *sync, int u, const crl_lane_step *step) {
    const crl_local_use *use = &sync->config.params->use[u];
    for (int i = step->merge; i < step->merge + step->merges; i++) {
        const crl_lane_merge *merge = &sync->config.lane_plan[use->stage]->merge[i];
        CRL_TRY(
            sync->config.reduce->add(sync->config.stream, buffer_of(sync, merge->left, use->offset),
                                     buffer_of(sync, merge->right, use->offset), use->elements));
    }
    if (--sync->lanes_left[u] == 0) {
        complete_use(sync, u);
    }
    return CRL_STATUS_OK;
}

crl_status crl_grad_sync_done(crl_grad_sync *sync, int node, int m) {
    const crl_params *params = sync->config.params;
    const int first = params->first_use[node];
    const crl_lane_step *step = step_of(sync, params->use[first].stage, m);
    for (int slot = 0; step->ends && slot < params->graph->node[node].spec.params; slot++) {
        CRL_TRY(end_lane(sync, first + slot, step));
    }
    return step->ends ? crl_grad_sync_progress(sync) : CRL_STATUS_OK;
}

static int first_use_in(const crl_grad_sync *sync, const bucket *k) {
    const crl_params *params = sync->config.params;
    int u = 0;
    while (u + 1 < params->uses && params->use[u].offset + params->use[u].elements <= k->offset) {
        u++;
    }
    return u;
}

static crl_status start_bucket(crl_grad_sync *sync, flight *f) {
    const crl_params *params = sync->config.params;
    const bucket *k = &sync->bucket[sync->next];
    const crl_lane_plan *plan = sync->config.lane_plan[params->use[first_use_in(sync, k)].stage];
    f->nodes = plan->nodes;
    for (int i = 0; i < f->nodes; i++) {
        f->node[i] = (crl_lane_node){plan->node[i].first, plan->node[i].count,
                                     buffer_of(sync, plan->node[i].buffer, k->offset)};
    }
    f->bucket = sync->next++;
    if (sync->width == 1) {
        f->bucket = -1; /* one replica's lanes have combined to one sum already */
        return CRL_STATUS_OK;
    }
    return sync->algorithm->start(f->allreduce, f->node, f->nodes, params->gradients + k->offset,
                                  k->count);
}

void crl_grad_sync_replayed(crl_grad_sync *sync) {
    CRL_ASSERT(sync->width == 1);
    sync->next = sync->buckets;
}

crl_status crl_grad_sync_progress(crl_grad_sync *sync) {
    for (int i = 0; i < IN_FLIGHT; i++) {
        flight *f = &sync->flight[i];
        bool done = false;
        int peer = -1;
        if (f->bucket >= 0) {
            CRL_TRY(sync->algorithm->progress(f->allreduce, &done, &peer));
            f->bucket = done ? -1 : f->bucket;
        }
    }
    while (sync->next < sync->buckets && sync->bucket[sync->next].pending == 0 &&
           sync->flight[sync->next % IN_FLIGHT].bucket < 0) {
        CRL_TRY(start_bucket(sync, &sync->flight[sync->next % IN_FLIGHT]));
    }
    return CRL_STATUS_OK;
}

static crl_status finish_buckets(crl_grad_sync *sync) {
    for (int b = 0; b < sync->buckets; b++) {
        flight *f = &sync->flight[b % IN_FLIGHT];
        CRL_TRY(crl_grad_sync_progress(sync));
        if (b >= sync->next) {
            return CRL_FAIL(INTERNAL, "gradient bucket %d is incomplete at the end of the step", b);
        }
        if (f->bucket == b) {
            char what[64];
            snprintf(what, sizeof what, "sum of gradient bucket %d of position %d", b,
                     sync->config.position);
            CRL_TRY(crl_allreduce_wait(sync->algorithm, f->allreduce, sync->comm, what));
            f->bucket = -1;
        }
    }
    return CRL_STATUS_OK;
}

crl_status crl_grad_sync_finish(crl_grad_sync *sync) {
    CRL_TRY(finish_buckets(sync));
    return crl_tied_add(sync->tied);
}

int crl_grad_sync_exchange(const crl_grad_sync *sync, const crl_route **out) {
    return crl_tied_routes(sync->tied, out);
}

const float *crl_grad_sync_gradient(const crl_grad_sync *sync, int param) {
    return sync->gradient[param];
}
