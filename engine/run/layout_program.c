/* SPDX-License-Identifier: Apache-2.0 */
/* The schedule of a layout, the programs it becomes, and the order of sums that follows. */
#include <string.h>

#include "engine/base/alloc.h"
#include "engine/base/registry.h"
#include "engine/run/layout_internal.h"

enum { SEND_WINDOW = 2 };

crl_status crl_layout_placed(crl_status status, const crl_settings *settings, const char *key) {
    char at[512], message[1024];
    if (status != CRL_STATUS_INVALID && status != CRL_STATUS_NOT_FOUND) {
        return status;
    }
    snprintf(message, sizeof message, "%s", crl_error_message());
    return CRL_FAIL(INVALID, "%s: %s", crl_config_where(&settings->source, key, at, sizeof at),
                    message);
}

crl_range crl_layout_pipeline(const crl_layout *layout, int pipeline) {
    return crl_replica_micro_batches(pipeline, layout->mesh.data, layout->lanes,
                                     layout->micro_batches);
}

int crl_layout_busy_pipeline(const crl_layout *layout) {
    int pipeline = 0;
    for (crl_range own = {0, 0}; own.first == own.last;) {
        own = crl_layout_pipeline(layout, pipeline++);
    }
    return pipeline - 1;
}

crl_range crl_layout_own(const crl_layout *layout, int position, int replica) {
    return crl_replica_micro_batches(replica, layout->widths[position], layout->lanes,
                                     layout->micro_batches);
}

crl_status crl_layout_find_schedule(crl_layout *layout, const crl_registries *registries) {
    const crl_settings *s = layout->settings;
    const void *schedule = NULL;
    if (crl_layout_is_file(s->parallel.schedule)) {
        CRL_TRY(
            crl_layout_placed(crl_layout_read_schedule(&layout->own_schedule, s->parallel.schedule),
                              s, "parallel.schedule"));
        layout->stages = layout->own_schedule->stages;
        return crl_layout_placed(crl_layout_check_own(layout), s, "parallel.schedule");
    }
    CRL_TRY(crl_registry_find(&schedule, registries->schedules, "schedule", s->parallel.schedule));
    layout->schedule = schedule;
    const int64_t each = s->parallel.virtual_stages > 0 ? s->parallel.virtual_stages
                                                        : layout->schedule->least_virtual;
    const int64_t stages = s->parallel.pipeline * each;
    if (stages > INT32_MAX) {
        return CRL_FAIL(INVALID, "layout: %lld stages, expected at most %d", (long long)stages,
                        INT32_MAX);
    }
    layout->stages = (int)stages;
    return crl_layout_placed(
        crl_schedule_check_stages(schedule, (int)s->parallel.pipeline, layout->stages), s,
        s->parallel.virtual_stages > 1 ? "parallel.virtual_stages" : "parallel.schedule");
}

/* What the schedule is asked for, for a pipeline of `micro_batches`. `widths` (P) is filled where
 * positions have several rows. */
static crl_schedule_request request_of(const crl_layout *layout, int micro_batches, int *widths) {
    const int *first_row = layout->first_row;
    for (int p = 0; p < layout->mesh.pipeline; p++) {
        widths[p] = first_row[p + 1] - first_row[p];
    }
    return (crl_schedule_request){
        .positions = layout->mesh.pipeline,
        .stages = layout->stages,
        .micro_batches = micro_batches,
        .widths = first_row[layout->mesh.pipeline] > layout->mesh.pipeline ? widths : NULL,
        .group = (int)layout->settings->parallel.group,
        .cost = layout->stage,
        .message_s = layout->message_s,
        .memory_limit_bytes = layout->activation_limit_bytes};
}

crl_status crl_layout_positions(int *out, const crl_layout *layout) {
    if (layout->own_schedule) {
        for (int p = 0; p < layout->own_schedule->positions; p++) {
            const crl_action_list *list = &layout->own_schedule->position[p];
            for (int i = 0; i < list->count; i++) {
                out[list->action[i].stage] = p;
            }
        }
        return CRL_STATUS_OK;
    }
    int *widths = NULL;
    CRL_TRY(crl_alloc(&widths, (size_t)layout->mesh.pipeline, sizeof *widths));
    const crl_schedule_request request = request_of(layout, 1, widths);
    for (int s = 0; s < layout->stages; s++) {
        out[s] = crl_schedule_position(layout->schedule, &request, s);
    }
    crl_free(widths);
    return CRL_STATUS_OK;
}

