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
    const crl_precision precision = {crl_settings_compute(settings), settings->numerics.f32.item,
                                     settings->numerics.f32.count};
    CRL_TRY_OUT(crl_model_create(&model));
    CRL_TRY_OUT(settings->model->build(model, settings->model_options));
    CRL_TRY_OUT(crl_graph_build(out, model, registries->layers, batch, &precision));
out:
    crl_model_destroy(model);
    return status;
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
    CRL_TRY_OUT(crl_layout_cut(first_node, layout, registries));
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
    CRL_TRY_OUT(crl_layout_costs(layout));
out:
    crl_free(first_node);
    crl_free(position);
    return status;
}

/* Micro-batches and lanes of a step. */
static crl_status count_micro_batches(crl_layout *layout) {
    const crl_settings *s = layout->settings;
    const int64_t m = (s->train.global_batch + s->train.micro_batch - 1) / s->train.micro_batch;
    if (m > 65535) {
        return CRL_FAIL(INVALID, "layout: a step has %lld micro-batches, expected at most 65535",
                        (long long)m);
    }
    layout->micro_batches = (int)m;
    int64_t lanes = s->numerics.lanes;
    for (lanes = lanes ? lanes : 1; s->numerics.lanes == 0 && lanes < crl_settings_widest(s);) {
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
    int pipelines = 0, ranks = 0;
    CRL_TRY(crl_settings_count_ranks(&ranks, layout->settings));
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
    CRL_TRY_OUT(crl_layout_most_buffers(&layout->lane_buffers, layout));
    CRL_TRY_OUT(
        crl_layout_graph(&layout->graph, settings, registries, settings->train.micro_batch));
    CRL_TRY_OUT(crl_layout_graph(&layout->evaluate_graph, settings, registries,
                                 settings->train.evaluate_batch));
    CRL_TRY_OUT(crl_layout_times(layout, node_s));
    CRL_TRY_OUT(make_plans(layout, registries));
    CRL_TRY_OUT(crl_layout_fit(layout));
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
        crl_machine_file_fini(&layout->machine);
        crl_free(layout->first_row);
        crl_free(layout->widths);
        crl_free(layout->node_s);
        crl_free(layout->stage);
        crl_free(layout);
    }
}
