/* SPDX-License-Identifier: Apache-2.0 */
/* Graphs, costs, cuts and programs of a run. */
#include "engine/run/layout.h"

#include <string.h>

#include "engine/base/alloc.h"
#include "engine/base/registry.h"
#include "engine/ir/recompute.h"
#include "engine/run/counted.h"
#include "engine/run/layout_internal.h"

crl_status crl_layout_graph(crl_graph **out, const crl_settings *settings,
                            const crl_registries *registries, int64_t batch) {
    crl_status status = CRL_STATUS_OK;
    crl_model *model = NULL;
    CRL_TRY_OUT(crl_model_create(&model));
    CRL_TRY_OUT(settings->model->build(model, settings->model_options));
    CRL_TRY_OUT(crl_graph_build(out, model, registries->layers, batch));
out:
    crl_model_destroy(model);
    return status;
}

/* The chain the partitioner cuts: every node but the dataset's, which are read where they are used.
 */
typedef struct chain {
    int units;
    int *node;
    double *compute_s, *state_bytes, *activation_bytes, *boundary_s;
    const char **name;
} chain;

static void chain_fini(chain *c) {
    crl_free(c->node);
    crl_free(c->compute_s);
    crl_free(c->state_bytes);
    crl_free(c->activation_bytes);
    crl_free(c->boundary_s);
    crl_free(c->name);
}

/* Bytes of one micro-batch that node n keeps for backward: its saves, and outputs somebody reads.
 */
static double kept_bytes(const crl_graph *graph, int n) {
    const crl_node *node = &graph->node[n];
    double bytes = 0;
    for (int s = 0; s < node->spec.saves; s++) {
        bytes += (double)crl_dtype_bytes(node->spec.save[s].dtype) *
                 (double)crl_shape_elements(&node->spec.save[s].shape);
    }
    for (int o = 0; o < node->spec.outputs; o++) {
        const crl_value *v = &graph->value[node->output[o]];
        uint32_t read =
            (node->spec.input_needs_outputs | node->spec.weight_needs_outputs) >> o & 1u;
        for (int c = 0; c < v->consumers; c++) {
            const crl_layer_spec *spec = &graph->node[v->consumer[c].node].spec;
            read |=
                (spec->input_needs_inputs | spec->weight_needs_inputs) >> v->consumer[c].slot & 1u;
        }
        bytes += read ? (double)v->bytes : 0;
    }
    return bytes;
}

static crl_status chain_init(chain *c, const crl_layout *layout) {
    const crl_graph *graph = layout->graph;
    const size_t nodes = (size_t)graph->nodes;
    int lane_buffers = 1;
    CRL_TRY(crl_layout_most_buffers(&lane_buffers, layout));
    CRL_TRY(crl_alloc(&c->node, nodes, sizeof *c->node));
    CRL_TRY(crl_alloc(&c->compute_s, nodes, sizeof(double)));
    CRL_TRY(crl_alloc(&c->state_bytes, nodes, sizeof(double)));
    CRL_TRY(crl_alloc(&c->activation_bytes, nodes, sizeof(double)));
    CRL_TRY(crl_alloc(&c->boundary_s, nodes, sizeof(double)));
    CRL_TRY(crl_alloc(&c->name, nodes, sizeof *c->name));
    for (int n = 0; n < graph->nodes; n++) {
        const crl_node *node = &graph->node[n];
        const int u = c->units;
        if (node->layer->is_input) {
            continue;
        }
        c->node[u] = n;
        c->name[u] = node->name;
        for (int p = 0; p < CRL_PHASES; p++) {
            c->compute_s[u] += layout->node_s[n * CRL_PHASES + p];
        }
        const int sets = layout->settings->optimizer.validate == CRL_VALIDATE_AFTER ? 2 : 1;
        for (int p = 0; p < node->spec.params; p++) {
            c->state_bytes[u] += (double)graph->param[node->param[p]].elements * sizeof(float) *
                                 (lane_buffers + sets * (1 + layout->states));
        }
        c->activation_bytes[u] = kept_bytes(graph, n);
        c->boundary_s[u] = n + 1 < graph->nodes ? 2.0 * (double)crl_graph_cut_bytes(graph, n + 1) /
                                                      crl_counted_nominal()->within.bytes_per_s
                                                : 0;
        c->units++;
    }
    return CRL_STATUS_OK;
}