int crl_layout_fullest_pipeline(const crl_layout *layout) {
    int fullest = 0, most = 0;
    for (int c = 0; c < layout->mesh.data; c++) {
        const crl_range range = crl_layout_pipeline(layout, c);
        if (range.last - range.first > most) {
            most = range.last - range.first;
            fullest = c;
        }
    }
    return fullest;
}

crl_status crl_layout_in_flight(int *out, const crl_layout *layout) {
    const crl_range all = crl_layout_pipeline(layout, crl_layout_fullest_pipeline(layout));
    int *widths = NULL;
    CRL_TRY(crl_alloc(&widths, (size_t)layout->mesh.pipeline, sizeof *widths));
    const crl_schedule_request request = request_of(layout, all.last - all.first, widths);
    for (int s = 0; s < layout->stages; s++) {
        out[s] = layout->own_schedule ? crl_program_peak_activations(layout->own_schedule, s, true)
                                      : layout->schedule->peak_activations(&request, s);
        if (crl_layout_keeps_limit(layout)) { /* where it has to, it does with what 1F1B holds */
            const int positions = layout->mesh.pipeline;
            const int held = layout->stages > positions ? positions : positions - s;
            out[s] = out[s] < held ? out[s] : held;
        }
    }
    crl_free(widths);
    return CRL_STATUS_OK;
}

static crl_status keep_forward(crl_program **inout) {
    crl_program *forward = NULL;
    CRL_TRY(crl_program_copy(&forward, *inout, true));
    crl_program_destroy(*inout);
    *inout = forward;
    return CRL_STATUS_OK;
}

/* An order of forwards alone is worth no search for the best of costs. */
static crl_status build(crl_program **out, const crl_layout *layout, int micro_batches,
                        bool forward_only) {
    crl_status status = CRL_STATUS_OK;
    int *widths = NULL;
    if (layout->own_schedule) {
        return crl_program_copy(out, layout->own_schedule, false);
    }
    CRL_TRY_OUT(crl_alloc(&widths, (size_t)layout->mesh.pipeline, sizeof *widths));
    crl_schedule_request request = request_of(layout, micro_batches, widths);
    if (forward_only) {
        request.cost = NULL;
        request.message_s = request.memory_limit_bytes = 0;
    }
    CRL_TRY_OUT(crl_layout_placed(layout->schedule->build(out, &request), layout->settings,
                                  layout->settings->parallel.virtual_stages > 1
                                      ? "parallel.virtual_stages"
                                      : "parallel.schedule"));
out:
    crl_free(widths);
    return status;
}

/* Micro-batches of every row of a pipeline, counted from the pipeline's first. (rows) */
static void fill_rows(crl_range *out, const crl_layout *layout, int pipeline) {
    const crl_range all = crl_layout_pipeline(layout, pipeline);
    for (int p = 0; p < layout->mesh.pipeline; p++) {
        const int rows = layout->first_row[p + 1] - layout->first_row[p];
        for (int k = 0; k < rows; k++) {
            const crl_range own = crl_layout_own(layout, p, pipeline * rows + k);
            out[layout->first_row[p] + k] =
                (crl_range){own.first - all.first, own.last - all.first};
        }
    }
}

static crl_status deal(crl_program *program, const crl_layout *layout, int pipeline) {
    crl_range *rows = NULL;
    CRL_TRY(crl_alloc(&rows, (size_t)crl_mesh_rows(&layout->mesh), sizeof *rows));
    fill_rows(rows, layout, pipeline);
    const crl_status status = crl_program_deal(program, layout->first_row, rows);
    crl_free(rows);
    return status;
}

