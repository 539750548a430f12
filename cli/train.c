/* SPDX-License-Identifier: Apache-2.0 */
/* `carole train`: hands the settings to the engine and shows what it reports. */
#include "cli/cli_internal.h"

#include <inttypes.h>
#include <sys/stat.h>
#include <unistd.h>

#include "engine/base/file.h"
#include "engine/run/checkpoint.h"

typedef struct train_options {
    crl_text_list sets;
    int64_t np;
    const char *transport, *resume;
    bool quiet;
} train_options;

static const crl_option options[] = {
    CRL_CLI_SET_ROW(train_options, sets),
    {"np", "0",
     "ranks; has to be parallel.pipeline x parallel.data; 0: not checked; with --transport "
     "mpi, mpirun is started for them",
     &crl_option_int, offsetof(train_options, np), 0, 100000, NULL},
    {"transport", "", "local (ranks are threads) or mpi; the same as comm.transport",
     &crl_option_text, offsetof(train_options, transport), 0, 0, NULL},
    {"resume", "", "none, auto, or a checkpoint; the same as run.resume", &crl_option_text,
     offsetof(train_options, resume), 0, 0, NULL},
    {"quiet", "false", "print nothing but errors", &crl_option_bool, offsetof(train_options, quiet),
     0, 0, NULL},
    {0}};

typedef struct train_view {
    crl_progress *progress; /* NULL: quiet */
    crl_stop *stop;
    int64_t log_every;
    crl_run_log log;
    int64_t first_step; /* the run began after this one */
} train_view;

/* A run that begins anew in the folder of an earlier one takes its place: said beforehand. */
static void warn_of_replacing(const train_view *view) {
    char path[1024], line[1280];
    const crl_error before = *crl_error_get();
    if (crl_checkpoint_find(path, sizeof path, view->log.directory) != CRL_STATUS_OK) {
        crl_error_set(&before);
        return;
    }
    snprintf(line, sizeof line,
             "replaces an earlier run, which got to %s (--resume auto goes on from it)", path);
    crl_progress_tell(view->progress, CRL_LOG_WARN, -1, line);
}

static void started(void *context, const crl_run_report *report) {
    train_view *view = context;
    view->first_step = report->first_step;
    crl_run_log_started(&view->log, report);
    if (!view->progress)
        return;
    crl_progress_started(view->progress, report);
    if (!report->resumed_from)
        warn_of_replacing(view);
}

static void stepped(void *context, const crl_step_report *report) {
    train_view *view = context;
    crl_run_log_stepped(&view->log, report);
    const bool due = report->step % view->log_every == 0 || report->step == report->steps;
    if (view->progress && (view->progress->live || due))
        crl_progress_stepped(view->progress, report);
}

static void evaluated(void *context, const crl_evaluation_report *report) {
    train_view *view = context;
    crl_run_log_evaluated(&view->log, report);
    if (view->progress)
        crl_progress_evaluated(view->progress, report);
}

static void saved(void *context, int64_t step, const char *path) {
    train_view *view = context;
    crl_run_log_saved(&view->log, step, path);
    if (view->progress)
        crl_progress_saved(view->progress, step, path);
}

static bool stop(void *context) {
    const train_view *view = context;
    return crl_stop_asked(view->stop);
}

static void tell(void *context, crl_log_level level, int rank, const char *line) {
    const train_view *view = context;
    if (view->progress)
        crl_progress_tell(view->progress, level, rank, line);
}

/* A missing file would otherwise be found when all memory is reserved, or the lack of it. Rank 0 is
 * the one that is heard; what only other hosts lack, the run says. */
static crl_status check_files(const crl_cli *cli, const crl_text_list *files) {
    for (int i = 0; cli->rank == 0 && i < files->count; i++) {
        int fd = -1;
        struct stat facts;
        CRL_TRY(crl_file_open(&fd, &facts, files->item[i]));
        close(fd);
    }
    return CRL_STATUS_OK;
}

/* The training's failure is the one to tell; a log that failed too adds nothing. */
static crl_status close_log(crl_run_log *log, crl_status trained) {
    const crl_error error = *crl_error_get();
    const crl_status closed = crl_run_log_close(log);
    if (trained != CRL_STATUS_OK && closed != CRL_STATUS_OK)
        crl_error_set(&error);
    return trained != CRL_STATUS_OK ? trained : closed;
}

static void print_end(const crl_run_result *result, int64_t first_step, const char *directory) {
    char loss[64] = "nothing left to do";
    if (result->steps != first_step)
        snprintf(loss, sizeof loss, "loss %.6g", result->loss);
    printf("finished step %" PRId64 ": %s, parameter bits %016" PRIx64 ", run folder %s\n",
           result->steps, loss, result->parameter_hash, directory);
}

static crl_status run(const crl_cli *cli, crl_cli_args *args) {
    const train_options *o = args->options;
    crl_settings *settings = NULL;
    CRL_TRY(crl_cli_load(&settings, cli, args,
                         &(crl_cli_launch){.sets = o->sets,
                                           .transport = o->transport,
                                           .resume = o->resume,
                                           .np = o->np,
                                           .quiet = o->quiet}));
    crl_status status = CRL_STATUS_OK;
    crl_progress progress;
    crl_stop *watch = NULL;
    CRL_TRY_OUT(check_files(cli, &settings->data.train));
    CRL_TRY_OUT(check_files(cli, &settings->data.validation));
    CRL_TRY_OUT(crl_stop_begin(&watch, cli->program));
    crl_progress_begin(&progress, stdout);
    train_view view = {.progress = o->quiet ? NULL : &progress,
                       .stop = watch,
                       .log_every = settings->run.log_every,
                       .log = {.directory = settings->run.directory}};
    const crl_run_events events = {.context = &view,
                                   .started = started,
                                   .stepped = stepped,
                                   .evaluated = evaluated,
                                   .saved = saved,
                                   .stop = stop,
                                   .log = {tell, &view, CRL_LOG_INFO, -1}};
    crl_run_result result = {0};
    status = crl_train(&result, settings, cli->registries, &events);
    crl_progress_end(&progress);
    CRL_TRY_OUT(close_log(&view.log, status));
    if (result.stopped)
        CRL_TRY_OUT(CRL_FAIL(ABORTED,
                             "stopped after step %" PRId64
                             " as asked, the checkpoint is saved (go on with --resume auto)",
                             result.steps));
    if (!o->quiet)
        print_end(&result, view.first_step, settings->run.directory);
out:
    crl_stop_end(watch);
    crl_settings_destroy(settings);
    return status;
}

const crl_command crl_command_train = {
    .name = "train",
    .help = "train a model as a config file says",
    .arguments = "CONFIG",
    .min_arguments = 1,
    .max_arguments = 1,
    .more =
        "Under mpirun the transport is mpi, with one rank per process. The same config gives the "
        "same bits in every layout.",
    .options = options,
    .options_bytes = sizeof(train_options),
    .run = run,
};
