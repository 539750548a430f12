/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Which buffer the gradients of each micro-batch are added in, and when buffers are added to each
 * other. Pure, and the same for all parameters of a stage: it follows from the order in which the
 * stage's weight gradients come and from the lanes alone.
 *
 * A lane takes a buffer with its first micro-batch; complete lanes that are siblings in the
 * canonical tree (docs/numerics.md) are combined at once, as left + right in the left's buffer, and
 * the right's is free again. Lanes may be under way side by side; in the order 0 1 2 ... K lanes
 * need about log2(K) + 1 buffers. The first lane's buffer is number 0.
 */
#pragma once

#include "engine/comm/collective.h"
#include "engine/ir/program.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct crl_lane_merge {
    int left, right; /* buffers: left += right */
} crl_lane_merge;

/* What a micro-batch does to the sums. */
typedef struct crl_lane_step {
    int buffer;        /* to be added to */
    bool begins, ends; /* the first of its lane: overwrites it; the last of its lane: after it, */
    int merge, merges; /* merges [merge, merge + merges) are due */
} crl_lane_step;

typedef struct crl_lane_plan {
    crl_range own;       /* micro-batches of the step */
    int buffers;         /* that have to be there */
    crl_lane_step *step; /* (own) by micro-batch */
    crl_lane_merge *merge;
    int nodes; /* what is left in the end, ascending */
    struct {
        int first, count, buffer;
    } node[CRL_MAX_LANE_NODES];
} crl_lane_plan;

typedef struct crl_lane_plan_config {
    int lanes, micro_batches; /* L and M of the step */
    crl_range own;            /* micro-batches of this replica, whole lanes */
    const int *order;         /* (own) in which their weight gradients come */
} crl_lane_plan_config;

/* INVALID: a lane whose micro-batches do not come in ascending order (then sums would differ from
 * those of other layouts), more nodes than CRL_MAX_LANE_NODES; NOMEM. */
CRL_NODISCARD crl_status crl_lane_plan_create(crl_lane_plan **out,
                                              const crl_lane_plan_config *config);
/* NULL is fine. */
void crl_lane_plan_destroy(crl_lane_plan *plan);
/* The lane of a micro-batch of the step. */
int crl_lane_of(int micro_batch, int lanes, int micro_batches);

#ifdef __cplusplus
}
#endif
