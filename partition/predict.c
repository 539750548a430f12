/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A step of a layout on a machine, from a profile: the schedule's program is simulated action by
 * action, then come the sums of gradients and the optimizer. Refuses layouts the machine has too
 * few devices for. Never extrapolates: all micro-batches are simulated.
 *
 *     forwards and backwards, simulated |  sums not hidden  |  optimizer
 *     <---------- pipeline_s ----------> <--- reduce_s ---> <-- update_s ->
 *
 * cost card: linear in the actions of one pipeline, P · D and the units of the profile.
 */
#include "partition/predict_internal.h"

#include <math.h>

#include "engine/base/alloc.h"

int crl_predict_width(const crl_hybrid *layout, int position) {
    return layout->widths ? layout->widths[position] : 1;
}

int crl_predict_lanes(const crl_hybrid *layout) {
    int widest = 1, lanes = 1;
    for (int p = 0; p < layout->positions; p++) {
        const int width = layout->pipelines * crl_predict_width(layout, p);
        widest = width > widest ? width : widest;
    }
    while (layout->lanes == 0 && lanes < widest) {
        lanes *= 2;
    }
    lanes = layout->lanes > 0 ? layout->lanes : lanes;
    return lanes < layout->micro_batches ? lanes : layout->micro_batches;
}

static double update_s(const predictor *self) {
    double most = 0;
    for (int p = 0; p < self->layout->positions; p++) {
        double own = 0;
        for (int s = 0; s < self->layout->stages; s++) {
            own += self->position[s] == p ? self->sums[s].update_s : 0;
        }
        most = fmax(most, own);
    }
    return most;
}

/* What the rows of the pipeline waited for messages or spent on them, on average. */
static double messages_s(const predictor *self) {
    double all = 0;
    for (int r = 0; r < self->rows; r++) {
        const crl_position_times *times = &self->simulation->position[r];
        all += times->message_s + times->wait_message_s + times->wait_send_s;
    }
    return all / self->rows;
}

static void add_rates(crl_prediction *result, const predictor *self) {
    const crl_hybrid *layout = self->layout;
    const double samples = (double)layout->micro_batches * (double)self->profile->micro_batch;
    const double tokens = samples * self->profile->tokens_per_sample;
    const double devices = (double)layout->pipelines * self->rows * layout->tensor;
    if (result->step_s > 0) {
        result->samples_per_s = samples / result->step_s;
        result->tokens_per_s = tokens / result->step_s;
    }
    if (tokens > 0) {
        result->price_per_billion_tokens =
            self->machine->price_per_hour * devices * result->step_s / 3600 / tokens * 1e9;
    }
}

static crl_prediction result_of(const predictor *self, double *position_bytes) {
    crl_prediction result = {.pipeline_s = self->simulation->makespan_s,
                             .reduce_s = crl_predict_reduce_s(self),
                             .update_s = update_s(self),
                             .bubble = self->simulation->bubble};
    result.step_s = result.pipeline_s + result.reduce_s + result.update_s;
    result.exposed_s = messages_s(self) + result.reduce_s;
    for (int p = 0; p < self->layout->positions; p++) {
        const double bytes = crl_predict_bytes(self, p);
        if (bytes > result.peak_bytes) {
            result.peak_bytes = bytes;
            result.peak_position = p;
        }
        if (position_bytes) {
            position_bytes[p] = bytes;
        }
    }
    add_rates(&result, self);
    return result;
}

static void predictor_fini(predictor *self) {
    crl_simulation_destroy(self->simulation);
    crl_program_destroy(self->program);
    crl_free(self->first_row);
    crl_free(self->range);
    crl_free(self->node);
    crl_free(self->position);
    crl_free(self->cost);
    crl_free(self->sums);
}

crl_status crl_predict(crl_prediction *out, double *position_bytes, const crl_hybrid *layout,
                       const crl_profile *profile, const crl_machine *machine) {
    crl_status status = CRL_STATUS_OK;
    predictor self = {.layout = layout, .profile = profile, .machine = machine};
    CRL_TRY(crl_predict_check(layout, profile, machine));
    CRL_TRY_OUT(crl_predict_place(&self));
    CRL_TRY_OUT(crl_predict_stages(&self));
    CRL_TRY_OUT(crl_predict_run(&self));
    *out = result_of(&self, position_bytes);
out:
    predictor_fini(&self);
    return status;
}
