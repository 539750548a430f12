/* SPDX-License-Identifier: Apache-2.0 */
/* The training run: resume, step, evaluate, save. */
#include "engine/run/trainer.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "engine/base/alloc.h"
#include "engine/base/file.h"
#include "engine/run/run_internal.h"

/* One rank's training run. */
typedef struct trainer {
    crl_session session;
    const crl_run_events *events; /* NULL but on rank 0 */
    const crl_run_events *asked;  /* whom to ask whether to stop; may be NULL */
    crl_feed train, validation;
    crl_loader *loader;
    crl_resume_point from; /* resumed from */
    int64_t steps, steps_per_epoch;
    crl_lr_config rate;
    crl_run_result result;
    int64_t event_allocations; /* made while events were told */
    int lock;                  /* of the run folder; -1: not held */
} trainer;

/* What crl_train hands to every rank. */
typedef struct job {
    const crl_settings *settings;
    const crl_registries *registries;
    const crl_run_events *events;
    crl_run_result *result; /* rank 0's (in this process: the lowest rank's) */
} job;

/* Finds the checkpoint to go on from and takes over what of it decides the numbers: the step, and
 * the lanes where the config leaves them open. `*settings` is the rank's own copy. */
static crl_status find_resume(trainer *t, crl_comm *comm, crl_settings *settings) {
    const char *resume = settings->run.resume;
    const bool automatic = strcmp(resume, "auto") == 0;
    if (strcmp(resume, "none") == 0) {
        return CRL_STATUS_OK;
    }
    CRL_TRY(
        crl_resume_find(&t->from, comm, automatic ? settings->run.directory : resume, automatic));
    if (!t->from.path[0]) {
        return CRL_STATUS_OK;
    }
    CRL_TRY(crl_resume_check(&t->from, settings));
    const int64_t lanes = t->from.lanes;
    if (settings->numerics.lanes == 0 && lanes >= crl_settings_widest(settings) &&
        (lanes & (lanes - 1)) == 0) {
        settings->numerics.lanes = lanes;
    }
    return CRL_STATUS_OK;
}

/* Weights and state of the checkpoint that is resumed, or the weights to begin with. */
static crl_status load(trainer *t, const crl_settings *asked) {
    crl_session *s = &t->session;
    if (t->from.path[0]) {
        if (asked->numerics.lanes == 0 && s->layout->lanes != t->from.lanes) {
            return CRL_FAIL(INVALID,
                            "%s: trained with %lld lanes, the layout has %d (to go on with other "
                            "bits: numerics.lanes)",
                            t->from.path, (long long)t->from.lanes, s->layout->lanes);
        }
        return crl_session_load(s, &t->from, true);
    }
    if (asked->run.initialize[0]) {
        crl_resume_point weights;
        CRL_TRY(crl_resume_find(&weights, s->comm, asked->run.initialize, false));
        return crl_session_load(s, &weights, false);
    }
    return CRL_STATUS_OK;
}

static crl_status count_steps(trainer *t) {
    const crl_settings_train *train = &t->session.settings->train;
    t->steps_per_epoch = (t->train.samples + train->global_batch - 1) / train->global_batch;
    t->steps = train->steps;
    if (train->epochs > 0) {
        int64_t by_epochs;
        if (__builtin_mul_overflow(train->epochs, t->steps_per_epoch, &by_epochs)) {
            by_epochs = INT64_MAX;
        }
        t->steps = train->steps > 0 && train->steps < by_epochs ? train->steps : by_epochs;
    }
    if (t->steps > UINT32_MAX) { /* random numbers are keyed by 32 bits of the step */
        return CRL_FAIL(INVALID,
                        "train.epochs: %lld epochs of %lld steps, expected at most %u in "
                        "all",
                        (long long)train->epochs, (long long)t->steps_per_epoch, UINT32_MAX);
    }
    const crl_settings_optimizer *o = &t->session.settings->optimizer;
    t->rate = (crl_lr_config){(crl_lr_kind)o->rate_schedule, o->learning_rate, o->minimum_rate,
                              o->warmup_steps, t->steps};
    return CRL_STATUS_OK;
}

