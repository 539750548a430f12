/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The layer graph. Nodes stay in the order they were described, which is a topological one because
 * an input must be an earlier node; casts stand before the node they were needed for. Refuses
 * several losses, unused outputs and ties of unequal shapes.
 */
#include "engine/ir/graph.h"
#include "engine/ir/graph_internal.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "engine/base/alloc.h"

static crl_status find_loss(crl_graph *graph) {
    graph->loss_node = -1;
    for (int n = 0; n < graph->nodes; n++) {
        if (!graph->node[n].layer->is_loss) {
            continue;
        }
        if (graph->loss_node >= 0) {
            return CRL_FAIL(INVALID, "node %s: second loss, after %s; expected one",
                            graph->node[n].name, graph->node[graph->loss_node].name);
        }
        graph->loss_node = n;
    }
    if (graph->loss_node < 0) {
        return CRL_FAIL(INVALID, "model: has no loss node, expected one");
    }
    return CRL_STATUS_OK;
}

crl_status crl_graph_build(crl_graph **out, const crl_model *model, const void *const *layers,
                           int64_t batch, const crl_precision *precision) {
    crl_status status = CRL_STATUS_OK;
    crl_graph *graph = NULL;
    if (batch < 1) {
        return CRL_FAIL(INVALID, "model: micro-batch size is %" PRId64 ", expected 1 or more",
                        batch);
    }
    if (model->exhausted) {
        return CRL_FAIL(NOMEM, "model: no room for the text of a node's name");
    }
    CRL_TRY(crl_alloc(&graph, 1, sizeof *graph));
    graph_builder builder = {.graph = graph, .layers = layers};
    graph->batch = batch;
    /* Every input of every node may need a cast. */
    const size_t most = (size_t)model->layers * (1 + CRL_LAYER_MAX_INPUTS);
    if (hcreate_r(2 * most + 1, &builder.names) == 0) {
        CRL_TRY_OUT(CRL_FAIL(NOMEM, "model: no room for the names of %d nodes", model->layers));
    }
    CRL_TRY_OUT(crl_graph_begin_precision(&builder, precision));
    for (int n = 0; n < model->layers; n++) {
        CRL_TRY_OUT(crl_graph_add_node(&builder, &model->layer[n], (uint32_t)n));
    }
    CRL_TRY_OUT(crl_graph_end_precision(&builder));
    CRL_TRY_OUT(find_loss(graph));
    CRL_TRY_OUT(crl_graph_link(graph));
    *out = graph;
    graph = NULL;
out:
    hdestroy_r(&builder.names);
    crl_free(builder.matched);
    crl_free(builder.cast);
    crl_graph_destroy(graph);
    return status;
}

void crl_graph_destroy(crl_graph *graph) {
    if (!graph) {
        return;
    }
    crl_free(graph->node);
    crl_free(graph->value);
    crl_free(graph->param);
    crl_arena_fini(&graph->arena);
    crl_free(graph);
}

int crl_graph_find(const crl_graph *graph, const char *name) {
    for (int n = 0; n < graph->nodes; n++) {
        if (strcmp(graph->node[n].name, name) == 0) {
            return n;
        }
    }
    return -1;
}

int64_t crl_graph_param_elements(const crl_graph *graph) {
    int64_t elements = 0;
    for (int p = 0; p < graph->params; p++) {
        elements += graph->param[p].elements;
    }
    return elements;
}

static void print_node(const crl_graph *graph, const crl_node *node, int name_width, FILE *out) {
    char text[128] = "-";
    int64_t elements = 0;
    bool tied = false;
    for (int i = 0; i < node->spec.params; i++) {
        if (node->use[i] == 0) {
            elements += graph->param[node->param[i]].elements;
        } else {
            tied = true;
        }
    }
    if (node->spec.outputs > 0) {
        crl_tensor_text(&node->spec.output[0], text, sizeof text);
    }
    fprintf(out, "%-*s  %-14s  %-22s  %12" PRId64 "%s", name_width, node->name, node->layer->name,
            text, elements, tied ? " tied" : "");
    for (int i = 0; i < node->spec.inputs; i++) {
        fprintf(out, "%s%s", i == 0 ? "  <- " : ", ", graph->value[node->input[i]].name);
    }
    fputc('\n', out);
}

void crl_graph_print(const crl_graph *graph, FILE *out) {
    int name_width = 4;
    for (int n = 0; n < graph->nodes; n++) {
        const int length = (int)strlen(graph->node[n].name);
        name_width = length > name_width ? length : name_width;
    }
    fprintf(out, "%-*s  %-14s  %-22s  %12s  inputs\n", name_width, "node", "layer", "output",
            "parameters");
    for (int n = 0; n < graph->nodes; n++) {
        print_node(graph, &graph->node[n], name_width, out);
    }
    fprintf(out, "%d nodes, %" PRId64 " parameters\n", graph->nodes,
            crl_graph_param_elements(graph));
}
