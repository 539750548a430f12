/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Summing gradients: micro-batches into lanes, lanes into the canonical tree, replicas by
 * all-reduce of buckets that start while backward still runs, tied uses at the end.
 *
 * Lanes of this rank fill a few buffers, as planned beforehand (lane_plan.h).
 */
#pragma once

#include "engine/comm/collective.h"
#include "engine/comm/mesh.h"
#include "engine/comm/route.h"
#include "engine/run/lane_plan.h"
#include "engine/run/params.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct crl_grad_sync crl_grad_sync;

typedef struct crl_grad_sync_config {
    const crl_plan *plan;
    const crl_params *params; /* lent */
    const crl_reduce_ops *reduce;
    crl_stream *stream; /* on which gradients are made */
    const crl_mesh *mesh;
    int position, replica;
    int lanes;                             /* of the whole step */
    const crl_lane_plan *const *lane_plan; /* (stages) of the stages of this position; lent */
    const crl_allreduce_algorithm *algorithm;
    int64_t bucket_bytes, segment_bytes;
} crl_grad_sync_config;

/* Plans buckets and buffers; needs no other rank. */
CRL_NODISCARD crl_status crl_grad_sync_create(crl_grad_sync **out,
                                              const crl_grad_sync_config *config);
/* Ends the job first when sums are still under way. NULL is fine. */
void crl_grad_sync_destroy(crl_grad_sync *sync);
/* Of the received gradients of tied uses and the all-reduces' staging. */
size_t crl_grad_sync_bytes(const crl_grad_sync *sync);
/* The most messages it has under way at a time, at most. */
int crl_grad_sync_requests(const crl_grad_sync *sync);
/* The messages of the exchange of tied uses that this rank sends and receives, in the order in
 * which both ends post them. Lends; returns how many. */
int crl_grad_sync_exchange(const crl_grad_sync *sync, const crl_route **out);
/* Gives it its memory (crl_grad_sync_bytes) and the job, for messages in that memory. */
CRL_NODISCARD crl_status crl_grad_sync_bind(crl_grad_sync *sync, crl_comm *comm, void *memory);

/* At the beginning of a step. */
void crl_grad_sync_begin(crl_grad_sync *sync);
/* Where node's parameter `slot` adds its gradient of global micro-batch `m`. */
float *crl_grad_sync_target(const crl_grad_sync *sync, int node, int slot, int m,
                            bool *out_accumulate);
/* The node's gradients of micro-batch m are there. Starts buckets that became complete. */
CRL_NODISCARD crl_status crl_grad_sync_done(crl_grad_sync *sync, int node, int m);
/* Instead of all calls of a step: its queued work has made and added all gradients. One replica. */
void crl_grad_sync_replayed(crl_grad_sync *sync);
/* Moves transfers on; cheap when there are none. */
CRL_NODISCARD crl_status crl_grad_sync_progress(crl_grad_sync *sync);
/* Collective: all ranks. Afterwards all sums are there, for work queued on the stream. */
CRL_NODISCARD crl_status crl_grad_sync_finish(crl_grad_sync *sync);
/* The complete summed gradient of a parameter of this rank; lent until the next begin. */
const float *crl_grad_sync_gradient(const crl_grad_sync *sync, int param);

#ifdef __cplusplus
}
#endif
