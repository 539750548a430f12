/* SPDX-License-Identifier: Apache-2.0 */
/* The steps of building a graph. Each reports the node it stumbled on. */
#pragma once

#include <search.h>

#include "engine/ir/graph.h"
#include "engine/ir/model_internal.h"

/* `graph` with the capacity of its growing arrays. */
typedef struct graph_builder {
    crl_graph *graph;
    const void *const *layers;
    crl_precision precision;
    bool *matched; /* (precision.f32_count) patterns that have matched a node */
    int *cast;     /* (values) the same value in the other type, -1: not needed so far */
    int node_capacity, value_capacity, param_capacity;
    struct hsearch_data names; /* node index by name */
} graph_builder;

/* The node called by the first `length` bytes of `name`, or -1. NOMEM. */
crl_status crl_graph_find_node(int *out, graph_builder *builder, const char *name, size_t length);

/* Parses the options of a descriptor into memory of the arena (NULL for a layer without). */
crl_status crl_graph_parse_options(const void **out, crl_arena *arena, const crl_layer *layer,
                                   const crl_layer_desc *desc);
/* Resolves inputs, casts them where needed, infers, and adds the node with its outputs and
 * parameters. */
crl_status crl_graph_add_node(graph_builder *builder, const crl_layer_desc *desc, uint32_t key);
/* Fills spec.input of a node whose input values are known, infers it, and adds it with its outputs.
 */
crl_status crl_graph_append_node(graph_builder *builder, const crl_node *node);
/* Parameters of the last node, own or tied. */
crl_status crl_graph_add_params(graph_builder *builder, const crl_layer_desc *desc);
/* Lists the consumers of every value and the uses of every parameter; INVALID: unused output. */
crl_status crl_graph_link(crl_graph *graph);

/* Is the type one that is cast? */
bool crl_graph_is_real(crl_dtype dtype);
/* INVALID: a type nothing can be computed in. */
crl_status crl_graph_begin_precision(graph_builder *builder, const crl_precision *precision);
/* What the node computes in. */
crl_dtype crl_graph_precision_of(graph_builder *builder, const crl_layer *layer, const char *name);
/* Adds the casts that the inputs of a node still to be added need, and makes them its inputs. */
crl_status crl_graph_cast_inputs(graph_builder *builder, crl_node *node);
/* INVALID: a pattern matched no node. */
crl_status crl_graph_end_precision(const graph_builder *builder);
