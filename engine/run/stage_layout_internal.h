/* SPDX-License-Identifier: Apache-2.0 */
/* What laying out forward (stage_layout.c) and backward (stage_layout_backward.c) share. */
#pragma once

#include "engine/run/memory_plan.h"
#include "engine/run/stage_layout.h"

enum {
    F = 1u << CRL_ACTION_FORWARD,
    B = 1u << CRL_ACTION_BACKWARD,
    I = 1u << CRL_ACTION_INPUT,
    W = 1u << CRL_ACTION_WEIGHT
};

/* The work in progress. */
typedef struct stage_builder {
    const crl_plan *plan;
    const crl_graph *graph;
    int stage;
    bool training, split;
    crl_stage_layout *layout;
    int keep_input, keep_weight, again_weight, held_gradient; /* blocks; -1: not there yet */
    int *edge_in, *edge_out;                                  /* (values) of this stage */
    crl_lifetime *life;                                       /* of things in the workspace */
    crl_place **life_place;
    int lives;
    int *again_at, *back_at; /* (nodes of the stage) moments of backward */
} stage_builder;

static inline bool stage_has(const stage_builder *b, int node) {
    return node >= b->layout->first && node < b->layout->last;
}

/* Does the gradient of the value take the value's place? Where its only reader allows it and nobody
 * else needs it afterwards: so there is one (N,V) array of logits, not two. */
bool crl_stage_in_place(const stage_builder *b, int value);
/* The last node of the stage that reads the value, or -1. */
int crl_stage_last_consumer(const stage_builder *b, const crl_value *v);
/* A new block. NOMEM. */
crl_status crl_stage_add_block(stage_builder *b, crl_block block, int *out);
/* Appends `bytes` to the block `*group`, made on first need. NOMEM; INVALID: too large. */
crl_status crl_stage_put(stage_builder *b, int *group, unsigned touched_by, size_t bytes,
                         crl_place *out);
/* Puts `bytes` into the workspace from moment `first` to moment `last`. */
void crl_stage_add_life(stage_builder *b, crl_place *place, size_t bytes, int first, int last);
/* Gives everything put there since the last call its offset. NOMEM; INVALID: too large. */
crl_status crl_stage_plan_workspace(stage_builder *b, size_t *out_bytes);
/* Places of backward: values, saves, gradients; which dx add to what is there. */
crl_status crl_stage_lay_backward(stage_builder *b);
