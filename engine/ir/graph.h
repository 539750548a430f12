/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The layer graph: nodes in the order they were described (a topological order, by construction),
 * values (node outputs) with all their consumers, and parameters with all their uses. Built once
 * per micro-batch size; immutable.
 */
#pragma once

#include "engine/base/arena.h"
#include "engine/ir/layer.h"

#ifdef __cplusplus
extern "C" {
#endif

/* The descriptor list behind carole.h, empty at first. NOMEM. */
CRL_NODISCARD crl_status crl_model_create(crl_model **out);
/* NULL is fine. */
void crl_model_destroy(crl_model *model);

typedef struct crl_consumer {
    int node, slot; /* input `slot` of `node` */
} crl_consumer;

typedef struct crl_value {
    const char *name; /* "<node>" or "<node>:<k>" */
    crl_tensor_spec spec;
    size_t bytes;
    int producer, output;
    int consumers;
    const crl_consumer *consumer; /* ascending by node, then slot */
    bool from_input;              /* a dataset field: read where it is used, never sent */
    bool has_gradient;            /* a real number, and a parameter lies upstream of it */
} crl_value;

typedef struct crl_node {
    const char *name;
    const crl_layer *layer;
    crl_layer_spec spec;
    int input[CRL_LAYER_MAX_INPUTS];   /* value ids */
    int output[CRL_LAYER_MAX_OUTPUTS]; /* value ids */
    int param[CRL_LAYER_MAX_PARAMS];   /* parameter ids */
    int use[CRL_LAYER_MAX_PARAMS];     /* which use of that parameter this is */
    uint32_t
        key; /* of random draws: its number among the described nodes, which casts don't move */
} crl_node;

typedef struct crl_param_use {
    int node, slot;
} crl_param_use;

typedef struct crl_param {
    const char *name; /* "<node>.<param>" of its first use */
    crl_param_spec spec;
    int64_t elements;
    int uses;
    const crl_param_use *use; /* ascending by node; more than one: tied */
} crl_param;

typedef struct crl_graph {
    crl_arena arena;
    int64_t batch; /* B */
    int nodes, values, params;
    crl_node *node;
    crl_value *value;
    crl_param *param;
    int loss_node; /* the one loss */
} crl_graph;

/*
 * What nodes compute in. Where a value of one type meets a node of another, a `cast` node is put in
 * between, "<consumer>.cast" ("<consumer>.cast2", ...) before the first consumer; the others share
 * it. It has no descriptor and the key of its consumer, and computes in that of its two types which
 * is not f32.
 */
typedef struct crl_precision {
    crl_dtype compute;      /* F32, BF16 or F16 */
    const char *const *f32; /* patterns (fnmatch) of names or types of nodes that stay in f32; each
                               must match one */
    int f32_count;
} crl_precision;

/* `layers` is the registry (const crl_layer *); `precision` NULL: all in f32. INVALID names the
 * node; checks: known types and options, unique names, inputs that exist, one loss, every value
 * used or reported as unused, tied shapes equal. */
CRL_NODISCARD crl_status crl_graph_build(crl_graph **out, const crl_model *model,
                                         const void *const *layers, int64_t batch,
                                         const crl_precision *precision);
/* NULL is fine. */
void crl_graph_destroy(crl_graph *graph);
/* Index of the node called `name`, or -1. */
int crl_graph_find(const crl_graph *graph, const char *name);
/* Elements of all parameters, tied ones once. */
int64_t crl_graph_param_elements(const crl_graph *graph);
/* Every node with its type, shapes, parameters: a table as text, for `carole plan`. */
void crl_graph_print(const crl_graph *graph, FILE *out);

#ifdef __cplusplus
}
#endif
