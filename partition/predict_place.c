/* SPDX-License-Identifier: Apache-2.0 */
/* Where the ranks of a layout sit, which micro-batches they have, and layouts that cannot be. */
#include "partition/predict_internal.h"

#include "engine/base/alloc.h"

static crl_status check_sizes(const crl_hybrid *layout) {
    if (layout->tensor < 1 || layout->pipelines < 1 || layout->positions < 1 ||
        layout->stages < layout->positions || layout->micro_batches < 1 || layout->lanes < 0) {
        return CRL_FAIL(INVALID,
                        "layout: %d x %d positions x %d shards, %d stages, %d micro-batches in %d "
                        "lanes, expected 1 or more and no more positions than stages",
                        layout->pipelines, layout->positions, layout->tensor, layout->stages,
                        layout->micro_batches, layout->lanes);
    }
    for (int p = 0; p < layout->positions; p++) {
        if (crl_predict_width(layout, p) < 1) {
            return CRL_FAIL(INVALID, "layout: position %d has %d replicas, expected 1 or more", p,
                            crl_predict_width(layout, p));
        }
    }
    return CRL_STATUS_OK;
}

static crl_status check_cuts(const crl_hybrid *layout, const crl_profile *profile) {
    for (int s = 0; s < layout->stages; s++) {
        const int before = s > 0 ? layout->first[s - 1] : -1;
        if (layout->first[s] <= before || layout->first[s] >= profile->units ||
            (s == 0 && layout->first[s] != 0)) {
            return CRL_FAIL(INVALID, "layout: stage %d begins at unit %d of %d, expected %s", s,
                            layout->first[s], profile->units,
                            s == 0 ? "0" : "one after the stage before it");
        }
        if (layout->recompute && layout->recompute[s] >= CRL_RECOMPUTES) {
            return CRL_FAIL(INVALID, "layout: stage %d has recompute mode %d, expected 0 to %d", s,
                            layout->recompute[s], CRL_RECOMPUTES - 1);
        }
    }
    return CRL_STATUS_OK;
}

static int64_t rows_of(const crl_hybrid *layout) {
    int64_t rows = 0;
    for (int p = 0; p < layout->positions; p++) {
        rows += crl_predict_width(layout, p);
    }
    return rows;
}

crl_status crl_predict_check(const crl_hybrid *layout, const crl_profile *profile,
                             const crl_machine *machine) {
    CRL_TRY(check_sizes(layout));
    CRL_TRY(check_cuts(layout, profile));
    CRL_TRY(crl_machine_check(machine));
    const double needed = (double)rows_of(layout) * layout->pipelines * layout->tensor;
    const double has = (double)machine->nodes * machine->devices_per_node;
    if (needed > has) {
        return CRL_FAIL(INVALID, "layout: needs %.0f devices, machine %s has %.0f", needed,
                        machine->name ? machine->name : "", has);
    }
    for (int p = 0; p < layout->positions; p++) {
        const int width = layout->pipelines * crl_predict_width(layout, p);
        if (width > layout->micro_batches || width > crl_predict_lanes(layout)) {
            return CRL_FAIL(INVALID,
                            "layout: position %d has %d replicas, expected at most its %d lanes "
                            "and %d micro-batches",
                            p, width, crl_predict_lanes(layout), layout->micro_batches);
        }
    }
    return CRL_STATUS_OK;
}

static int node_of(const predictor *self, int pipeline, int row) {
    const int64_t rank = ((int64_t)pipeline * self->rows + row) * self->layout->tensor;
    return (int)(rank / self->machine->devices_per_node);
}

/* Hops of a pipeline that leave a node. */
static int crossings(const predictor *self, int pipeline) {
    int count = 0;
    for (int r = 1; r < self->rows; r++) {
        count += node_of(self, pipeline, r) != node_of(self, pipeline, r - 1);
    }
    return count;
}

static crl_range range_of_pipeline(const predictor *self, int pipeline) {
    return crl_replica_micro_batches(pipeline, self->layout->pipelines, self->lanes,
                                     self->layout->micro_batches);
}

/* The one with the most micro-batches, of those the one with the most hops between nodes. */
static int slowest_pipeline(const predictor *self) {
    int slowest = 0, most = -1, far = -1;
    for (int d = 0; d < self->layout->pipelines; d++) {
        const crl_range range = range_of_pipeline(self, d);
        const int own = range.last - range.first;
        if (own > most || (own == most && crossings(self, d) > far)) {
            slowest = d;
            most = own;
            far = crossings(self, d);
        }
    }
    return slowest;
}

static void fill_rows(predictor *self) {
    const crl_hybrid *layout = self->layout;
    const int first = range_of_pipeline(self, self->pipeline).first;
    for (int p = 0; p < layout->positions; p++) {
        const int width = crl_predict_width(layout, p);
        for (int i = 0; i < width; i++) {
            const int row = self->first_row[p] + i;
            const crl_range range =
                crl_replica_micro_batches(self->pipeline * width + i, layout->pipelines * width,
                                          self->lanes, layout->micro_batches);
            self->range[row] = (crl_range){range.first - first, range.last - first};
            self->node[row] = node_of(self, self->pipeline, row);
        }
    }
}

crl_status crl_predict_place(predictor *self) {
    const crl_hybrid *layout = self->layout;
    const size_t positions = (size_t)layout->positions;
    CRL_TRY(crl_alloc(&self->first_row, positions + 1, sizeof *self->first_row));
    for (int p = 0; p < layout->positions; p++) {
        self->first_row[p + 1] = self->first_row[p] + crl_predict_width(layout, p);
    }
    self->rows = self->first_row[layout->positions];
    self->lanes = crl_predict_lanes(layout);
    CRL_TRY(crl_alloc(&self->range, (size_t)self->rows, sizeof *self->range));
    CRL_TRY(crl_alloc(&self->node, (size_t)self->rows, sizeof *self->node));
    self->pipeline = slowest_pipeline(self);
    const crl_range range = range_of_pipeline(self, self->pipeline);
    self->micro_batches = range.last - range.first;
    fill_rows(self);
    return CRL_STATUS_OK;
}
