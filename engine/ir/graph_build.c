/* SPDX-License-Identifier: Apache-2.0 */
/* From descriptors to nodes: inputs by name, shape inference, values, consumers. */
#include "engine/ir/graph_internal.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "engine/base/alloc.h"
#include "engine/base/registry.h"

enum { FIRST_CAPACITY = 32 };

crl_status crl_graph_find_node(int *out, graph_builder *builder, const char *name, size_t length) {
    char *key = NULL;
    ENTRY *found = NULL;
    CRL_TRY(crl_alloc_format(&key, "%.*s", (int)length, name));
    const bool known = hsearch_r((ENTRY){.key = key}, FIND, &found, &builder->names) != 0;
    *out = known ? (int)(intptr_t)found->data : -1;
    crl_free(key);
    return CRL_STATUS_OK;
}

static crl_status remember_node(graph_builder *builder, int index) {
    ENTRY *entered = NULL;
    const ENTRY entry = {.key = (char *)(uintptr_t)builder->graph->node[index].name,
                         .data = (void *)(intptr_t)index};
    if (hsearch_r(entry, ENTER, &entered, &builder->names) == 0) {
        return CRL_FAIL(NOMEM, "node %s: no room for its name", entry.key);
    }
    return CRL_STATUS_OK;
}

static crl_status unknown_input(const crl_graph *graph, const crl_layer_desc *desc,
                                const char *name) {
    const char *near = graph->nodes > 0 ? crl_nearest_name(name, graph->node, (size_t)graph->nodes,
                                                           sizeof *graph->node)
                                        : NULL;
    if (near) {
        return CRL_FAIL(INVALID, "node %s: input '%s' is no earlier node, did you mean '%s'?",
                        desc->name, name, near);
    }
    return CRL_FAIL(INVALID, "node %s: input '%s' is no earlier node", desc->name, name);
}

/* Value id of the text "<node>" or "<node>:<k>". */
static crl_status find_value(int *out, graph_builder *builder, const crl_layer_desc *desc,
                             const char *name) {
    const crl_graph *graph = builder->graph;
    const char *colon = strchr(name, ':');
    const size_t length = colon ? (size_t)(colon - name) : strlen(name);
    int node;
    CRL_TRY(crl_graph_find_node(&node, builder, name, length));
    if (node < 0) {
        return unknown_input(graph, desc, name);
    }
    const int outputs = graph->node[node].spec.outputs;
    long output = 0;
    if (colon) {
        char *end;
        errno = 0;
        output = strtol(colon + 1, &end, 10);
        if (end == colon + 1 || *end != '\0' || errno != 0 || colon[1] < '0' || colon[1] > '9') {
            return CRL_FAIL(INVALID, "node %s: input '%s' does not end in an output number",
                            desc->name, name);
        }
    }
    if (output >= outputs) {
        return CRL_FAIL(INVALID, "node %s: input '%s' is output %ld of a node with %d", desc->name,
                        name, output, outputs);
    }
    *out = graph->node[node].output[output];
    return CRL_STATUS_OK;
}

static crl_status resolve_inputs(graph_builder *builder, crl_node *node,
                                 const crl_layer_desc *desc) {
    const crl_graph *graph = builder->graph;
    const crl_node *last = graph->nodes > 0 ? &graph->node[graph->nodes - 1] : NULL;
    int given = 0;
    for (int i = 0; i < CRL_LAYER_MAX_INPUTS; i++) {
        if (!desc->input[i]) {
            continue;
        }
        if (i > given) {
            return CRL_FAIL(INVALID, "node %s: input %d is given, but input %d is not", desc->name,
                            i, given);
        }
        CRL_TRY(find_value(&node->input[given++], builder, desc, desc->input[i]));
    }
    if (node->layer->is_input) {
        if (given > 0) {
            return CRL_FAIL(INVALID, "node %s: %s takes no input, got '%s'", desc->name,
                            node->layer->name, desc->input[0]);
        }
    } else if (given == 0) {
        if (!last || last->spec.outputs == 0) {
            return CRL_FAIL(INVALID, "node %s: names no input, and no node before it has an output",
                            desc->name);
        }
        node->input[given++] = last->output[0];
    }
    node->spec.inputs = given;
    return CRL_STATUS_OK;
}

