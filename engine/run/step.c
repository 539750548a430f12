/* SPDX-License-Identifier: Apache-2.0 */
/* See step.h. The exchanged vector: [losses M × 4 | squared norms (params) | times ranks × 4]. */
#include "engine/run/step.h"

#include <math.h>
#include <string.h>

#include "engine/base/alloc.h"
#include "engine/base/thread.h"

enum { LOSS_PARTS = 4, TIME_PARTS = 4, WORLD_CHANNEL = 0 };

static double *loss_part(const crl_stepper *s, int micro_batch) {
    return s->exchange + (int64_t)micro_batch * LOSS_PARTS;
}

static double *norm_part(const crl_stepper *s, int param) {
    return loss_part(s, s->rank->layout->micro_batches) + param;
}

static double *time_part(const crl_stepper *s, int rank) {
    return norm_part(s, s->rank->layout->graph->params) + (int64_t)rank * TIME_PARTS;
}

crl_status crl_stepper_init(crl_stepper *s, crl_rank *rank, crl_comm *comm) {
    const crl_layout *layout = rank->layout;
    *s = (crl_stepper){.rank = rank, .world = {comm, NULL, comm->ranks, comm->rank, WORLD_CHANNEL}};
    s->exchange_count = (int64_t)layout->micro_batches * LOSS_PARTS + layout->graph->params +
                        (int64_t)comm->ranks * TIME_PARTS;
    CRL_TRY(crl_alloc(&s->loss, (size_t)layout->micro_batches, sizeof *s->loss));
    CRL_TRY(crl_alloc(&s->exchange, (size_t)s->exchange_count, sizeof(double)));
    return crl_alloc(&s->scratch, (size_t)s->exchange_count * (size_t)comm->ranks, sizeof(double));
}

void crl_stepper_fini(crl_stepper *s) {
    crl_free(s->loss);
    crl_free(s->exchange);
    crl_free(s->scratch);
}

/* This rank's share of the losses: only the position that holds the loss node has one. */
static void put_losses(crl_stepper *s) {
    const crl_rank *r = s->rank;
    const crl_plan *plan = r->layout->plan;
    const int stage = crl_plan_stage_of(plan, r->layout->graph->loss_node);
    memset(s->exchange, 0, (size_t)s->exchange_count * sizeof(double));
    for (int m = r->micro_batches.first;
         plan->stage[stage].position == r->at.position && m < r->micro_batches.last; m++) {
        const crl_loss *loss = &s->loss[m - r->micro_batches.first];
        double *part = loss_part(s, m);
        part[0] = loss->sum;
        part[1] = loss->weight;
        part[2] = loss->correct;
        part[3] = loss->rows;
    }
}

static crl_status put_norms(crl_stepper *s) {
    const crl_rank *r = s->rank;
    const crl_graph *graph = r->layout->graph;
    for (int p = 0; p < graph->params; p++) {
        const int stage = crl_plan_stage_of(r->layout->plan, graph->param[p].use[0].node);
        if (r->at.replica == 0 && r->layout->plan->stage[stage].position == r->at.position) {
            CRL_TRY(crl_kernels_cpu.reduce->sum_squares(NULL, crl_grad_sync_gradient(r->sync, p),
                                                        graph->param[p].elements, norm_part(s, p)));
        }
    }
    return CRL_STATUS_OK;
}

static void add_losses(const crl_stepper *s, crl_loss *total) {
    for (int m = 0; m < s->rank->layout->micro_batches; m++) {
        const double *part = loss_part(s, m);
        total->sum += part[0];
        total->weight += part[1];
        total->correct += part[2];
        total->rows += part[3];
    }
}

static crl_status update(const crl_stepper *s, int64_t step, double learning_rate, double scale) {
    const crl_rank *r = s->rank;
    const crl_graph *graph = r->layout->graph;
    crl_optimizer_call call = {.options = r->layout->settings->optimizer_options,
                               .kernels = &crl_kernels_cpu,
                               .step = step,
                               .learning_rate = learning_rate,
                               .gradient_scale = scale};
    for (int p = 0; p < graph->params; p++) {
        call.w = crl_params_weight(r->params, p);
        if (!call.w) {
            continue;
        }
        call.decay = graph->param[p].spec.decay;
        call.dw = crl_grad_sync_gradient(r->sync, p);
        call.n = graph->param[p].elements;
        for (int k = 0; k < r->params->states; k++) {
            call.state[k] = crl_params_state(r->params, k, p);
        }
        CRL_TRY(r->layout->optimizer->update(&call));
    }
    return CRL_STATUS_OK;
}

