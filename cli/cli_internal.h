/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the sub-commands share. A command is a `const crl_command` table with an option table; its
 * `run` gets everything parsed, returns a status and prints no errors: crl_main.c does that.
 */
#pragma once

#include <stdio.h>

#include "cli/builtins.h"
#include "engine/base/units.h"
#include "engine/run/trainer.h"

enum { CRL_EXIT_OK = 0, CRL_EXIT_FAILURE = 1, CRL_EXIT_USAGE = 2 };

/* The process as it was started. */
typedef struct crl_cli {
    const char *program; /* "carole": how messages begin */
    const crl_model_def *model;
    const crl_registries *registries;
    int rank, ranks; /* of the MPI job that this process was started in; 0 of 1: none */
    int argc;
    char **argv; /* of the whole command line, to start it again under mpirun */
} crl_cli;

/* One command line, parsed. */
typedef struct crl_cli_args {
    crl_arena arena;
    const void *options; /* the command's struct */
    int arguments;
    const char **argument;
    int exit_code; /* if the command fails; a command sets it to CRL_EXIT_USAGE where that fits */
} crl_cli_args;

typedef struct crl_command {
    const char *name; /* "train", or two words: "schedule show" */
    const char *help;
    const char *arguments; /* "CONFIG"; NULL: none */
    int min_arguments, max_arguments;
    const char *more; /* printed after the options in --help; may be NULL */
    const crl_option *options;
    size_t options_bytes;
    crl_status (*run)(const crl_cli *cli, crl_cli_args *args);
} crl_command;

/* NULL-terminated registry of crl_command. */
extern const void *const crl_commands[];

/* A crl_text_list that grows by one text each time its option is given. */
extern const crl_option_type crl_cli_option_repeated;

/* Row of the option that every command with a CONFIG has. */
#define CRL_CLI_SET_ROW(struct_type, field)                                                        \
    {                                                                                              \
        "set", "", "use this value of the config (section.key=value); may be given again",         \
            &crl_cli_option_repeated, offsetof(struct_type, field), 0, 0, NULL                     \
    }

/* Parses the words after the command's name into `args`. False: the process is to end with
 * args->exit_code (a message or the help has been printed). */
bool crl_cli_parse(const crl_cli *cli, const crl_command *command, int argc, char **argv,
                   crl_cli_args *args);

/* "program: text\n" on stderr, once for all ranks of a job. */
void crl_cli_error(const crl_cli *cli, const char *format, ...) CRL_PRINTF(2, 3);
/* The error record, a line per problem; by the rank that failed. */
void crl_cli_report_failure(const crl_cli *cli);

/* Fills rank and ranks from the environment that mpirun or srun gives. */
void crl_cli_find_job(crl_cli *cli);

/* The settings of argument 0. A wrong config is a usage error. */
CRL_NODISCARD crl_status crl_cli_settings(crl_settings **out, const crl_cli *cli,
                                          crl_cli_args *args, const crl_text_list *sets);

/* The layout of `settings`, which its schedule can serve. One that cannot be is a usage error.
 * node_s: as for crl_layout_create. */
CRL_NODISCARD crl_status crl_cli_layout(crl_layout **out, const crl_cli *cli, crl_cli_args *args,
                                        const crl_settings *settings, const double *node_s);

enum { CRL_CLI_CHOICE_BYTES = 384 };
/* Settings of layout auto become those of the layout that is chosen for `ranks` ranks (0: those of
 * the job, or as many as there are cores); `said` gets a line about it, "" where the layout was
 * given. `sets` are those the settings were made with. UNSUPPORTED: no layout fits. */
CRL_NODISCARD crl_status crl_cli_choose_layout(crl_settings **inout,
                                               char said[CRL_CLI_CHOICE_BYTES], const crl_cli *cli,
                                               crl_cli_args *args, const crl_text_list *sets,
                                               int64_t ranks);

/* How a command that may run on several ranks wants to be started. */
typedef struct crl_cli_launch {
    crl_text_list sets;    /* of --set */
    const char *transport; /* of --transport; "": not given */
    const char *resume;    /* of --resume; "": not given */
    int64_t np;            /* of --np; 0: not given */
    bool quiet;            /* says nothing of a layout that it chooses */
} crl_cli_launch;

/* The settings, with the transport that suits the way this process was started. When they need an
 * mpirun that is not there yet, this process becomes it and the call does not return. */
CRL_NODISCARD crl_status crl_cli_load(crl_settings **out, const crl_cli *cli, crl_cli_args *args,
                                      const crl_cli_launch *launch);

/* The line per step. */
typedef struct crl_progress {
    FILE *out;
    bool live;      /* a terminal: one line that changes */
    bool line_open; /* the cursor stands in it */
    bool scaled;    /* lines have the loss scale */
} crl_progress;

void crl_progress_begin(crl_progress *progress, FILE *out);
void crl_progress_started(crl_progress *progress, const crl_run_report *report);
void crl_progress_stepped(crl_progress *progress, const crl_step_report *report);
void crl_progress_evaluated(crl_progress *progress, const crl_evaluation_report *report);
void crl_progress_saved(crl_progress *progress, int64_t step, const char *path);
/* A line that stays, on stderr. */
void crl_progress_tell(crl_progress *progress, crl_log_level level, int rank, const char *line);
void crl_progress_end(crl_progress *progress);

/*
 * Ctrl-C and SIGTERM, as batch systems send before they kill: the first one asks, the second one
 * ends the process at once. Begun before any other thread is started, so that all of them leave the
 * signals to it.
 */
typedef struct crl_stop crl_stop;
CRL_NODISCARD crl_status crl_stop_begin(crl_stop **out, const char *program);
bool crl_stop_asked(crl_stop *stop); /* before the first call a signal ends the process at once */
void crl_stop_end(crl_stop *stop);   /* NULL is fine */

/* <run>/log.jsonl: a JSON object per event, with the keys of the progress line. */
typedef struct crl_run_log {
    FILE *file; /* NULL: closed */
    const char *directory;
    bool failed; /* a write did not succeed; reported by close */
} crl_run_log;

void crl_run_log_started(crl_run_log *log, const crl_run_report *report);
void crl_run_log_stepped(crl_run_log *log, const crl_step_report *report);
void crl_run_log_evaluated(crl_run_log *log, const crl_evaluation_report *report);
void crl_run_log_saved(crl_run_log *log, int64_t step, const char *path);
CRL_NODISCARD crl_status crl_run_log_close(crl_run_log *log);

/* The layout's ranks as "2 x 4" (pipeline x data), or by position "3 + 1". */
enum { CRL_CLI_WIDTHS_BYTES = 128 };
const char *crl_cli_widths(char text[CRL_CLI_WIDTHS_BYTES], const crl_settings *settings);
