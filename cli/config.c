/* SPDX-License-Identifier: Apache-2.0 */
/* `carole config check | reference`: what a config file may say, and whether one is right. */
#include "cli/cli_internal.h"

typedef struct check_options {
    crl_text_list sets;
} check_options;

static const crl_option check_table[] = {CRL_CLI_SET_ROW(check_options, sets), {0}};

static crl_status run_check(const crl_cli *cli, crl_cli_args *args) {
    const check_options *o = args->options;
    char widths[CRL_CLI_WIDTHS_BYTES];
    crl_settings *settings = NULL;
    CRL_TRY(crl_cli_settings(&settings, cli, args, &o->sets));
    crl_layout *layout = NULL;
    const crl_status status = crl_cli_layout(&layout, cli, args, settings, NULL);
    if (status == CRL_STATUS_OK && settings->parallel.layout == CRL_LAYOUT_AUTO)
        printf("%s: valid: model %s, layout chosen at the start\n", args->argument[0],
               settings->model_type);
    else if (status == CRL_STATUS_OK)
        printf("%s: valid: model %s, %s ranks\n", args->argument[0], settings->model_type,
               crl_cli_widths(widths, settings));
    crl_layout_destroy(layout);
    crl_settings_destroy(settings);
    return status;
}

static crl_status run_reference(const crl_cli *cli, crl_cli_args *args) {
    (void)args;
    printf("# Config reference\n\n"
           "Made by `carole config reference > docs/config.md`; the facts stand in the option "
           "tables.\nEvery key can also be given as `--set section.key=value`.\n\n");
    return crl_settings_reference(cli->registries, stdout);
}

const crl_command crl_command_config_check = {
    .name = "config check",
    .help = "check a config file and the layout it asks for",
    .arguments = "CONFIG",
    .min_arguments = 1,
    .max_arguments = 1,
    .options = check_table,
    .options_bytes = sizeof(check_options),
    .run = run_check,
};

const crl_command crl_command_config_reference = {
    .name = "config reference",
    .help = "every key of a config file, with its default, as Markdown",
    .run = run_reference,
};
