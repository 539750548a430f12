/* SPDX-License-Identifier: Apache-2.0 */
/*
 * From option tables to argp and back: every row is an option, so parsing and --help come from the
 * same place as the config reference. argp's second line of complaint ("Try ...") is silenced: an
 * error is one line.
 */
#include "cli/cli_internal.h"

#include <argp.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

enum { HELP_KEY = '?', FIRST_KEY = 256, MAX_ROWS = 32 };

typedef struct parse_state {
    const crl_cli *cli;
    const crl_command *command;
    crl_cli_args *args;
    void *options;
    bool given[MAX_ROWS];
    char name[128];
} parse_state;

static crl_status parse_repeated(const crl_option *option, const char *text, crl_arena *arena,
                                 void *field) {
    (void)option;
    crl_text_list *list = field;
    if (text[0] == '\0')
        return CRL_STATUS_OK;
    const char **item = NULL;
    CRL_TRY(crl_arena_alloc(arena, &item, (size_t)list->count + 1, sizeof *item));
    if (list->count > 0)
        memcpy(item, list->item, (size_t)list->count * sizeof *item);
    CRL_TRY(crl_arena_text(arena, &item[list->count], text));
    list->item = item;
    list->count++;
    return CRL_STATUS_OK;
}

static void show_repeated(const crl_option *option, const void *field, char *text,
                          size_t text_bytes) {
    (void)option;
    snprintf(text, text_bytes, "%d texts", ((const crl_text_list *)field)->count);
}

const crl_option_type crl_cli_option_repeated = {
    .name = "text", .parse = parse_repeated, .show = show_repeated};

static error_t take_option(parse_state *state, int row, const char *text) {
    const crl_option *option = &state->command->options[row];
    const char *value = option->type == &crl_option_bool && !text ? "true" : text;
    state->given[row] = true;
    if (crl_option_set(state->command->options, option->name, value, &state->args->arena,
                       state->options) == CRL_STATUS_OK)
        return 0;
    crl_cli_error(state->cli, "--%s", crl_error_message());
    return EINVAL;
}

static error_t take_argument(parse_state *state, const char *text) {
    crl_cli_args *args = state->args;
    if (args->arguments >= state->command->max_arguments) {
        crl_cli_error(state->cli, "%s: unexpected argument '%s'", state->command->name, text);
        return EINVAL;
    }
    args->argument[args->arguments++] = text;
    return 0;
}

static error_t check_end(parse_state *state) {
    for (int row = 0; state->command->options && state->command->options[row].name; row++) {
        const crl_option *option = &state->command->options[row];
        if (!option->value && !state->given[row]) {
            crl_cli_error(state->cli, "%s: --%s is missing", state->command->name, option->name);
            return EINVAL;
        }
    }
    if (state->args->arguments < state->command->min_arguments) {
        crl_cli_error(state->cli, "%s: %s is missing", state->command->name,
                      state->command->arguments);
        return EINVAL;
    }
    return 0;
}

static error_t parse_one(int key, char *text, struct argp_state *argp_state) {
    parse_state *state = argp_state->input;
    switch (key) {
    case ARGP_KEY_INIT:
        argp_state->err_stream = NULL;
        return 0;
    case HELP_KEY:
        argp_state->name = state->name; /* argp itself would call it by argv[0] */
        setenv("ARGP_HELP_FMT", "opt-doc-col=32", 0); /* room for --micro-batches=INTEGER */
        argp_state_help(argp_state, stdout, ARGP_HELP_STD_HELP);
        return 0;
    case ARGP_KEY_ARG:
        return take_argument(state, text);
    case ARGP_KEY_END:
        return check_end(state);
    default:
        if (key >= FIRST_KEY && key < FIRST_KEY + MAX_ROWS)
            return take_option(state, key - FIRST_KEY, text);
        return ARGP_ERR_UNKNOWN;
    }
}

/* One argp option per row; the help shows the default. */
static crl_status make_options(struct argp_option *out, const crl_command *command,
                               crl_arena *arena) {
    int row = 0;
    for (; command->options && command->options[row].name; row++) {
        CRL_ASSERT(row < MAX_ROWS);
        const crl_option *option = &command->options[row];
        struct argp_option *o = &out[row];
        *o =
            (struct argp_option){.name = option->name, .key = FIRST_KEY + row, .doc = option->help};
        const bool flag = option->type == &crl_option_bool;
        if (!flag) {
            char *kind = NULL;
            CRL_TRY(crl_arena_alloc(arena, &kind, strlen(option->type->name) + 1, 1));
            for (size_t i = 0; option->type->name[i]; i++) {
                const char c = option->type->name[i];
                kind[i] = c >= 'a' && c <= 'z' ? (char)(c - 'a' + 'A') : c;
            }
            o->arg = kind;
            if (option->value && option->value[0])
                CRL_TRY(crl_arena_format(arena, &o->doc, "%s (default %s)", option->help,
                                         option->value));
        }
    }
    out[row] = (struct argp_option){
        .name = "help", .key = HELP_KEY, .doc = "print this help and end", .group = -1};
    return CRL_STATUS_OK;
}

static crl_status prepare(parse_state *state, struct argp_option *options, int argc,
                          const char **out_doc) {
    crl_cli_args *args = state->args;
    CRL_TRY(
        crl_arena_alloc(&args->arena, &args->argument, (size_t)argc + 1, sizeof *args->argument));
    CRL_TRY(crl_arena_alloc(&args->arena, &state->options, 1, state->command->options_bytes + 1));
    args->options = state->options;
    if (state->command->options)
        CRL_TRY(crl_option_defaults(state->command->options, &args->arena, state->options));
    snprintf(state->name, sizeof state->name, "%s %s", state->cli->program, state->command->name);
    CRL_TRY(make_options(options, state->command, &args->arena));
    return crl_arena_format(&args->arena, out_doc, "%s%s%s", state->command->help,
                            state->command->more ? "\v" : "",
                            state->command->more ? state->command->more : "");
}

bool crl_cli_parse(const crl_cli *cli, const crl_command *command, int argc, char **argv,
                   crl_cli_args *args) {
    parse_state state = {.cli = cli, .command = command, .args = args};
    struct argp_option options[MAX_ROWS + 2] = {{0}};
    const char *doc = NULL;
    if (prepare(&state, options, argc, &doc) != CRL_STATUS_OK) {
        crl_cli_report_failure(cli);
        return false;
    }
    /* argp wants the program's name in front. */
    char **words = NULL;
    if (crl_arena_alloc(&args->arena, &words, (size_t)argc + 2, sizeof *words) != CRL_STATUS_OK) {
        crl_cli_report_failure(cli);
        return false;
    }
    words[0] = (char *)(uintptr_t)cli->program;
    for (int i = 0; i < argc; i++)
        words[i + 1] = argv[i];
    const struct argp argp = {
        .options = options, .parser = parse_one, .args_doc = command->arguments, .doc = doc};
    const unsigned flags = ARGP_NO_HELP | (cli->rank > 0 ? ARGP_NO_ERRS : 0);
    if (argp_parse(&argp, argc + 1, words, flags, NULL, &state) == 0)
        return true;
    args->exit_code = CRL_EXIT_USAGE;
    return false;
}