/* What `infer` may not get wrong: a bug of the layer, not of its user. */
static crl_status check_inferred(const crl_node *node) {
    const crl_layer_spec *spec = &node->spec;
    if (spec->outputs < 0 || spec->outputs > CRL_LAYER_MAX_OUTPUTS || spec->params < 0 ||
        spec->params > CRL_LAYER_MAX_PARAMS || spec->saves < 0 ||
        spec->saves > CRL_LAYER_MAX_SAVED) {
        return CRL_FAIL(INTERNAL, "layer %s: infers %d outputs, %d parameters, %d saves, too many",
                        node->layer->name, spec->outputs, spec->params, spec->saves);
    }
    if ((spec->outputs == 0) != node->layer->is_loss) {
        return CRL_FAIL(INTERNAL, "layer %s: infers %d outputs, expected %s", node->layer->name,
                        spec->outputs, node->layer->is_loss ? "none of a loss" : "one or more");
    }
    return CRL_STATUS_OK;
}

static bool carries_gradient(const crl_graph *graph, const crl_node *node) {
    if (node->spec.params > 0) {
        return true;
    }
    for (int i = 0; i < node->spec.inputs; i++) {
        const bool passes = node->spec.gradient_inputs & (1u << i);
        if (passes && graph->value[node->input[i]].has_gradient) {
            return true;
        }
    }
    return false;
}

static crl_status add_value(graph_builder *builder, int index, int output) {
    crl_graph *graph = builder->graph;
    crl_node *node = &graph->node[index];
    if (graph->values == builder->value_capacity) {
        const int capacity = graph->values ? 2 * graph->values : FIRST_CAPACITY;
        CRL_TRY(crl_realloc(&graph->value, (size_t)graph->values, (size_t)capacity,
                            sizeof *graph->value));
        CRL_TRY(crl_realloc(&builder->cast, (size_t)graph->values, (size_t)capacity,
                            sizeof *builder->cast));
        builder->value_capacity = capacity;
    }
    crl_value value = {.spec = node->spec.output[output],
                       .producer = index,
                       .output = output,
                       .from_input = node->layer->is_input};
    if (output == 0) {
        value.name = node->name;
    } else {
        CRL_TRY(crl_arena_format(&graph->arena, &value.name, "%s:%d", node->name, output));
    }
    CRL_TRY(crl_tensor_bytes(&value.bytes, &value.spec, value.name));
    value.has_gradient = crl_graph_is_real(value.spec.dtype) && carries_gradient(graph, node);
    node->output[output] = graph->values;
    builder->cast[graph->values] = -1;
    graph->value[graph->values++] = value;
    return CRL_STATUS_OK;
}

static crl_status find_layer(crl_node *node, const crl_layer_desc *desc,
                             const void *const *layers) {
    const void *layer;
    const crl_status status = crl_registry_find(&layer, layers, "layer", desc->type);
    if (status == CRL_STATUS_NOT_FOUND) {
        return CRL_FAIL(INVALID, "node %s: %s", desc->name, crl_error_message());
    }
    CRL_TRY(status);
    node->layer = layer;
    return CRL_STATUS_OK;
}

static crl_status make_room(graph_builder *builder) {
    crl_graph *graph = builder->graph;
    if (graph->nodes == builder->node_capacity) {
        const int capacity = graph->nodes ? 2 * graph->nodes : FIRST_CAPACITY;
        CRL_TRY(
            crl_realloc(&graph->node, (size_t)graph->nodes, (size_t)capacity, sizeof *graph->node));
        builder->node_capacity = capacity;
    }
    return CRL_STATUS_OK;
}

