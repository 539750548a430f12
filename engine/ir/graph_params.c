/* SPDX-License-Identifier: Apache-2.0 */
/* Parameters of a node: its own ones, or those of earlier nodes it is tied to. */
#include "engine/ir/graph_internal.h"

#include <string.h>

#include "engine/base/alloc.h"

enum { FIRST_CAPACITY = 32, TEXT_BYTES = 128 };

static int find_slot(const crl_layer_spec *spec, const char *name) {
    for (int i = 0; i < spec->params; i++) {
        if (strcmp(spec->param[i].name, name) == 0) {
            return i;
        }
    }
    return -1;
}

/* Parameter id of "<node>.<param>" among the nodes before `index`, or -1. A tied parameter answers
 * to the names of all its uses. */
static crl_status find_param(int *out, graph_builder *builder, int index, const char *name) {
    const char *dot = strrchr(name, '.');
    int n = -1;
    *out = -1;
    if (dot) {
        CRL_TRY(crl_graph_find_node(&n, builder, name, (size_t)(dot - name)));
    }
    if (n >= 0 && n < index) {
        const crl_node *node = &builder->graph->node[n];
        const int slot = find_slot(&node->spec, dot + 1);
        *out = slot < 0 ? -1 : node->param[slot];
    }
    return CRL_STATUS_OK;
}

static crl_status tie_param(graph_builder *builder, int index, int slot, const char *with) {
    crl_graph *graph = builder->graph;
    crl_node *node = &graph->node[index];
    const crl_param_spec *own = &node->spec.param[slot];
    int id;
    CRL_TRY(find_param(&id, builder, index, with));
    if (id < 0) {
        const char *near =
            graph->params > 0
                ? crl_nearest_name(with, graph->param, (size_t)graph->params, sizeof *graph->param)
                : NULL;
        if (near) {
            return CRL_FAIL(INVALID,
                            "node %s: %s is tied to '%s', which is no parameter of an earlier "
                            "node, did you mean '%s'?",
                            node->name, own->name, with, near);
        }
        return CRL_FAIL(INVALID,
                        "node %s: %s is tied to '%s', which is no parameter of an earlier node",
                        node->name, own->name, with);
    }
    crl_param *param = &graph->param[id];
    if (!crl_shape_equal(&own->shape, &param->spec.shape)) {
        char mine[TEXT_BYTES], other[TEXT_BYTES];
        return CRL_FAIL(
            INVALID, "node %s: %s is %s, expected %s of the tied %s", node->name, own->name,
            crl_tensor_text(&(crl_tensor_spec){CRL_DTYPE_F32, own->shape}, mine, sizeof mine),
            crl_tensor_text(&(crl_tensor_spec){CRL_DTYPE_F32, param->spec.shape}, other,
                            sizeof other),
            param->name);
    }
    node->param[slot] = id;
    node->use[slot] = param->uses++;
    return CRL_STATUS_OK;
}

static crl_status add_param(graph_builder *builder, int index, int slot) {
    crl_graph *graph = builder->graph;
    crl_node *node = &graph->node[index];
    if (graph->params == builder->param_capacity) {
        const int capacity = graph->params ? 2 * graph->params : FIRST_CAPACITY;
        CRL_TRY(crl_realloc(&graph->param, (size_t)graph->params, (size_t)capacity,
                            sizeof *graph->param));
        builder->param_capacity = capacity;
    }
    crl_param param = {.spec = node->spec.param[slot], .uses = 1};
    CRL_TRY(crl_arena_format(&graph->arena, &param.name, "%s.%s", node->name, param.spec.name));
    size_t bytes;
    CRL_TRY(
        crl_tensor_bytes(&bytes, &(crl_tensor_spec){CRL_DTYPE_F32, param.spec.shape}, param.name));
    param.elements = crl_shape_elements(&param.spec.shape);
    node->param[slot] = graph->params;
    node->use[slot] = 0;
    graph->param[graph->params++] = param;
    return CRL_STATUS_OK;
}

/* `with` of the tie of parameter `slot`, or NULL. */
static const char *tie_of(const crl_node *node, const crl_layer_desc *desc, int slot) {
    for (int i = 0; i < CRL_LAYER_MAX_PARAMS && desc->tie[i].param; i++) {
        if (strcmp(desc->tie[i].param, node->spec.param[slot].name) == 0) {
            return desc->tie[i].with;
        }
    }
    return NULL;
}

crl_status crl_graph_add_params(graph_builder *builder, const crl_layer_desc *desc) {
    const int index = builder->graph->nodes - 1;
    const crl_node *node = &builder->graph->node[index];
    for (int i = 0; i < CRL_LAYER_MAX_PARAMS && desc->tie[i].param; i++) {
        if (find_slot(&node->spec, desc->tie[i].param) < 0) {
            return CRL_FAIL(INVALID, "node %s: tied parameter '%s' is none of %s's", node->name,
                            desc->tie[i].param, node->layer->name);
        }
    }
    for (int slot = 0; slot < node->spec.params; slot++) {
        const char *with = tie_of(node, desc, slot);
        if (with) {
            CRL_TRY(tie_param(builder, index, slot, with));
        } else {
            CRL_TRY(add_param(builder, index, slot));
        }
    }
    return CRL_STATUS_OK;
}
