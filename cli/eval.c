/* SPDX-License-Identifier: Apache-2.0 */
/* `carole eval`: loss and accuracy of a checkpoint on the validation set. */
#include "cli/cli_internal.h"

typedef struct eval_options {
    crl_text_list sets;
    int64_t np;
    const char *transport, *checkpoint;
} eval_options;

static const crl_option options[] = {
    CRL_CLI_SET_ROW(eval_options, sets),
    {"checkpoint", "", "a checkpoint or a run folder; without: the config's run folder",
     &crl_option_text, offsetof(eval_options, checkpoint), 0, 0, NULL},
    {"np", "0", "ranks; has to be parallel.pipeline x parallel.data", &crl_option_int,
     offsetof(eval_options, np), 0, 100000, NULL},
    {"transport", "", "local (ranks are threads) or mpi; the same as comm.transport",
     &crl_option_text, offsetof(eval_options, transport), 0, 0, NULL},
    {0}};

static crl_status run(const crl_cli *cli, crl_cli_args *args) {
    const eval_options *o = args->options;
    crl_settings *settings = NULL;
    CRL_TRY(crl_cli_load(
        &settings, cli, args,
        &(crl_cli_launch){.sets = o->sets, .transport = o->transport, .resume = "", .np = o->np}));
    crl_status status = CRL_STATUS_OK;
    crl_evaluation_report report = {0};
    CRL_TRY_OUT(crl_evaluate(&report, settings, cli->registries,
                             o->checkpoint[0] ? o->checkpoint : settings->run.directory));
    char time[32];
    printf("step %lld: validation loss %.6f, accuracy %.2f %%, %.0f samples in %s\n",
           (long long)report.step, report.loss, 100 * report.accuracy, report.samples,
           crl_units_seconds(time, report.seconds));
out:
    crl_settings_destroy(settings);
    return status;
}

const crl_command crl_command_eval = {
    .name = "eval",
    .help = "validation loss and accuracy of a checkpoint",
    .arguments = "CONFIG",
    .min_arguments = 1,
    .max_arguments = 1,
    .options = options,
    .options_bytes = sizeof(eval_options),
    .run = run,
};
