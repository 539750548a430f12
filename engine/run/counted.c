/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Counting a graph. Traffic of sums and updates: adding reads two arrays and writes one; the norm
 * reads the gradient once more; an update reads weights, gradients and states and writes weights
 * and states, and weights in 16 bits where layers compute in them.
 */
#include "engine/run/counted.h"

#include <string.h>

#include "engine/base/alloc.h"
#include "engine/ir/recompute.h"
#include "engine/run/params.h"

static const crl_machine nominal = {.name = "nominal CPU core",
                                    .nodes = 1,
                                    .devices_per_node = 1,
                                    .memory_bytes = 0x1p34,
                                    .peak_flops_per_s = 100e9,
                                    .efficiency = 1,
                                    .memory_bytes_per_s = 15e9,
                                    .within = {.latency_s = 0, .bytes_per_s = 8e9},
                                    .between = {.latency_s = 0, .bytes_per_s = 8e9}};

const crl_machine *crl_counted_nominal(void) {
    return &nominal;
}

double crl_counted_phase_s(const crl_layer_cost *cost, int phase, const crl_machine *machine) {
    const double flops = cost->flops[phase], bytes = cost->bytes[phase];
    const double flops_s = flops > 0 ? crl_machine_product_s(machine, flops) : 0;
    const double bytes_s = bytes > 0 ? crl_machine_traffic_s(machine, bytes) : 0;
    return flops_s > bytes_s ? flops_s : bytes_s;
}

void crl_counted_times(double *node_s, const crl_graph *graph, const crl_machine *machine) {
    for (int n = 0; n < graph->nodes; n++) {
        for (int p = 0; p < CRL_PHASES; p++) {
            node_s[n * CRL_PHASES + p] = crl_counted_phase_s(&graph->node[n].spec.cost, p, machine);
        }
    }
}

/* Under way: a graph becoming a profile. */
typedef struct counting {
    const crl_graph *graph;
    const crl_machine *machine;
    const double *node_s; /* (nodes × CRL_PHASES) */
    int states;
    int *unit;                                /* (nodes) -1: an input of the dataset */
    crl_recompute *recompute[CRL_RECOMPUTES]; /* of the whole graph as one stage */
    crl_profile *profile;
} counting;

static crl_status find_units(counting *c) {
    int units = 0;
    CRL_TRY(crl_alloc(&c->unit, (size_t)c->graph->nodes, sizeof *c->unit));
    for (int n = 0; n < c->graph->nodes; n++) {
        c->unit[n] = c->graph->node[n].layer->is_input ? -1 : units++;
    }
    return crl_profile_create(&c->profile, units);
}

static crl_status find_recompute(counting *c) {
    crl_status status = CRL_STATUS_OK;
    const size_t nodes = (size_t)c->graph->nodes;
    unsigned char *mode = NULL;
    CRL_TRY(crl_alloc(&mode, nodes, 1));
    for (int m = 0; m < CRL_RECOMPUTES; m++) {
        memset(mode, m, nodes);
        CRL_TRY_OUT(crl_recompute_create(&c->recompute[m], c->graph, 0, c->graph->nodes, mode));
    }
out:
    crl_free(mode);
    return status;
}

/* The units whose results node n reads, ascending, each once; and its name. */
static crl_status name_unit(counting *c, int n) {
    const crl_node *node = &c->graph->node[n];
    int input[CRL_LAYER_MAX_INPUTS], inputs = 0;
    for (int i = 0; i < node->spec.inputs; i++) {
        const int unit = c->unit[c->graph->value[node->input[i]].producer];
        int at = 0;
        while (at < inputs && input[at] < unit) {
            at++;
        }
        if (unit < 0 || (at < inputs && input[at] == unit)) {
            continue;
        }
        memmove(&input[at + 1], &input[at], (size_t)(inputs - at) * sizeof input[0]);
        input[at] = unit;
        inputs++;
    }
    return crl_profile_name_unit(c->profile, c->unit[n], node->name, inputs, input);
}

