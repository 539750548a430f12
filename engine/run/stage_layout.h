/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Where the values of one stage live. Pure: graph, plan and stage in, places out.
 *
 * Things that outlive an action are grouped into *blocks*; every micro-batch in flight has its own
 * copy of each block. What lives inside one action lies in the workspace, shared by all actions.
 *
 *   keep-input     values and saves the input gradient reads   F .......... I|B
 *   keep-weight    those the weight gradient reads              F .......... W|B
 *   again-weight   those of them that are made again                  I .... W|B  (split backward)
 *   held gradient  output gradients of parameter nodes                I .... W    (split backward)
 *   boundary       one per value that crosses a cut, and one per gradient: RECV .. last use
 *
 * The gradient of a value may take the value's place (crl_layer.in_place); it has no other then.
 *
 * What backward makes again has two places: forward's, in the workspace of that action, and
 * backward's, in the workspace of that one or in again-weight.
 */
#pragma once

#include "engine/ir/program.h"
#include "engine/ir/recompute.h"

#ifdef __cplusplus
extern "C" {
#endif

enum { CRL_BLOCK_NONE = -1, CRL_BLOCK_FIELD = -2, CRL_BLOCK_WORKSPACE = -3 };

/* A block index or one of the above, and the offset inside it. */
typedef struct crl_place {
    int block;
    size_t offset_bytes;
} crl_place;

typedef struct crl_block {
    size_t bytes;
    unsigned touched_by;   /* bit k: actions of kind k of this stage use it */
    int edge_in, edge_out; /* its value arrives / leaves by these edges of the plan; -1: no */
    bool gradient;         /* then messages run against the edges */
} crl_block;

typedef struct crl_stage_layout {
    int first, last; /* nodes [first, last) */
    int blocks, blocks_capacity;
    crl_block *block;
    crl_recompute *recompute;  /* what backward makes again; owned */
    crl_place *value;          /* (values of the graph) for forward and messages */
    crl_place *backward_value; /* (values of the graph) for backward and what it makes again */
    crl_place *gradient;       /* (values of the graph) */
    crl_place *save;           /* (nodes of the stage × CRL_LAYER_MAX_SAVED), as value */
    crl_place *backward_save;  /* the same, as backward_value */
    bool *accumulate; /* (nodes of the stage × CRL_LAYER_MAX_INPUTS): dx adds to what is there */
    size_t forward_bytes, backward_bytes; /* workspace */
} crl_stage_layout;

/* `training` false: only forward actions run. `split`: the program has I and W actions for it. */
CRL_NODISCARD crl_status crl_stage_layout_create(crl_stage_layout **out, const crl_plan *plan,
                                                 int stage, bool training, bool split);
/* NULL is fine. */
void crl_stage_layout_destroy(crl_stage_layout *layout);

/* Does input `slot` of `node` get a gradient that somebody needs? */
bool crl_graph_slot_has_gradient(const crl_graph *graph, int node, int slot);

#ifdef __cplusplus
}
#endif
