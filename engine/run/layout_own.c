/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A user's own schedule, from a CSV file: it fits its layout exactly or not at all. Refuses what
 * would train other bits, or none.
 */
#include <string.h>

#include "engine/base/alloc.h"
#include "engine/base/file.h"
#include "engine/run/layout_internal.h"

static const size_t schedule_limit_bytes = (size_t)256 << 20;

bool crl_layout_is_file(const char *schedule) {
    const size_t length = strlen(schedule);
    return length > 4 && strcmp(schedule + length - 4, ".csv") == 0;
}

crl_status crl_layout_read_schedule(crl_program **out, const char *path) {
    crl_status status = CRL_STATUS_OK;
    char *text = NULL;
    size_t bytes = 0;
    status = crl_file_read(&text, &bytes, path, schedule_limit_bytes);
    if (status == CRL_STATUS_NOT_FOUND) /* the config's fault */
        status = CRL_FAIL(INVALID, "%s: no such file, expected a schedule", path);
    CRL_TRY_OUT(status);
    CRL_TRY_OUT(crl_program_parse(out, path, text, bytes));
out:
    crl_free(text);
    return status;
}

/* A program of forwards alone is valid, as that of an evaluation; any other ends backward. */
static bool has_backward(const crl_program *program) {
    for (int p = 0; p < program->positions; p++) {
        const crl_action_list *list = &program->position[p];
        if (list->count > 0) {
            return list->action[list->count - 1].kind != CRL_ACTION_FORWARD;
        }
    }
    return false;
}

crl_status crl_layout_check_own(const crl_layout *layout) {
    const crl_program *own = layout->own_schedule;
    const char *path = layout->settings->parallel.schedule;
    crl_check_report report;
    CRL_TRY(crl_program_try_check(own, &report));
    if (report.verdict != CRL_VERDICT_VALID) {
        return CRL_FAIL(INVALID, "%s: %s%s", path,
                        report.verdict == CRL_VERDICT_DEADLOCK ? "deadlock: " : "", report.why);
    }
    if (!has_backward(own)) {
        return CRL_FAIL(INVALID, "%s: has no backward, expected one of every forward", path);
    }
    if (own->positions != layout->mesh.pipeline) {
        return CRL_FAIL(INVALID, "%s: has %d positions, parallel.pipeline is %d", path,
                        own->positions, layout->mesh.pipeline);
    }
    for (int c = 0; c < layout->mesh.data; c++) {
        const crl_range range = crl_layout_pipeline(layout, c);
        if (range.last - range.first != own->micro_batches) {
            return CRL_FAIL(INVALID,
                            "%s: has %d micro-batches, pipeline %d of %d has %d (%d of a step)",
                            path, own->micro_batches, c, layout->mesh.data,
                            range.last - range.first, layout->micro_batches);
        }
    }
    return CRL_STATUS_OK;
}

crl_status crl_layout_check_sums(const crl_layout *layout, const crl_program *program,
                                 int pipeline) {
    const crl_mesh *mesh = &layout->mesh;
    for (int row = 0; row < crl_mesh_rows(mesh); row++) {
        const crl_coordinates at =
            crl_mesh_coordinates(mesh, crl_mesh_rank_of_row(mesh, pipeline, row));
        for (int s = 0; s < layout->stages; s++) {
            crl_lane_plan *sums = NULL;
            if (layout->plan->stage[s].position == at.position) {
                CRL_TRY(crl_layout_lane_plan(&sums, layout, program, at, s));
            }
            crl_lane_plan_destroy(sums);
        }
    }
    return CRL_STATUS_OK;
}
