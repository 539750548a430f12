/* SPDX-License-Identifier: Apache-2.0 */
/* What the units of a profile amount to as stages, and what a position of them holds. */
#include "partition/predict_internal.h"

#include <math.h>

#include "engine/base/alloc.h"

static int end_of(const predictor *self, int stage) {
    const crl_hybrid *layout = self->layout;
    return stage + 1 < layout->stages ? layout->first[stage + 1] : self->profile->units;
}

static void sum_stage(predictor *self, int stage) {
    const crl_hybrid *layout = self->layout;
    const int mode = layout->recompute ? layout->recompute[stage] : CRL_RECOMPUTE_NONE;
    crl_stage_cost *cost = &self->cost[stage];
    stage_sums *sums = &self->sums[stage];
    for (int u = layout->first[stage]; u < end_of(self, stage); u++) {
        const crl_profile_unit *unit = &self->profile->unit[u];
        cost->forward_s += unit->forward_s;
        cost->input_s += unit->input_s + unit->recompute_s[mode];
        cost->weight_s += unit->weight_s + unit->split_s;
        cost->kept_bytes += unit->kept_bytes[mode];
        cost->held_bytes += unit->held_bytes;
        sums->parameter_bytes += unit->parameter_bytes;
        sums->state_bytes += unit->state_bytes;
        sums->workspace_bytes = fmax(sums->workspace_bytes, unit->workspace_bytes);
        sums->add_s += unit->add_s;
        sums->split_s += unit->split_s;
        sums->update_s += unit->update_s > 0
                              ? unit->update_s
                              : 2 * unit->state_bytes / self->machine->memory_bytes_per_s;
        sums->units++;
    }
}

/* A result crosses every cut between its producer and its last reader. */
static void add_crossings(predictor *self, const int *last_reader) {
    for (int s = 0, u = 0; s < self->layout->stages; s++) {
        for (; u < end_of(self, s); u++) {
            for (int cut = s; cut + 1 < self->layout->stages && last_reader[u] >= end_of(self, cut);
                 cut++) {
                self->cost[cut].output_bytes += self->profile->unit[u].output_bytes;
            }
        }
    }
}

crl_status crl_predict_stages(predictor *self) {
    const size_t stages = (size_t)self->layout->stages;
    int *last_reader = NULL;
    CRL_TRY(crl_alloc(&self->cost, stages, sizeof *self->cost));
    CRL_TRY(crl_alloc(&self->sums, stages, sizeof *self->sums));
    for (int s = 0; s < self->layout->stages; s++) {
        sum_stage(self, s);
    }
    CRL_TRY(crl_alloc(&last_reader, (size_t)self->profile->units, sizeof *last_reader));
    for (int u = 0; u < self->profile->units; u++) {
        const crl_profile_unit *unit = &self->profile->unit[u];
        for (int i = 0; i < unit->inputs; i++) {
            last_reader[unit->input[i]] = u; /* ascending, so the last one stays */
        }
    }
    add_crossings(self, last_reader);
    crl_free(last_reader);
    return CRL_STATUS_OK;
}

/* Results and gradients on their way in and out of a stage: one of each, one being sent. */
static double buffers_bytes(const predictor *self, int stage) {
    const double in = stage > 0 && self->position[stage - 1] != self->position[stage]
                          ? self->cost[stage - 1].output_bytes
                          : 0;
    const double out =
        stage + 1 < self->layout->stages && self->position[stage + 1] != self->position[stage]
            ? self->cost[stage].output_bytes
            : 0;
    return 2 * (in + out);
}

double crl_predict_bytes(const predictor *self, int position) {
    double held = 0, workspace = 0, active = 0;
    for (int s = 0; s < self->layout->stages; s++) {
        if (self->position[s] == position) {
            held += self->sums[s].state_bytes + buffers_bytes(self, s);
            workspace = fmax(workspace, self->sums[s].workspace_bytes);
        }
    }
    for (int r = self->first_row[position]; r < self->first_row[position + 1]; r++) {
        active = fmax(active, self->simulation->position[r].peak_bytes);
    }
    return held + workspace + active;
}
