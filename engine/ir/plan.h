/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A plan: which nodes form which stage, where stages sit, and which values travel between them.
 *
 * A value that crosses cuts goes from stage to consuming stage to consuming stage (the *chain* of
 * the value): forward a -> b -> c, gradients c -> b -> a, each stage adding its own contributions
 * to what it received. That is the order of additions of a single stage, so any cut gives the same
 * bits.
 */
#pragma once

#include "engine/ir/graph.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct crl_stage {
    int first, last; /* nodes [first, last) */
    int replicas;
    int position; /* pipeline position (device column) that runs it */
} crl_stage;

/* One hop of a value's chain. */
typedef struct crl_edge {
    int value;
    int from, to; /* stages */
    size_t bytes;
    bool gradient; /* also carries the gradient back */
} crl_edge;

typedef struct crl_plan {
    const crl_graph *graph; /* lent */
    int positions;          /* P: pipeline width */
    int stages;             /* S = P · virtual stages per position */
    crl_stage *stage;
    int edges;
    crl_edge *edge; /* ascending by (from, to, value) */
    unsigned char *recompute; /* (nodes) CRL_RECOMPUTE_*; NULL: backward makes nothing again */
} crl_plan;

typedef struct crl_plan_config {
    const crl_graph *graph; /* lent; must outlive the plan */
    int positions, stages;
    const int *first_node; /* (S) begins stage s */
    const int *position;   /* (S) of each stage; NULL: s mod P, and S a multiple of P */
    const int *widths;     /* (P) replicas of each position in the whole job; NULL: 1 each */
} crl_plan_config;

/* INVALID: empty stage, cuts out of order, a position without a stage or without replicas. */
CRL_NODISCARD crl_status crl_plan_create(crl_plan **out, const crl_plan_config *config);
/* NULL is fine. */
void crl_plan_destroy(crl_plan *plan);
/* The stage that holds `node`. */
int crl_plan_stage_of(const crl_plan *plan, int node);
/* Bytes of all non-input values alive across the boundary before `node` (one direction). */
size_t crl_graph_cut_bytes(const crl_graph *graph, int node);

/* Lane rule: micro-batches of lane l are [l·M/L, (l+1)·M/L); replica r holds lanes
 * [r·L/D, (r+1)·L/D). */
typedef struct crl_range {
    int first, last;
} crl_range;
/* Micro-batches of a lane. */
crl_range crl_lane_micro_batches(int lane, int lanes, int micro_batches);
/* Lanes of a replica; empty when there are fewer lanes than replicas. */
crl_range crl_replica_lanes(int replica, int replicas, int lanes);
/* Micro-batches of a replica: those of its lanes. */
crl_range crl_replica_micro_batches(int replica, int replicas, int lanes, int micro_batches);

#ifdef __cplusplus
}
#endif