static crl_status open_data(trainer *t) {
    crl_session *s = &t->session;
    const crl_settings *settings = s->settings;
    CRL_TRY(crl_feed_open(&t->train, settings, s->registries, &settings->data.train,
                          s->layout->graph, s->rank->executor));
    if (settings->data.validation.count > 0) {
        CRL_TRY(crl_feed_open(&t->validation, settings, s->registries, &settings->data.validation,
                              s->layout->evaluate_graph, s->rank->evaluate_executor));
    }
    CRL_TRY(count_steps(t));
    const crl_feed_range range = {(uint64_t)settings->train.seed,
                                  settings->data.shuffle,
                                  settings->train.micro_batch,
                                  s->layout->micro_batches,
                                  settings->train.global_batch,
                                  t->from.step,
                                  t->steps > t->from.step ? t->steps : t->from.step};
    return crl_feed_loader(&t->loader, &t->train, s->rank, &range);
}

/* What is easily overlooked: devices without work, bits decided by a checkpoint. */
static void warn(const trainer *t, const crl_settings *asked) {
    const crl_layout *layout = t->session.layout;
    const crl_settings *settings = t->session.settings;
    if (!t->events) {
        return;
    }
    const int widest = (int)crl_settings_widest(settings);
    if (widest > layout->lanes) {
        crl_log_write(&t->events->log, CRL_LOG_WARN,
                      "%d of %d replicas have nothing to do: a step has only %d micro-batches",
                      widest - layout->lanes, widest, layout->micro_batches);
    }
    if (t->from.path[0] && asked->numerics.lanes == 0 &&
        settings->numerics.lanes > crl_settings_widest(asked)) {
        crl_log_write(&t->events->log, CRL_LOG_INFO, "numerics.lanes is %lld, as in %s",
                      (long long)settings->numerics.lanes, t->from.path);
    }
    if (!t->from.path[0] && strcmp(settings->run.resume, "auto") == 0) {
        crl_log_write(&t->events->log, CRL_LOG_INFO, "no checkpoint in %s: a fresh run",
                      settings->run.directory);
    }
}

/* Two runs in one folder would write each other's checkpoints. Rank 0 holds the folder. */
static crl_status hold_folder(trainer *t, const crl_comm *comm) {
    const char *folder = t->session.settings->run.directory;
    char path[CRL_RUN_PATH_BYTES];
    if (comm->rank != 0) {
        return CRL_STATUS_OK;
    }
    snprintf(path, sizeof path, "%s/lock", folder);
    CRL_TRY(crl_file_make_directory(folder));
    const crl_status status = crl_file_lock(&t->lock, path);
    if (status == CRL_STATUS_INVALID) {
        return CRL_FAIL(INVALID, "%s: in use by another run", folder);
    }
    return status;
}

static void report_start(const trainer *t) {
    const crl_session *s = &t->session;
    const crl_run_report report = {.layout = s->layout,
                                   .ranks = s->comm->ranks,
                                   .threads = s->threads,
                                   .transport = s->settings->comm.transport,
                                   .parameters = crl_graph_param_elements(s->layout->graph),
                                   .first_step = t->from.step,
                                   .steps = t->steps,
                                   .steps_per_epoch = t->steps_per_epoch,
                                   .train_samples = t->train.samples,
                                   .validation_samples = t->validation.samples,
                                   .peak_bytes = s->peak_bytes,
                                   .resumed_from = t->from.path[0] ? t->from.path : NULL};
    if (t->events && t->events->started) {
        t->events->started(t->events->context, &report);
    }
}

static crl_status evaluate(trainer *t, int64_t step) {
    CRL_TRY(crl_session_evaluate(&t->session, &t->validation, step, &t->result.evaluation));
    if (t->events && t->events->evaluated) {
        t->events->evaluated(t->events->context, &t->result.evaluation);
    }
    return CRL_STATUS_OK;
}

