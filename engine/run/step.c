/* SPDX-License-Identifier: Apache-2.0 */
/* See step.h. */
#include "engine/run/step.h"

#include <math.h>

#include "engine/base/thread.h"
#include "engine/run/update.h"

enum { REASON_CHANNEL = 4 }; /* of a group of all ranks */

/* Skipped steps are none to the optimizer. `factor`: of the gradient, without the loss scale. */
static crl_status update(const crl_stepper *s, double factor, bool keep) {
    const crl_update how = {s->report.step - s->scale.skipped, s->report.learning_rate,
                            factor / s->report.loss_scale, keep};
    return crl_update_run(s->rank, &how);
}

static void tell(const crl_stepper *s) {
    if (s->stepped) {
        s->stepped(s->context, &s->report);
    }
}

/* Collective: all ranks. A number is not finite. Where a kernel met an index outside its table,
 * which its device only tells when asked, that is the reason, and its rank's failure everybody's.
 */
static crl_status find_reason(const crl_stepper *s) {
    const crl_rank *r = s->rank;
    const crl_group world = {r->comm, NULL, r->comm->ranks, r->comm->rank, REASON_CHANNEL};
    CRL_TRY(crl_device_stream_wait(r->backend->device, r->stream));
    return crl_barrier(&world);
}

static crl_status not_finite(const crl_stepper *s, const char *what, double value) {
    CRL_TRY(find_reason(s));
    return CRL_FAIL(INVALID, "step %lld: %s is %g, expected a finite number",
                    (long long)s->report.step, what, value);
}

/* Waits for the losses of the step under way, which open its report. */
static crl_status take_losses(crl_stepper *s) {
    const crl_step_request *request = s->request;
    crl_loss total = {0, 0, 0, 0};
    bool stopping = false;
    CRL_TRY(crl_tally_wait_losses(&s->tally, &total, &stopping));
    s->divisor = total.weight > 0 ? total.weight : 1;
    s->report = (crl_step_report){.step = request->step,
                                  .learning_rate = request->learning_rate,
                                  .samples = (double)request->data->samples,
                                  .tokens = total.rows,
                                  .loss = total.sum / s->divisor,
                                  .loss_scale = s->scale.scale,
                                  .stopping = stopping};
    /* A loss that is not finite has no finite gradient: the norm will tell. */
    return isfinite(s->report.loss) || crl_loss_scale_chooses(&s->scale)
               ? CRL_STATUS_OK
               : not_finite(s, "loss", s->report.loss);
}

/* Waits for the norms of the last step: *out_factor is what its summed gradient is multiplied by,
 * but for the loss scale; *out_finite false: it must not be used, and the scale has changed. */
static crl_status take_norms(crl_stepper *s, double *out_factor, bool *out_finite) {
    crl_tally_norms norms;
    CRL_TRY(crl_tally_wait_norms(&s->tally, &norms));
    const double norm = sqrt(norms.squares) / s->divisor / s->report.loss_scale;
    s->report.gradient_norm = norm;
    s->report.bubble = norms.bubble;
    s->report.exposed_comm_s = norms.exposed_s;
    *out_finite = isfinite(norm) && isfinite(s->report.loss);
    if (!*out_finite && !crl_loss_scale_chooses(&s->scale)) {
        return not_finite(s, "gradient norm", norm);
    }
    if (!*out_finite) {
        CRL_TRY(find_reason(s));
    }
    if (crl_loss_scale_step(&s->scale, *out_finite)) {
        return CRL_FAIL(INVALID, "step %lld: %s", (long long)s->report.step, crl_error_message());
    }
    s->report.skipped = !*out_finite;
    const double clip = s->rank->layout->settings->optimizer.clip;
    s->clipped = *out_finite && clip > 0 && norm > clip;
    *out_factor = (s->clipped ? clip / (norm + 1e-6) : 1) / s->divisor;
    return CRL_STATUS_OK;
}

/* Weights and state as they were before the last update. */
static crl_status take_back(crl_stepper *s) {
    crl_params_take_back(s->rank->params);
    return crl_params_round(s->rank->params, s->rank->backend);
}

/* The last update was made without knowing the norm: does it stand? If not, it is made again, but
 * for a step that overflowed. */
static crl_status validate(crl_stepper *s, bool *out_stands) {
    double factor = 0;
    bool finite = false;
    s->open = false;
    const crl_status status = take_norms(s, &factor, &finite);
    *out_stands = status == CRL_STATUS_OK && finite && !s->clipped;
    if (status != CRL_STATUS_OK) {
        crl_params_take_back(s->rank->params);
        return status;
    }
    if (!*out_stands) {
        CRL_TRY(take_back(s));
        s->rollbacks++;
    }
    if (s->clipped) {
        CRL_TRY(update(s, factor, false));
    }
    tell(s);
    return CRL_STATUS_OK;
}