crl_status crl_layout_program(crl_program **out, const crl_layout *layout, const crl_plan *plan,
                              int pipeline, bool forward_only) {
    crl_status status = CRL_STATUS_OK;
    crl_program *program = NULL;
    const crl_range all = crl_layout_pipeline(layout, pipeline);
    if (all.first == all.last) { /* idle: nothing to do, but a program has at least one */
        return crl_program_create(out, crl_mesh_rows(&layout->mesh), plan->stages, 1);
    }
    CRL_TRY_OUT(build(&program, layout, all.last - all.first, forward_only));
    CRL_TRY_OUT(deal(program, layout, pipeline));
    if (layout->own_schedule) {
        CRL_TRY_OUT(crl_layout_check_sums(layout, program, pipeline));
    }
    if (forward_only) {
        CRL_TRY_OUT(keep_forward(&program));
    }
    CRL_TRY_OUT(crl_program_add_messages(program, plan, SEND_WINDOW, forward_only));
    *out = program;
    program = NULL;
out:
    crl_program_destroy(program);
    return status;
}

/* The micro-batches of the step whose weight gradients of `stage` a row of a program makes, in its
 * order. */
static int weight_order(int *out, const crl_program *program, int row, int stage, int first) {
    const crl_action_list *list = &program->position[row];
    int count = 0;
    for (int i = 0; i < list->count; i++) {
        const crl_action *a = &list->action[i];
        if (a->stage == stage && (a->kind == CRL_ACTION_BACKWARD || a->kind == CRL_ACTION_WEIGHT)) {
            out[count++] = first + a->micro_batch;
        }
    }
    return count;
}

crl_status crl_layout_lane_plan(crl_lane_plan **out, const crl_layout *layout,
                                const crl_program *program, crl_coordinates at, int stage) {
    const int pipeline = crl_mesh_pipeline(&layout->mesh, at.position, at.replica);
    const crl_range own = crl_layout_own(layout, at.position, at.replica);
    int *order = NULL;
    CRL_TRY(crl_alloc(&order, (size_t)(own.last - own.first), sizeof *order));
    weight_order(order, program, crl_mesh_row(&layout->mesh, at.position, at.replica), stage,
                 crl_layout_pipeline(layout, pipeline).first);
    const crl_lane_plan_config config = {layout->lanes, layout->micro_batches, own, order};
    const crl_status status = crl_lane_plan_create(out, &config);
    crl_free(order);
    return crl_layout_placed(status, layout->settings, "parallel.schedule");
}

/* Schedules make weight gradients in ascending order, so that the order after dealing is known
 * before they are asked. */
static crl_status pipeline_buffers(int *most, const crl_layout *layout, int pipeline,
                                   crl_range *rows, int *order) {
    const crl_range all = crl_layout_pipeline(layout, pipeline);
    const int count = all.last - all.first;
    fill_rows(rows, layout, pipeline);
    int *own = order + count;
    CRL_TRY(crl_program_deal_order(order, layout->mesh.pipeline, layout->first_row, rows, count));
    for (int r = 0; r < crl_mesh_rows(&layout->mesh); r++) {
        crl_lane_plan *plan = NULL;
        int mine = 0;
        for (int i = 0; i < count; i++) {
            if (order[i] >= rows[r].first && order[i] < rows[r].last) {
                own[mine++] = all.first + order[i];
            }
        }
        const crl_lane_plan_config config = {layout->lanes,
                                             layout->micro_batches,
                                             {all.first + rows[r].first, all.first + rows[r].last},
                                             own};
        CRL_TRY(crl_lane_plan_create(&plan, &config));
        *most = plan->buffers > *most ? plan->buffers : *most;
        crl_lane_plan_destroy(plan);
    }
    return CRL_STATUS_OK;
}

crl_status crl_layout_most_buffers(int *out, const crl_layout *layout) {
    crl_status status = CRL_STATUS_OK;
    crl_range *rows = NULL;
    int *order = NULL;
    *out = 1;
    CRL_TRY_OUT(crl_alloc(&rows, (size_t)crl_mesh_rows(&layout->mesh), sizeof *rows));
    CRL_TRY_OUT(crl_alloc(&order, (size_t)layout->micro_batches * 2, sizeof *order));
    for (int c = 0; c < layout->mesh.data; c++) {
        CRL_TRY_OUT(pipeline_buffers(out, layout, c, rows, order));
    }
out:
    crl_free(rows);
    crl_free(order);
    return status;
}