/* Fills the report from the exchanged numbers; *out_scale is the factor of the summed gradient. */
static crl_status agree(const crl_stepper *s, int64_t step, crl_step_report *report,
                        double *out_scale) {
    const crl_layout *layout = s->rank->layout;
    crl_loss total = {0, 0, 0, 0};
    add_losses(s, &total);
    const double divisor = total.weight > 0 ? total.weight : 1;
    double squares = 0, busy_ns = 0, span_ns = 0;
    for (int p = 0; p < layout->graph->params; p++) {
        squares += *norm_part(s, p);
    }
    for (int r = 0; r < s->world.size; r++) {
        const double *time = time_part(s, r);
        busy_ns += time[0];
        span_ns = time[1] > span_ns ? time[1] : span_ns;
        report->exposed_comm_s =
            time[2] > report->exposed_comm_s ? time[2] : report->exposed_comm_s;
        report->stopping = report->stopping || time[3] > 0;
    }
    report->loss = total.sum / divisor;
    report->gradient_norm = sqrt(squares) / divisor;
    report->tokens = total.rows;
    report->bubble = span_ns > 0 ? 1 - busy_ns / (s->world.size * span_ns) : 0;
    if (!isfinite(report->loss) || !isfinite(report->gradient_norm)) {
        return CRL_FAIL(INVALID, "step %lld: %s is %g, expected a finite number", (long long)step,
                        isfinite(report->loss) ? "gradient norm" : "loss",
                        isfinite(report->loss) ? report->gradient_norm : report->loss);
    }
    const double clip = layout->settings->optimizer.clip;
    const double factor =
        clip > 0 && report->gradient_norm > clip ? clip / (report->gradient_norm + 1e-6) : 1;
    *out_scale = factor / divisor;
    return CRL_STATUS_OK;
}

crl_status crl_stepper_train(crl_stepper *s, int64_t step, double learning_rate,
                             const crl_loader_step *data, crl_step_report *report) {
    crl_rank *r = s->rank;
    const int64_t begin_ns = crl_clock_ns();
    double scale = 0;
    crl_executor_step run = {.seed = (uint64_t)r->layout->settings->train.seed,
                             .step = (uint32_t)step,
                             .training = true,
                             .samples = data->samples,
                             .field = data->data,
                             .loss = s->loss};
    crl_grad_sync_begin(r->sync);
    CRL_TRY(crl_executor_run(r->executor, &run));
    r->comm->waited_ns = 0;
    CRL_TRY(crl_grad_sync_finish(r->sync));
    const int64_t exposed_ns = r->comm->waited_ns;
    put_losses(s);
    CRL_TRY(put_norms(s));
    double *time = time_part(s, s->world.me);
    time[0] = (double)run.busy_ns;
    time[1] = (double)run.span_ns;
    time[2] = (double)exposed_ns * 1e-9;
    time[3] = report->stopping ? 1 : 0;
    CRL_TRY(crl_allreduce_f64(&s->world, s->exchange, s->exchange_count, s->scratch));
    report->exposed_comm_s = 0;
    CRL_TRY(agree(s, step, report, &scale));
    CRL_TRY(update(s, step, learning_rate, scale));
    report->samples = (double)data->samples;
    report->learning_rate = learning_rate;
    report->step = step;
    report->step_s = (double)(crl_clock_ns() - begin_ns) * 1e-9;
    return CRL_STATUS_OK;
}

crl_status crl_stepper_evaluate(crl_stepper *s, const crl_loader_step *data, crl_loss *total) {
    crl_executor_step run = {
        .training = false, .samples = data->samples, .field = data->data, .loss = s->loss};
    CRL_TRY(crl_executor_run(s->rank->evaluate_executor, &run));
    put_losses(s);
    CRL_TRY(crl_allreduce_f64(&s->world, s->exchange, s->exchange_count, s->scratch));
    add_losses(s, total);
    return CRL_STATUS_OK;
}

static uint64_t fnv1a(uint64_t hash, const void *data, size_t bytes) {
    const unsigned char *at = data;
    for (size_t i = 0; i < bytes; i++) {
        hash = (hash ^ at[i]) * 0x100000001b3u;
    }
    return hash;
}

/* Each owner hashes its parameters; two exact halves of every hash are exchanged. */
crl_status crl_stepper_hash(crl_stepper *s, uint64_t *out) {
    const crl_rank *r = s->rank;
    const crl_graph *graph = r->layout->graph;
    crl_status status = CRL_STATUS_OK;
    double *half = NULL, *scratch = NULL;
    uint64_t hash = 0xcbf29ce484222325u;
    const size_t count = (size_t)graph->params * 2;
    CRL_TRY_OUT(crl_alloc(&half, count, sizeof *half));
    CRL_TRY_OUT(crl_alloc(&scratch, count * (size_t)s->world.size, sizeof *scratch));
    for (int p = 0; p < graph->params; p++) {
        const int stage = crl_plan_stage_of(r->layout->plan, graph->param[p].use[0].node);
        if (r->at.replica == 0 && r->layout->plan->stage[stage].position == r->at.position) {
            const uint64_t own = fnv1a(hash, crl_params_weight(r->params, p),
                                       (size_t)graph->param[p].elements * sizeof(float));
            half[p * 2] = (double)(own >> 32);
            half[p * 2 + 1] = (double)(own & 0xffffffffu);
        }
    }
    CRL_TRY_OUT(crl_allreduce_f64(&s->world, half, (int64_t)count, scratch));
    for (size_t i = 0; i < count; i++) {
        const uint32_t part = (uint32_t)half[i];
        hash = fnv1a(hash, &part, sizeof part);
    }
    *out = hash;
out:
    crl_free(half);
    crl_free(scratch);
    return status;
}