crl_status crl_graph_append_node(graph_builder *builder, const crl_node *given) {
    crl_graph *graph = builder->graph;
    CRL_TRY(make_room(builder));
    const int index = graph->nodes;
    crl_node *node = &graph->node[index];
    *node = *given;
    for (int i = 0; i < node->spec.inputs; i++) {
        node->spec.input[i] = graph->value[node->input[i]].spec;
    }
    CRL_TRY(remember_node(builder, index));
    CRL_TRY(node->layer->infer(&node->spec));
    CRL_TRY(check_inferred(node));
    for (int i = 0; i < node->spec.outputs; i++) {
        CRL_TRY(add_value(builder, index, i));
    }
    graph->nodes++;
    return CRL_STATUS_OK;
}

crl_status crl_graph_add_node(graph_builder *builder, const crl_layer_desc *desc, uint32_t key) {
    crl_graph *graph = builder->graph;
    crl_node node = {.key = key};
    if (strchr(desc->name, ':')) {
        return CRL_FAIL(INVALID, "node %s: a name may not contain ':'", desc->name);
    }
    int twin;
    CRL_TRY(crl_graph_find_node(&twin, builder, desc->name, strlen(desc->name)));
    if (twin >= 0) {
        return CRL_FAIL(INVALID, "node %s: nodes %d and %d have the same name", desc->name, twin,
                        graph->nodes);
    }
    CRL_TRY(crl_arena_text(&graph->arena, &node.name, desc->name));
    CRL_TRY(find_layer(&node, desc, builder->layers));
    node.spec.node = node.name;
    node.spec.batch = graph->batch;
    node.spec.compute = crl_graph_precision_of(builder, node.layer, node.name);
    CRL_TRY(crl_graph_parse_options(&node.spec.options, &graph->arena, node.layer, desc));
    CRL_TRY(resolve_inputs(builder, &node, desc));
    CRL_TRY(crl_graph_cast_inputs(builder, &node));
    CRL_TRY(crl_graph_append_node(builder, &node));
    return crl_graph_add_params(builder, desc);
}

static crl_status report_unused(const crl_graph *graph, const crl_value *value) {
    const crl_node *node = &graph->node[value->producer];
    if (node->spec.outputs == 1) {
        return CRL_FAIL(INVALID, "node %s: output is not used", node->name);
    }
    return CRL_FAIL(INVALID, "node %s: output %d is not used", node->name, value->output);
}

static crl_status link_values(crl_graph *graph) {
    int total = 0;
    for (int n = 0; n < graph->nodes; n++) {
        for (int i = 0; i < graph->node[n].spec.inputs; i++) {
            graph->value[graph->node[n].input[i]].consumers++;
            total++;
        }
    }
    crl_consumer *room;
    CRL_TRY(crl_arena_alloc(&graph->arena, &room, (size_t)total, sizeof *room));
    for (int v = 0, used = 0; v < graph->values; v++) {
        crl_value *value = &graph->value[v];
        if (value->consumers == 0) {
            return report_unused(graph, value);
        }
        value->consumer = room + used;
        used += value->consumers;
        value->consumers = 0;
    }
    for (int n = 0; n < graph->nodes; n++) {
        for (int i = 0; i < graph->node[n].spec.inputs; i++) {
            crl_value *value = &graph->value[graph->node[n].input[i]];
            room[(value->consumer - room) + value->consumers++] =
                (crl_consumer){.node = n, .slot = i};
        }
    }
    return CRL_STATUS_OK;
}

static crl_status link_params(crl_graph *graph) {
    int total = 0;
    for (int n = 0; n < graph->nodes; n++) {
        total += graph->node[n].spec.params;
    }
    crl_param_use *room;
    CRL_TRY(crl_arena_alloc(&graph->arena, &room, (size_t)total, sizeof *room));
    for (int p = 0, used = 0; p < graph->params; p++) {
        graph->param[p].use = room + used;
        used += graph->param[p].uses;
    }
    for (int n = 0; n < graph->nodes; n++) {
        const crl_node *node = &graph->node[n];
        for (int i = 0; i < node->spec.params; i++) {
            const crl_param_use *use = graph->param[node->param[i]].use;
            room[(use - room) + node->use[i]] = (crl_param_use){.node = n, .slot = i};
        }
    }
    return CRL_STATUS_OK;
}

crl_status crl_graph_link(crl_graph *graph) {
    CRL_TRY(link_values(graph));
    return link_params(graph);
}
