/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a training run looks like on the console: on a terminal one line that changes, and lines
 * that stay for validations and checkpoints; into a pipe a plain line per step.
 */
#include "cli/cli_internal.h"

#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

enum { LINE_BYTES = 320 };

/* 0: not a terminal. mpirun gives its ranks terminals without a size, which show nothing live. */
static int terminal_columns(FILE *out) {
    struct winsize size = {0};
    const int fd = fileno(out);
    if (fd < 0 || !isatty(fd) || ioctl(fd, TIOCGWINSZ, &size) != 0)
        return 0;
    return size.ws_col;
}

void crl_progress_begin(crl_progress *progress, FILE *out) {
    *progress = (crl_progress){.out = out, .live = terminal_columns(out) > 0};
}

/* Clears the changing line, so that a line that stays can be written. */
static void make_room(crl_progress *progress) {
    if (progress->line_open)
        fputs("\r\033[K", progress->out);
    progress->line_open = false;
}

static void show(crl_progress *progress, char *line) {
    if (!progress->live) {
        fprintf(progress->out, "%s\n", line);
        fflush(progress->out);
        return;
    }
    const int columns = terminal_columns(progress->out);
    if (columns > 1 && strlen(line) > (size_t)columns - 1)
        line[columns - 1] = '\0';
    fprintf(progress->out, "\r\033[K%s", line);
    progress->line_open = true;
    fflush(progress->out);
}

void crl_progress_tell(crl_progress *progress, crl_log_level level, int rank, const char *line) {
    char text[LINE_BYTES * 2];
    make_room(progress);
    fflush(progress->out);
    crl_log_format(text, sizeof text, level, rank, line);
    fputs(text, stderr);
}

static const char *plural(int64_t count, const char *ending) {
    return count == 1 ? "" : ending;
}

void crl_progress_started(crl_progress *progress, const crl_run_report *report) {
    char parameters[32], peak[32], widths[CRL_CLI_WIDTHS_BYTES];
    const crl_settings *settings = report->layout->settings;
    fprintf(progress->out,
            "%s parameters, %d rank%s (%s) of %d thread%s over %s, schedule %s, "
            "%d micro-batch%s in %d lane%s\n",
            crl_units_count(parameters, (double)report->parameters), report->ranks,
            plural(report->ranks, "s"), crl_cli_widths(widths, settings), report->threads,
            plural(report->threads, "s"), report->transport, settings->parallel.schedule,
            report->layout->micro_batches, plural(report->layout->micro_batches, "es"),
            report->layout->lanes, plural(report->layout->lanes, "s"));
    fprintf(progress->out,
            "%lld training and %lld validation samples, %lld step%s (%lld per epoch), %s reserved "
            "per rank at most\n",
            (long long)report->train_samples, (long long)report->validation_samples,
            (long long)report->steps, plural(report->steps, "s"),
            (long long)report->steps_per_epoch, crl_units_bytes(peak, (double)report->peak_bytes));
    progress->scaled = settings->numerics.precision == CRL_PRECISION_F16;
    if (settings->backend != &crl_backend_cpu || settings->numerics.precision != CRL_PRECISION_F32)
        fprintf(progress->out, "computing in %s on %s\n",
                crl_dtype_name(crl_settings_compute(settings)), settings->run.device);
    if (report->resumed_from)
        fprintf(progress->out, "resumed from %s, next step %lld\n", report->resumed_from,
                (long long)report->first_step);
    fflush(progress->out);
}

void crl_progress_stepped(crl_progress *progress, const crl_step_report *report) {
    char line[LINE_BYTES], peak[32], scale[64] = "";
    const bool tokens = report->tokens > report->samples;
    const double rate =
        report->step_s > 0 ? (tokens ? report->tokens : report->samples) / report->step_s : 0;
    if (progress->scaled)
        snprintf(scale, sizeof scale, "  scale %.10g%s", report->loss_scale,
                 report->skipped ? ", overflow: skipped" : "");
    snprintf(line, sizeof line,
             "step %lld/%lld  loss %.4f  norm %.3f  lr %.2e  %.1f ms  %.0f %s/s  bubble %.1f%%  "
             "comm %.1f ms  peak %s%s",
             (long long)report->step, (long long)report->steps, report->loss, report->gradient_norm,
             report->learning_rate, report->step_s * 1e3, rate, tokens ? "tokens" : "samples",
             100 * report->bubble, report->exposed_comm_s * 1e3,
             crl_units_bytes(peak, (double)report->peak_bytes), scale);
    show(progress, line);
}

void crl_progress_evaluated(crl_progress *progress, const crl_evaluation_report *report) {
    char time[32];
    make_room(progress);
    fprintf(progress->out, "step %lld  validation loss %.4f  accuracy %.2f%%  %.0f samples in %s\n",
            (long long)report->step, report->loss, 100 * report->accuracy, report->samples,
            crl_units_seconds(time, report->seconds));
    fflush(progress->out);
}

void crl_progress_saved(crl_progress *progress, int64_t step, const char *path) {
    make_room(progress);
    fprintf(progress->out, "step %lld  checkpoint %s\n", (long long)step, path);
    fflush(progress->out);
}

void crl_progress_end(crl_progress *progress) {
    if (progress->line_open)
        fputc('\n', progress->out);
    progress->line_open = false;
    fflush(progress->out);
}
