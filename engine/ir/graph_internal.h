/* SPDX-License-Identifier: Apache-2.0 */
/* The steps of building a graph. Each reports the node it stumbled on. */
#pragma once

#include <search.h>

#include "engine/ir/graph.h"
#include "engine/ir/model_internal.h"

/* `graph` with the capacity of its growing arrays. */
typedef struct graph_builder {
    crl_graph *graph;
    int value_capacity, param_capacity;
    struct hsearch_data names; /* node index by name */
} graph_builder;

/* The node called by the first `length` bytes of `name`, or -1. NOMEM. */
crl_status crl_graph_find_node(int *out, graph_builder *builder, const char *name, size_t length);

/* Parses the options of a descriptor into memory of the arena (NULL for a layer without). */
crl_status crl_graph_parse_options(const void **out, crl_arena *arena, const crl_layer *layer,
                                   const crl_layer_desc *desc);
/* Resolves inputs, infers, and registers outputs and parameters of node `index`. */
crl_status crl_graph_add_node(graph_builder *builder, int index, const crl_layer_desc *desc,
                              const void *const *layers);
/* Parameters of node `index`, own or tied. */
crl_status crl_graph_add_params(graph_builder *builder, int index, const crl_layer_desc *desc);
/* Lists the consumers of every value and the uses of every parameter; INVALID: unused output. */
crl_status crl_graph_link(crl_graph *graph);