static crl_status save(trainer *t, int64_t step) {
    char path[CRL_RUN_PATH_BYTES];
    CRL_TRY(crl_session_save(&t->session, step, path, sizeof path));
    if (t->events && t->events->saved) {
        t->events->saved(t->events->context, step, path);
    }
    return CRL_STATUS_OK;
}

static bool due(int64_t step, int64_t every, int64_t last) {
    return step == last || (every > 0 && step % every == 0);
}

/* Does something look at the weights after this step? */
static bool evaluates(const trainer *t, int64_t step) {
    return t->validation.dataset && due(step, t->session.settings->train.evaluate_every, t->steps);
}

static bool saves(const trainer *t, int64_t step) {
    return due(step, t->session.settings->train.checkpoint_every, t->steps);
}

/* A step stands: it becomes part of the result. What the events allocate is not the step's. */
static void stepped(void *trainer_, const crl_step_report *step) {
    trainer *t = trainer_;
    crl_step_report report = *step;
    report.steps = t->steps;
    report.epoch = (double)step->step / (double)t->steps_per_epoch;
    report.peak_bytes = t->session.peak_bytes;
    t->result.steps = step->step;
    t->result.loss = step->loss;
    t->result.stopped = step->stopping && step->step < t->steps;
    const int64_t allocations = crl_alloc_thread_count();
    if (t->events && t->events->stepped) {
        t->events->stepped(t->events->context, &report);
    }
    t->event_allocations += crl_alloc_thread_count() - allocations;
}

/* One step with its bookkeeping. Allocations of the step proper are counted from the second on. */
static crl_status train_step(trainer *t, int64_t step) {
    crl_loader_step data;
    const crl_step_request request = {.step = step,
                                      .learning_rate = crl_lr_at(&t->rate, step),
                                      .data = &data,
                                      .stopping = t->asked && t->asked->stop &&
                                                  t->asked->stop(t->asked->context),
                                      .settle = evaluates(t, step) || saves(t, step)};
    const int64_t allocations = crl_alloc_thread_count() - t->event_allocations;
    const int64_t primitives = crl_kernels_primitives_created();
    CRL_TRY(crl_loader_next(t->loader, &data));
    CRL_TRY(crl_stepper_train(&t->session.stepper, &request));
    if (step > t->from.step + 1) {
        t->result.late_allocations += crl_alloc_thread_count() - t->event_allocations - allocations;
        t->result.late_primitives += crl_kernels_primitives_created() - primitives;
    }
    return CRL_STATUS_OK;
}

static crl_status train_all(trainer *t) {
    crl_stepper *stepper = &t->session.stepper;
    t->result.steps = t->from.step;
    t->result.evaluation.step = -1;
    stepper->stepped = stepped;
    stepper->context = t;
    for (int64_t step = t->from.step + 1; step <= t->steps; step++) {
        CRL_TRY(train_step(t, step));
        if (t->result.stopped) {
            CRL_TRY(save(t, step));
            break;
        }
        if (evaluates(t, step)) {
            CRL_TRY(evaluate(t, step));
        }
        if (saves(t, step)) {
            CRL_TRY(save(t, step));
        }
    }
    t->result.rollbacks = stepper->rollbacks;
    t->result.skipped = stepper->scale.skipped;
    t->result.loss_scale = stepper->scale.scale;
    if (t->events && t->result.rollbacks > 0) {
        crl_log_write(&t->events->log, CRL_LOG_INFO,
                      "%lld updates were taken back: their gradient norm was above optimizer.clip",
                      (long long)t->result.rollbacks);
    }
    t->result.reserved_bytes = (int64_t)t->session.rank->memory.total_bytes;
    return crl_stepper_hash(stepper, &t->result.parameter_hash);
}

/* Counts of all ranks in everybody's result. */
static crl_status sum_counts(trainer *t) {
    double count[2] = {(double)t->result.late_allocations, (double)t->result.late_primitives};
    CRL_TRY(crl_agree_sum(&t->session.stepper.tally.world, CRL_TALLY_ONCE, count, 2,
                          "the counts of allocations"));
    t->result.late_allocations = (int64_t)count[0];
    t->result.late_primitives = (int64_t)count[1];
    return CRL_STATUS_OK;
}

