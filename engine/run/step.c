/* SPDX-License-Identifier: Apache-2.0 */
/* See step.h. */
#include "engine/run/step.h"

#include <math.h>

#include "engine/base/alloc.h"
#include "engine/base/thread.h"
#include "engine/run/update.h"

static crl_status update(const crl_stepper *s, double scale, bool keep) {
    const crl_update how = {s->report.step, s->report.learning_rate, scale, keep};
    return crl_update_run(s->rank, &how);
}

static void tell(const crl_stepper *s) {
    if (s->stepped) {
        s->stepped(s->context, &s->report);
    }
}

static crl_status not_finite(const crl_stepper *s, const char *what, double value) {
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
                                  .stopping = stopping};
    return isfinite(s->report.loss) ? CRL_STATUS_OK : not_finite(s, "loss", s->report.loss);
}

/* Waits for the norms of the last step: *out_scale is the factor of its summed gradient. */
static crl_status take_norms(crl_stepper *s, double *out_scale) {
    crl_tally_norms norms;
    CRL_TRY(crl_tally_wait_norms(&s->tally, &norms));
    const double norm = sqrt(norms.squares) / s->divisor;
    s->report.gradient_norm = norm;
    s->report.bubble = norms.bubble;
    s->report.exposed_comm_s = norms.exposed_s;
    if (!isfinite(norm)) {
        return not_finite(s, "gradient norm", norm);
    }
    const double clip = s->rank->layout->settings->optimizer.clip;
    s->clipped = clip > 0 && norm > clip;
    *out_scale = (s->clipped ? clip / (norm + 1e-6) : 1) / s->divisor;
    return CRL_STATUS_OK;
}

/* The last update was made without knowing the norm: does it stand? If not, it is made again. */
static crl_status validate(crl_stepper *s, bool *out_stands) {
    double scale = 0;
    s->open = false;
    const crl_status status = take_norms(s, &scale);
    *out_stands = status == CRL_STATUS_OK && !s->clipped;
    if (!*out_stands) {
        crl_params_take_back(s->rank->params);
    }
    CRL_TRY(status);
    if (!*out_stands) {
        s->rollbacks++;
        CRL_TRY(update(s, scale, false));
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
    }
    return CRL_STATUS_OK;
}

static crl_status losses_known(void *stepper) {
    crl_stepper *s = stepper;
    return crl_tally_start_losses(&s->tally, s->loss, s->request->stopping);
}

static crl_status progress(void *stepper) {
    crl_stepper *s = stepper;
    return crl_tally_progress(&s->tally);
}

crl_status crl_stepper_init(crl_stepper *s, crl_rank *rank, crl_comm *comm) {
    *s = (crl_stepper){.rank = rank,
                       .turns = {.progress = progress,
                                 .before_backward = before_backward,
                                 .losses_known = losses_known}};
    CRL_TRY(crl_alloc(&s->loss, (size_t)rank->layout->micro_batches, sizeof *s->loss));
    return crl_tally_init(&s->tally, rank, comm);
}

void crl_stepper_fini(crl_stepper *s) {
    crl_tally_fini(&s->tally);
    crl_free(s->loss);
}

/* The program and the sums of its gradients; again from the beginning when it turns out that it ran
 * with weights that do not stand. */
static crl_status sum_gradients(crl_stepper *s) {
    crl_rank *r = s->rank;
    const crl_step_request *request = s->request;
    crl_executor_step run = {.seed = (uint64_t)r->layout->settings->train.seed,
                             .step = (uint32_t)request->step,
                             .training = true,
                             .samples = request->data->samples,
                             .field = request->data->data,
                             .loss = s->loss,
                             .turns = &s->turns};
    do {
        CRL_TRY(crl_executor_run(r->executor, &run));
    } while (run.in_vain);
    r->comm->waited_ns = 0;
    CRL_TRY(crl_grad_sync_finish(r->sync));
    const crl_tally_times times = {(double)run.busy_ns, (double)run.span_ns,
                                   (double)r->comm->waited_ns * 1e-9};
    return crl_tally_start_norms(&s->tally, &times);
}

crl_status crl_stepper_train(crl_stepper *s, const crl_step_request *request) {
    const crl_settings_optimizer *settings = &s->rank->layout->settings->optimizer;
    const int64_t begin_ns = crl_clock_ns();
    double scale = 0;
    s->request = request;
    s->turns.context = s;
    CRL_TRY(sum_gradients(s));
    CRL_TRY(take_losses(s));
    s->open = settings->validate == CRL_VALIDATE_AFTER && !request->settle && !s->report.stopping &&
              !s->clipped;
    if (s->open) {
        CRL_TRY(update(s, 1 / s->divisor, true));
    } else {
        CRL_TRY(take_norms(s, &scale));
        CRL_TRY(update(s, scale, false));
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
        .training = false, .samples = data->samples, .field = data->data, .loss = s->loss};
    CRL_TRY(crl_executor_run(s->rank->evaluate_executor, &run));
    CRL_TRY(crl_tally_start_losses(&s->tally, s->loss, false));
    return crl_tally_wait_losses(&s->tally, total, &stopping);
}

crl_status crl_stepper_hash(const crl_stepper *s, uint64_t *out) {
    return crl_tally_hash(&s->tally, out);
}
