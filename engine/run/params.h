/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The parameters one rank holds: flat arrays for weights, summed gradients (one copy per lane
 * buffer) and optimizer state, all f32, and the weights once more in the type that layers compute
 * in, when that is another one. A parameter used by several nodes (tied) has one weight per rank
 * but a gradient per use, because uses are summed in one fixed order wherever they live.
 *
 * Gradients lie by stage, then node, so that a stage's flat range fills from its end during
 * backward.
 */
#pragma once

#include "engine/ir/plan.h"

#ifdef __cplusplus
extern "C" {
#endif

/* One use of a parameter by a node of this rank. */
typedef struct crl_local_use {
    int param, use; /* of the graph: graph->param[param].use[use] */
    int node, stage;
    int64_t offset; /* elements into a gradient buffer, a multiple of 16 */
    int64_t elements;
} crl_local_use;

typedef struct crl_params {
    const crl_graph *graph;
    int64_t *weight_offset;  /* (params) elements into weights; -1: not on this rank */
    int64_t weight_elements; /* padded */
    int uses;
    crl_local_use *use;        /* ascending offset */
    int *first_use;            /* (nodes) index of a node's first local use; -1: none */
    int64_t gradient_elements; /* of one lane buffer, padded */
    int lane_buffers;
    int states; /* optimizer arrays, each as large as weights */
    bool keeps; /* an update can be taken back: there is room for a copy of what it changes */
    crl_dtype compute; /* of the rounded weights; F32: there are none */
    /* Memory of the device; bound after the reservation. */
    const crl_device *device;
    crl_stream *stream;
    void *rounded; /* (weight_elements) of type compute, at the weights' offsets */
    float *weights, *gradients;
    float *state[2];
    float *kept_weights, *kept_state[2];
} crl_params;

typedef struct crl_params_config {
    const crl_plan *plan;
    int position;     /* of the plan, whose stages' parameters these are */
    int lane_buffers; /* 0: no training */
    int states;
    bool keeps;
    crl_dtype compute;
} crl_params_config;

/* Offsets. INVALID: sizes that overflow. */
CRL_NODISCARD crl_status crl_params_create(crl_params **out, const crl_params_config *config);
/* Not the memory it is bound to. NULL is fine. */
void crl_params_destroy(crl_params *params);
/* Of the weights. */
size_t crl_params_weights_bytes(const crl_params *params);
/* Bytes of the rounded copy of one weight; 0 when layers compute in f32 and there is none. */
size_t crl_params_rounded_each(crl_dtype compute);
/* Of the weights rounded to the compute type, up to a multiple of 64: f32 arrays come after. */
size_t crl_params_rounded_bytes(const crl_params *params);
/* Of the gradients in all lane buffers. */
size_t crl_params_gradients_bytes(const crl_params *params);
/* Of all state arrays of the optimizer. */
size_t crl_params_states_bytes(const crl_params *params);
/* Of the copy of weights and state; 0 unless params->keeps. */
size_t crl_params_kept_bytes(const crl_params *params);
/* Copies a parameter of this rank and its state aside; params->keeps. Async on the stream. */
CRL_NODISCARD crl_status crl_params_keep(const crl_params *params, int param);
/* What was kept is current again, but for the rounded weights. All parameters of the rank must have
 * been kept since. */
void crl_params_take_back(crl_params *params);
/* Makes the rounded weights anew. Async on the stream. */
CRL_NODISCARD crl_status crl_params_round(const crl_params *params, const crl_backend *backend);
/* Lends. NULL when not on this rank. */
float *crl_params_weight(const crl_params *params, int param);
/* The same as a layer reads it that computes in `compute`: rounded, unless it is f32 or the
 * parameter is declared so. Lends. NULL when not on this rank. */
const void *crl_params_weight_as(const crl_params *params, int param, crl_dtype compute);
/* Where the rounded weight is written; NULL when there is none. Lends. */
void *crl_params_rounded(const crl_params *params, int param);
/* State array `state` of a parameter; lends. NULL when not on this rank. */
float *crl_params_state(const crl_params *params, int state, int param);
/* Fills the weights: a function of seed and parameter index alone. Blocking. */
CRL_NODISCARD crl_status crl_params_init(const crl_params *params, uint64_t seed);

#ifdef __cplusplus
}
#endif