static crl_status train_rank(void *argument, crl_comm *comm) {
    crl_status status = CRL_STATUS_OK;
    job *j = argument;
    trainer *t = NULL;
    crl_settings settings = *j->settings;
    CRL_TRY(crl_alloc(&t, 1, sizeof *t));
    t->events = comm->rank == 0 ? j->events : NULL;
    t->asked = j->events;
    t->lock = -1;
    CRL_TRY_OUT(find_resume(t, comm, &settings));
    CRL_TRY_OUT(crl_session_open(&t->session, &settings, j->registries, comm, true));
    CRL_TRY_OUT(load(t, j->settings));
    CRL_TRY_OUT(open_data(t));
    CRL_TRY_OUT(hold_folder(t, comm));
    warn(t, j->settings);
    report_start(t);
    CRL_TRY_OUT(train_all(t));
    CRL_TRY_OUT(sum_counts(t));
    if (comm->rank == 0 || strcmp(settings.comm.transport, "local") != 0) {
        *j->result = t->result;
    }
out:
    crl_session_close(&t->session, status != CRL_STATUS_OK); /* ends copies from the loader */
    crl_loader_destroy(t->loader);
    crl_feed_close(&t->train);
    crl_feed_close(&t->validation);
    if (t->lock >= 0) {
        close(t->lock);
    }
    crl_free(t);
    return status;
}

crl_status crl_train(crl_run_result *out, const crl_settings *settings,
                     const crl_registries *registries, const crl_run_events *events) {
    job j = {settings, registries, events, out};
    int ranks = 0;
    CRL_TRY(crl_settings_count_ranks(&ranks, settings));
    if (settings->data.train.count == 0) {
        return CRL_FAIL(INVALID, "data.train is empty, expected the files of a training set");
    }
    if (settings->train.steps == 0 && settings->train.epochs == 0) {
        return CRL_FAIL(INVALID, "train.steps and train.epochs are both 0, expected one of them");
    }
    return crl_session_launch(settings, registries, ranks, train_rank, &j);
}

/* What crl_evaluate hands to every rank. */
typedef struct evaluation_job {
    const crl_settings *settings;
    const crl_registries *registries;
    const char *checkpoint;
    crl_evaluation_report *report;
} evaluation_job;

static crl_status evaluate_rank(void *argument, crl_comm *comm) {
    crl_status status = CRL_STATUS_OK;
    evaluation_job *j = argument;
    crl_session session = {0};
    crl_feed feed = {0};
    crl_resume_point from;
    crl_evaluation_report report;
    CRL_TRY_OUT(crl_resume_find(&from, comm, j->checkpoint, false));
    CRL_TRY_OUT(crl_session_open(&session, j->settings, j->registries, comm, false));
    CRL_TRY_OUT(crl_session_load(&session, &from, false));
    CRL_TRY_OUT(crl_feed_open(&feed, j->settings, j->registries, &j->settings->data.validation,
                              session.layout->evaluate_graph, session.rank->evaluate_executor));
    CRL_TRY_OUT(crl_session_evaluate(&session, &feed, from.step, &report));
    if (comm->rank == 0 || strcmp(j->settings->comm.transport, "local") != 0) {
        *j->report = report;
    }
out:
    crl_session_close(&session, status != CRL_STATUS_OK);
    crl_feed_close(&feed);
    return status;
}

crl_status crl_evaluate(crl_evaluation_report *out, const crl_settings *settings,
                        const crl_registries *registries, const char *checkpoint) {
    evaluation_job j = {settings, registries, checkpoint, out};
    int ranks = 0;
    CRL_TRY(crl_settings_count_ranks(&ranks, settings));
    if (settings->data.validation.count == 0) {
        return CRL_FAIL(INVALID,
                        "data.validation is empty, expected the files of a validation set");
    }
    return crl_session_launch(settings, registries, ranks, evaluate_rank, &j);
}