static crl_status too_many_stages(const crl_layout *layout, int units) {
    return CRL_FAIL(INVALID,
                    "layout: %d stages on %d positions, but the model has only %d layers to cut",
                    layout->stages, layout->mesh.pipeline, units);
}

static crl_status make_cuts(crl_layout *layout, const crl_registries *registries, int *first_node) {
    crl_status status = CRL_STATUS_OK;
    const crl_settings *s = layout->settings;
    const void *found = NULL;
    const int stages = layout->stages;
    chain c = {0};
    int *in_flight = NULL, *widths = NULL, *position = NULL;
    CRL_TRY_OUT(crl_registry_find(&found, registries->partitioners, "partitioner",
                                  s->parallel.partitioner));
    CRL_TRY_OUT(chain_init(&c, layout));
    if (stages > c.units) {
        CRL_TRY_OUT(crl_layout_placed(too_many_stages(layout, c.units), s, "parallel.pipeline"));
    }
    CRL_TRY_OUT(crl_alloc(&in_flight, (size_t)stages, sizeof *in_flight));
    CRL_TRY_OUT(crl_layout_in_flight(in_flight, layout));
    CRL_TRY_OUT(crl_alloc(&widths, (size_t)stages, sizeof *widths));
    CRL_TRY_OUT(crl_alloc(&position, (size_t)stages, sizeof *position));
    CRL_TRY_OUT(crl_layout_positions(position, layout));
    for (int i = 0; i < stages; i++) {
        widths[i] = layout->widths[position[i]];
    }
    const crl_partition_request request = {.units = c.units,
                                           .compute_s = c.compute_s,
                                           .state_bytes = c.state_bytes,
                                           .activation_bytes = c.activation_bytes,
                                           .boundary_s = c.boundary_s,
                                           .stages = stages,
                                           .memory_limit_bytes =
                                               (double)s->parallel.memory_limit_bytes,
                                           .in_flight = in_flight,
                                           .widths = widths,
                                           .unit_name = c.name,
                                           .cuts = s->parallel.cuts};
    CRL_TRY_OUT(
        crl_layout_placed(((const crl_partitioner *)found)->cut(&layout->partition, &request), s,
                          request.cuts.count > 0 ? "parallel.cuts" : "parallel.partitioner"));
    for (int i = 0; i < stages; i++) {
        first_node[i] = i == 0 ? 0 : c.node[layout->partition.first[i]];
    }
out:
    crl_free(in_flight);
    crl_free(widths);
    crl_free(position);
    chain_fini(&c);
    return status;
}

static void fill_costs(crl_layout *layout) {
    for (int s = 0; s < layout->stages; s++) {
        crl_stage_cost *cost = &layout->stage[s];
        for (int n = layout->plan->stage[s].first; n < layout->plan->stage[s].last; n++) {
            cost->forward_s += layout->node_s[n * CRL_PHASES + CRL_PHASE_FORWARD];
            cost->input_s += layout->node_s[n * CRL_PHASES + CRL_PHASE_INPUT];
            cost->weight_s += layout->node_s[n * CRL_PHASES + CRL_PHASE_WEIGHT];
            cost->kept_bytes += kept_bytes(layout->graph, n);
        }
        cost->held_bytes = cost->kept_bytes;
    }
}

/* The user's modes, for the plan that has a backward. */
static crl_status mark_recompute(crl_layout *layout, const int *first_node) {
    crl_plan *plan = layout->plan;
    CRL_TRY(crl_alloc(&plan->recompute, (size_t)plan->graph->nodes, 1));
    return crl_layout_placed(crl_recompute_modes(plan->recompute, plan->graph, plan->stages,
                                                 first_node, &layout->settings->parallel.recompute),
                             layout->settings, "parallel.recompute");
}

static crl_status make_plans(crl_layout *layout, const crl_registries *registries) {
    crl_status status = CRL_STATUS_OK;
    const size_t stages = (size_t)layout->stages;
    int *first_node = NULL, *position = NULL;
    CRL_TRY_OUT(crl_alloc(&first_node, stages, sizeof *first_node));
    CRL_TRY_OUT(crl_alloc(&position, stages, sizeof *position));
    CRL_TRY_OUT(make_cuts(layout, registries, first_node));
    CRL_TRY_OUT(crl_layout_positions(position, layout));
    crl_plan_config config = {.graph = layout->graph,
                              .positions = layout->mesh.pipeline,
                              .stages = layout->stages,
                              .first_node = first_node,
                              .position = position,
                              .widths = layout->widths};
    CRL_TRY_OUT(crl_plan_create(&layout->plan, &config));
    CRL_TRY_OUT(mark_recompute(layout, first_node));
    config.graph = layout->evaluate_graph;
    CRL_TRY_OUT(crl_plan_create(&layout->evaluate_plan, &config));
    CRL_TRY_OUT(crl_alloc(&layout->stage, stages, sizeof *layout->stage));
    fill_costs(layout);
out:
    crl_free(first_node);
    crl_free(position);
    return status;
}