static crl_status before_backward(void *stepper, bool *out_go) {
    crl_stepper *s = stepper;
    if (s->open) {
        CRL_TRY(validate(s, out_go));
    }
    if (*out_go) {
        crl_grad_sync_begin(s->rank->sync);
        s->run.loss_scale = (float)s->scale.scale;
    }
    return CRL_STATUS_OK;
}

static crl_status losses_known(void *stepper) {
    crl_stepper *s = stepper;
    return crl_tally_start_losses(&s->tally, s->rank->loss, s->request->stopping);
}

static crl_status progress(void *stepper) {
    crl_stepper *s = stepper;
    return crl_tally_progress(&s->tally);
}

crl_status crl_stepper_init(crl_stepper *s, crl_rank *rank, crl_comm *comm) {
    const crl_settings_numerics *numerics = &rank->layout->settings->numerics;
    const bool scaled = numerics->precision == CRL_PRECISION_F16;
    const bool chosen = scaled && numerics->loss_scale == 0;
    *s = (crl_stepper){.rank = rank,
                       .scale = {.scale = chosen   ? numerics->loss_scale_initial
                                          : scaled ? numerics->loss_scale
                                                   : 1,
                                 .window = chosen ? numerics->loss_scale_window : 0},
                       .turns = {.progress = progress,
                                 .before_backward = before_backward,
                                 .losses_known = losses_known}};
    return crl_tally_init(&s->tally, rank, comm);
}

void crl_stepper_fini(crl_stepper *s) {
    crl_tally_fini(&s->tally);
}

/* No padding, and no waiting for the norm of the step before in the middle. */
static bool is_alike(const crl_rank *r, const crl_step_request *request) {
    const crl_settings *settings = r->layout->settings;
    return settings->optimizer.validate == CRL_VALIDATE_BEFORE &&
           request->data->samples == r->layout->micro_batches * settings->train.micro_batch;
}

/* The program and the sums of its gradients; again from the beginning when it turns out that it ran
 * with weights that do not stand. */
static crl_status sum_gradients(crl_stepper *s) {
    crl_rank *r = s->rank;
    const crl_step_request *request = s->request;
    s->run = (crl_executor_step){.seed = (uint64_t)r->layout->settings->train.seed,
                                 .step = (uint32_t)request->step,
                                 .training = true,
                                 .samples = request->data->samples,
                                 .field = request->data->data,
                                 .loss = r->loss,
                                 .alike = is_alike(r, request),
                                 .turns = &s->turns};
    do {
        CRL_TRY(crl_executor_run(r->executor, &s->run));
    } while (s->run.in_vain);
    r->comm->waited_ns = 0;
    CRL_TRY(crl_grad_sync_finish(r->sync));
    const crl_tally_times times = {(double)s->run.busy_ns, (double)s->run.span_ns,
                                   (double)r->comm->waited_ns * 1e-9};
    return crl_tally_start_norms(&s->tally, &times);
}

crl_status crl_stepper_train(crl_stepper *s, const crl_step_request *request) {
    const crl_settings_optimizer *settings = &s->rank->layout->settings->optimizer;
    const int64_t begin_ns = crl_clock_ns();
    double factor = 0;
    bool finite = true;
    s->request = request;
    s->turns.context = s;
    CRL_TRY(sum_gradients(s));
    CRL_TRY(take_losses(s));
    s->open = settings->validate == CRL_VALIDATE_AFTER && !request->settle && !s->report.stopping &&
              !s->clipped && isfinite(s->report.loss);
    if (s->open) {
        CRL_TRY(update(s, 1 / s->divisor, true));
    } else {
        CRL_TRY(take_norms(s, &factor, &finite));
        CRL_TRY(finite ? update(s, factor, false) : CRL_STATUS_OK);
    }
    s->report.step_s = (double)(crl_clock_ns() - begin_ns) * 1e-9;
    if (!s->open) {
        tell(s);
    }
    return CRL_STATUS_OK;
}

crl_status crl_stepper_evaluate(crl_stepper *s, const crl_loader_step *data, crl_loss *total) {
    bool stopping;
    crl_executor_step run = {
        .training = false, .samples = data->samples, .field = data->data, .loss = s->rank->loss};
    CRL_TRY(crl_executor_run(s->rank->evaluate_executor, &run));
    CRL_TRY(crl_tally_start_losses(&s->tally, s->rank->loss, false));
    return crl_tally_wait_losses(&s->tally, total, &stopping);
}

crl_status crl_stepper_hash(const crl_stepper *s, uint64_t *out) {
    return crl_tally_hash(&s->tally, out);
}