static void count_parameters(const counting *c, int n, crl_profile_unit *u) {
    const crl_node *node = &c->graph->node[n];
    double elements = 0;
    for (int p = 0; p < node->spec.params; p++) {
        elements += (double)c->graph->param[node->param[p]].elements;
    }
    if (elements > 0) {
        const double rounded = elements * (double)crl_params_rounded_each(node->spec.compute);
        u->parameter_bytes = elements * sizeof(float);
        u->state_bytes = u->parameter_bytes * (2 + c->states) + rounded;
        u->add_s = crl_machine_traffic_s(c->machine, 3 * u->parameter_bytes);
        u->update_s = crl_machine_traffic_s(c->machine,
                                            (1 + 3 + 2 * c->states) * u->parameter_bytes + rounded);
    }
}

/* Gradients of results and inputs while backward of the node runs. */
static double workspace_bytes(const counting *c, int n) {
    const crl_node *node = &c->graph->node[n];
    double bytes = 0;
    for (int o = 0; o < node->spec.outputs; o++) {
        const crl_value *v = &c->graph->value[node->output[o]];
        bytes += v->has_gradient ? (double)v->bytes : 0;
    }
    for (int i = 0; i < node->spec.inputs; i++) {
        const crl_value *v = &c->graph->value[node->input[i]];
        bytes += v->has_gradient ? (double)v->bytes : 0;
    }
    return bytes;
}

static void count_unit(const counting *c, int n) {
    const crl_node *node = &c->graph->node[n];
    const double *time = &c->node_s[n * CRL_PHASES];
    crl_profile_unit *u = &c->profile->unit[c->unit[n]];
    u->forward_s = time[CRL_PHASE_FORWARD];
    u->input_s = time[CRL_PHASE_INPUT];
    u->weight_s = time[CRL_PHASE_WEIGHT];
    for (int m = 0; m < CRL_RECOMPUTES; m++) {
        u->recompute_s[m] = c->recompute[m]->again[n] ? u->forward_s : 0;
        u->kept_bytes[m] = crl_recompute_kept_bytes(c->recompute[m], n, n + 1);
    }
    u->no_gradient = true;
    for (int o = 0; o < node->spec.outputs; o++) {
        const crl_value *v = &c->graph->value[node->output[o]];
        u->output_bytes += (double)v->bytes;
        u->no_gradient = u->no_gradient && !v->has_gradient;
    }
    u->held_bytes = crl_recompute_held_bytes(c->recompute[CRL_RECOMPUTE_NONE], n, n + 1);
    u->workspace_bytes = workspace_bytes(c, n);
    count_parameters(c, n, u);
}

/* Rows that count in the loss: its integer targets. */
static double tokens_per_sample(const crl_graph *graph) {
    const crl_layer_spec *loss = &graph->node[graph->loss_node].spec;
    for (int i = 0; i < loss->inputs; i++) {
        if (loss->input[i].dtype == CRL_DTYPE_I32) {
            return (double)crl_shape_elements(&loss->input[i].shape) / (double)graph->batch;
        }
    }
    return 1;
}

crl_status crl_profile_counted(crl_profile **out, const crl_graph *graph,
                               const crl_machine *machine, const double *node_s, int states) {
    crl_status status = CRL_STATUS_OK;
    counting c = {.graph = graph, .machine = machine, .node_s = node_s, .states = states};
    double *counted_s = NULL;
    CRL_TRY_OUT(crl_alloc(&counted_s, (size_t)graph->nodes * CRL_PHASES, sizeof *counted_s));
    crl_counted_times(counted_s, graph, machine);
    c.node_s = node_s ? node_s : counted_s;
    CRL_TRY_OUT(find_units(&c));
    CRL_TRY_OUT(find_recompute(&c));
    CRL_TRY_OUT(
        crl_arena_format(&c.profile->arena, &c.profile->source, "counted for %s", machine->name));
    c.profile->micro_batch = graph->batch;
    c.profile->tokens_per_sample = tokens_per_sample(graph);
    for (int n = 0; n < graph->nodes; n++) {
        if (c.unit[n] >= 0) {
            CRL_TRY_OUT(name_unit(&c, n));
            count_unit(&c, n);
        }
    }
    CRL_TRY_OUT(crl_profile_check(c.profile));
    *out = c.profile;
    c.profile = NULL;
out:
    crl_profile_destroy(c.profile);
    for (int m = 0; m < CRL_RECOMPUTES; m++) {
        crl_recompute_destroy(c.recompute[m]);
    }
    crl_free(c.unit);
    crl_free(counted_s);
    return status;
}