/* Numbers of a step that do not depend on the widths. */
static crl_status count_micro_batches(crl_layout *layout) {
    const crl_settings *s = layout->settings;
    const int64_t m = (s->train.global_batch + s->train.micro_batch - 1) / s->train.micro_batch;
    if (m > 65535) {
        return CRL_FAIL(INVALID, "layout: a step has %lld micro-batches, expected at most 65535",
                        (long long)m);
    }
    layout->micro_batches = (int)m;
    int64_t lanes = s->lanes;
    for (lanes = lanes ? lanes : 1; s->lanes == 0 && lanes < crl_settings_widest(s);) {
        lanes *= 2;
    }
    for (layout->lanes = 1; layout->lanes * 2 <= m && layout->lanes * 2 <= lanes;) {
        layout->lanes *= 2;
    }
    return CRL_STATUS_OK;
}

static int gcd(int a, int b) {
    return b == 0 ? a : gcd(b, a % b);
}

/* Equal pipelines, as many as divide all widths; a position then has one row or more in each. */
static crl_status make_mesh(crl_layout *layout) {
    const int positions = (int)layout->settings->parallel.pipeline;
    int pipelines = 0;
    CRL_TRY(crl_alloc(&layout->widths, (size_t)positions, sizeof *layout->widths));
    CRL_TRY(crl_alloc(&layout->first_row, (size_t)positions + 1, sizeof *layout->first_row));
    for (int p = 0; p < positions; p++) {
        layout->widths[p] = crl_settings_width(layout->settings, p);
        pipelines = gcd(layout->widths[p], pipelines);
    }
    for (int p = 0; p < positions; p++) {
        layout->first_row[p + 1] = layout->first_row[p] + layout->widths[p] / pipelines;
    }
    layout->mesh = (crl_mesh){positions, pipelines, 1, layout->first_row};
    return CRL_STATUS_OK;
}

crl_status crl_layout_create(crl_layout **out, const crl_settings *settings,
                             const crl_registries *registries, const double *node_s) {
    crl_status status = CRL_STATUS_OK;
    crl_layout *layout = NULL;
    const char *names[CRL_OPTIMIZER_MAX_STATES];
    CRL_TRY_OUT(crl_alloc(&layout, 1, sizeof *layout));
    layout->settings = settings;
    layout->optimizer = settings->optimizer_kind;
    layout->states = layout->optimizer->states(settings->optimizer_options, names);
    CRL_TRY_OUT(make_mesh(layout));
    CRL_TRY_OUT(count_micro_batches(layout));
    CRL_TRY_OUT(crl_layout_find_schedule(layout, registries));
    CRL_TRY_OUT(
        crl_layout_graph(&layout->graph, settings, registries, settings->train.micro_batch));
    CRL_TRY_OUT(crl_layout_graph(&layout->evaluate_graph, settings, registries,
                                 settings->train.evaluate_batch));
    const size_t times = (size_t)layout->graph->nodes * CRL_PHASES;
    CRL_TRY_OUT(crl_alloc(&layout->node_s, times, sizeof(double)));
    if (node_s) {
        memcpy(layout->node_s, node_s, times * sizeof(double));
    } else {
        crl_counted_times(layout->node_s, layout->graph, crl_counted_nominal());
    }
    CRL_TRY_OUT(make_plans(layout, registries));
    *out = layout;
    layout = NULL;
out:
    crl_layout_destroy(layout);
    return status;
}

void crl_layout_destroy(crl_layout *layout) {
    if (layout) {
        crl_plan_destroy(layout->plan);
        crl_plan_destroy(layout->evaluate_plan);
        crl_graph_destroy(layout->graph);
        crl_graph_destroy(layout->evaluate_graph);
        crl_program_destroy(layout->own_schedule);
        crl_free(layout->first_row);
        crl_free(layout->widths);
        crl_free(layout->node_s);
        crl_free(layout->stage);
        crl_free(layout);
    }
}
