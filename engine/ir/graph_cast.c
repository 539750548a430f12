/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Mixed precision of a graph: what each node computes in, and the casts where types meet.
 *
 *     x f32 ──┬── fc.cast ──bf16──┬── fc (bf16)
 *             └── norm (f32)      └── gate (bf16): shares the cast
 *
 * Refuses patterns that match nothing: a layer that was to stay in f32 would silently not.
 */
#include "engine/ir/graph_internal.h"

#include <fnmatch.h>
#include <string.h>

#include "engine/base/alloc.h"
#include "engine/base/registry.h"

bool crl_graph_is_real(crl_dtype dtype) {
    return dtype == CRL_DTYPE_F32 || dtype == CRL_DTYPE_BF16 || dtype == CRL_DTYPE_F16;
}

crl_status crl_graph_begin_precision(graph_builder *builder, const crl_precision *precision) {
    if (!precision) {
        return CRL_STATUS_OK; /* f32 is the zero of types */
    }
    if (!crl_graph_is_real(precision->compute)) {
        return CRL_FAIL(INVALID, "model: computes in %s, expected f32, bf16 or f16",
                        crl_dtype_name(precision->compute));
    }
    builder->precision = *precision;
    return crl_alloc(&builder->matched, (size_t)precision->f32_count, sizeof *builder->matched);
}

crl_dtype crl_graph_precision_of(graph_builder *builder, const crl_layer *layer, const char *name) {
    crl_dtype compute = builder->precision.compute;
    for (int i = 0; i < builder->precision.f32_count; i++) {
        const char *pattern = builder->precision.f32[i];
        if (fnmatch(pattern, name, 0) == 0 || fnmatch(pattern, layer->name, 0) == 0) {
            builder->matched[i] = true;
            compute = CRL_DTYPE_F32;
        }
    }
    return compute;
}

crl_status crl_graph_end_precision(const graph_builder *builder) {
    for (int i = 0; i < builder->precision.f32_count; i++) {
        if (!builder->matched[i]) {
            return CRL_FAIL(INVALID, "model: f32 pattern '%s' matches no node's name or type",
                            builder->precision.f32[i]);
        }
    }
    return CRL_STATUS_OK;
}

/* "<consumer>.cast", with the first number from 2 on that makes it unique. */
static crl_status name_cast(const char **out, graph_builder *builder, const char *consumer) {
    crl_arena *arena = &builder->graph->arena;
    int twin;
    CRL_TRY(crl_arena_format(arena, out, "%s.cast", consumer));
    CRL_TRY(crl_graph_find_node(&twin, builder, *out, strlen(*out)));
    for (int k = 2; twin >= 0; k++) {
        CRL_TRY(crl_arena_format(arena, out, "%s.cast%d", consumer, k));
        CRL_TRY(crl_graph_find_node(&twin, builder, *out, strlen(*out)));
    }
    return CRL_STATUS_OK;
}

static crl_status add_cast(graph_builder *builder, const crl_node *consumer, int value,
                           crl_dtype wanted) {
    crl_graph *graph = builder->graph;
    const crl_dtype given = graph->value[value].spec.dtype;
    crl_node node = {.key = consumer->key, .input = {value}};
    const void *layer;
    const crl_status status = crl_registry_find(&layer, builder->layers, "layer", "cast");
    if (status == CRL_STATUS_NOT_FOUND) {
        return CRL_FAIL(INVALID, "node %s: input '%s' is %s, expected %s: no layer 'cast' is known",
                        consumer->name, graph->value[value].name, crl_dtype_name(given),
                        crl_dtype_name(wanted));
    }
    CRL_TRY(status);
    node.layer = layer;
    CRL_TRY(name_cast(&node.name, builder, consumer->name));
    node.spec.node = node.name;
    node.spec.batch = graph->batch;
    node.spec.compute = given == CRL_DTYPE_F32 ? wanted : given;
    node.spec.inputs = 1;
    const crl_layer_desc desc = {.type = "cast", .name = node.name};
    CRL_TRY(crl_graph_parse_options(&node.spec.options, &graph->arena, node.layer, &desc));
    CRL_TRY(crl_graph_append_node(builder, &node));
    builder->cast[value] = graph->node[graph->nodes - 1].output[0];
    return CRL_STATUS_OK;
}

crl_status crl_graph_cast_inputs(graph_builder *builder, crl_node *node) {
    const crl_layer *layer = node->layer;
    for (int i = 0; i < node->spec.inputs; i++) {
        const int value = node->input[i];
        const crl_dtype given = builder->graph->value[value].spec.dtype;
        const crl_dtype wanted = layer->f32_inputs >> i & 1u ? CRL_DTYPE_F32 : node->spec.compute;
        if (!crl_graph_is_real(given) || given == wanted || layer->as_is >> i & 1u) {
            continue;
        }
        if (builder->cast[value] < 0) {
            CRL_TRY(add_cast(builder, node, value, wanted));
        }
        node->input[i] = builder->cast[value];
    }
    return CRL_STATUS_OK;
}
