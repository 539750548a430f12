/* SPDX-License-Identifier: Apache-2.0 */
/*
 * <run>/log.jsonl for programs to read: one JSON object per line, its "event" first. A resumed run
 * adds to the file, a fresh one begins it anew. A log that cannot be written never stops training.
 */
#include "cli/cli_internal.h"

#include <jansson.h>
#include <math.h>

#include "engine/base/file.h"

static void write_line(crl_run_log *log, json_t *object) {
    if (log->file) {
        const size_t flags = JSON_COMPACT | JSON_PRESERVE_ORDER | JSON_REAL_PRECISION(17);
        if (!object || json_dumpf(object, log->file, flags) != 0 || fputc('\n', log->file) == EOF ||
            fflush(log->file) != 0)
            log->failed = true;
    }
    json_decref(object);
}

/* JSON has no infinities: null. */
static json_t *number(double value) {
    return isfinite(value) ? json_real(value) : json_null();
}

void crl_run_log_started(crl_run_log *log, const crl_run_report *report) {
    char path[4096];
    const int length = snprintf(path, sizeof path, "%s/log.jsonl", log->directory);
    if (length < 0 || (size_t)length >= sizeof path ||
        crl_file_make_directory(log->directory) != CRL_STATUS_OK ||
        !(log->file = fopen(path, report->resumed_from ? "a" : "w"))) {
        log->failed = true;
        return;
    }
    char widths[CRL_CLI_WIDTHS_BYTES];
    const crl_settings *settings = report->layout->settings;
    write_line(
        log, json_pack("{s:s,s:s,s:s,s:I,s:i,s:i,s:s,s:i,s:s,s:s,s:i,s:i,s:I,s:I,s:I,s:I,s:I,s:s?}",
                       "event", "start", "device", settings->run.device, "precision",
                       crl_dtype_name(crl_settings_compute(settings)), "parameters",
                       (json_int_t)report->parameters, "ranks", report->ranks, "pipeline",
                       report->layout->mesh.pipeline, "layout", crl_cli_widths(widths, settings),
                       "threads", report->threads, "transport", report->transport, "schedule",
                       settings->parallel.schedule, "micro_batches", report->layout->micro_batches,
                       "lanes", report->layout->lanes, "first_step", (json_int_t)report->first_step,
                       "steps", (json_int_t)report->steps, "train_samples",
                       (json_int_t)report->train_samples, "validation_samples",
                       (json_int_t)report->validation_samples, "peak_bytes",
                       (json_int_t)report->peak_bytes, "resumed_from", report->resumed_from));
}

void crl_run_log_stepped(crl_run_log *log, const crl_step_report *report) {
    const double rate_s = report->step_s > 0 ? 1 / report->step_s : 0;
    write_line(log,
               json_pack("{s:s,s:I,s:o,s:o,s:o,s:o,s:o,s:o,s:o,s:o,s:o,s:I,s:o,s:b}", "event",
                         "step", "step", (json_int_t)report->step, "epoch", number(report->epoch),
                         "loss", number(report->loss), "grad_norm", number(report->gradient_norm),
                         "lr", number(report->learning_rate), "ms", number(report->step_s * 1e3),
                         "samples_per_s", number(report->samples * rate_s), "tokens_per_s",
                         number(report->tokens * rate_s), "bubble", number(report->bubble),
                         "exposed_comm_ms", number(report->exposed_comm_s * 1e3), "peak_bytes",
                         (json_int_t)report->peak_bytes, "loss_scale", number(report->loss_scale),
                         "skipped", report->skipped));
}

void crl_run_log_evaluated(crl_run_log *log, const crl_evaluation_report *report) {
    write_line(log, json_pack("{s:s,s:I,s:o,s:o,s:o,s:o}", "event", "validation", "step",
                              (json_int_t)report->step, "loss", number(report->loss), "accuracy",
                              number(report->accuracy), "samples", number(report->samples),
                              "seconds", number(report->seconds)));
}

void crl_run_log_saved(crl_run_log *log, int64_t step, const char *path) {
    write_line(log, json_pack("{s:s,s:I,s:s}", "event", "checkpoint", "step", (json_int_t)step,
                              "path", path));
}

crl_status crl_run_log_close(crl_run_log *log) {
    const bool failed = log->failed || (log->file && fclose(log->file) != 0);
    log->file = NULL;
    return failed ? CRL_FAIL(IO, "%s/log.jsonl: write failed", log->directory) : CRL_STATUS_OK;
}
