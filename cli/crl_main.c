/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The command line: finds the command, has its words parsed, runs it, and turns a failure into
 * lines on stderr and an exit code (0 ok, 1 failure, 2 usage). Knows no command by name.
 */
#include "cli/cli_internal.h"

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define CRL_TEXT_OF(x) #x
#define CRL_TEXT(x)    CRL_TEXT_OF(x)

/* Number of words of `name` that argv begins with; 0 unless all of them are there. */
static int match(const char *name, int argc, char **argv) {
    int words = 0;
    for (const char *word = name; word; words++) {
        const char *end = strchrnul(word, ' ');
        const size_t length = (size_t)(end - word);
        if (words >= argc || strlen(argv[words]) != length ||
            strncmp(argv[words], word, length) != 0)
            return 0;
        word = *end ? end + 1 : NULL;
    }
    return words;
}

/* Is `word` the first of a command's two? */
static bool is_family(const char *word) {
    const size_t length = strlen(word);
    for (int i = 0; crl_commands[i]; i++) {
        const crl_command *command = crl_commands[i];
        if (strncmp(command->name, word, length) == 0 && command->name[length] == ' ')
            return true;
    }
    return false;
}

/* The commands, or those of one family. */
static void print_commands(const char *family) {
    const size_t length = family ? strlen(family) : 0;
    for (int i = 0; crl_commands[i]; i++) {
        const crl_command *command = crl_commands[i];
        if (!family ||
            (strncmp(command->name, family, length) == 0 && command->name[length] == ' '))
            printf("  %-17s %s\n", command->name, command->help);
    }
}

static void print_help(const crl_cli *cli) {
    printf("Usage: %s COMMAND [ARGUMENT...]\n", cli->program);
    printf(
        "Trains any layer graph in any parallel layout; the layout never changes the numbers.\n");
    if (cli->model)
        printf("Model of this program: %s%s%s\n", cli->model->name, cli->model->help ? ": " : "",
               cli->model->help ? cli->model->help : "");
    printf("\nCommands:\n");
    print_commands(NULL);
    printf("\n`%s COMMAND --help` explains one; `%s --version` prints the version.\n", cli->program,
           cli->program);
}

static int unknown_command(const crl_cli *cli, int argc, char **argv) {
    char given[256];
    const bool family = is_family(argv[0]);
    if (family && argc > 1)
        snprintf(given, sizeof given, "%s %s", argv[0], argv[1]);
    else
        snprintf(given, sizeof given, "%s", argv[0]);
    size_t count = 0;
    const char *names[64];
    while (crl_commands[count] && count < sizeof names / sizeof *names) {
        names[count] = ((const crl_command *)crl_commands[count])->name;
        count++;
    }
    const char *nearest = crl_nearest_name(given, names, count, sizeof *names);
    if (nearest)
        crl_cli_error(cli, "unknown command '%s', did you mean '%s'?", given, nearest);
    else if (family)
        crl_cli_error(cli, "unknown command '%s' (see `%s %s --help`)", given, cli->program,
                      argv[0]);
    else
        crl_cli_error(cli, "unknown command '%s' (see `%s --help`)", given, cli->program);
    return CRL_EXIT_USAGE;
}

static int run_command(const crl_cli *cli, const crl_command *command, int argc, char **argv) {
    crl_cli_args args = {.exit_code = CRL_EXIT_FAILURE};
    int code = CRL_EXIT_OK;
    if (!crl_cli_parse(cli, command, argc, argv, &args)) {
        code = args.exit_code;
    } else if (command->run(cli, &args) != CRL_STATUS_OK) {
        fflush(stdout);
        crl_cli_report_failure(cli);
        code = args.exit_code;
    } else if (fflush(stdout) != 0 || ferror(stdout)) {
        crl_cli_error(cli, "standard output: write failed");
        code = CRL_EXIT_FAILURE;
    }
    crl_arena_fini(&args.arena);
    return code;
}

static int dispatch(const crl_cli *cli, int argc, char **argv) {
    char help[] = "--help";
    if (argc == 0) {
        crl_cli_error(cli, "no command given (see `%s --help`)", cli->program);
        return CRL_EXIT_USAGE;
    }
    /* `help train` is `train --help`, in the caller's own words turned round. */
    if (strcmp(argv[0], "help") == 0 && argc > 1) {
        char *turned[] = {argv[1], argc > 2 ? argv[2] : help, help, NULL};
        return dispatch(cli, argc > 2 ? 3 : 2, turned);
    }
    if (strcmp(argv[0], "--help") == 0 || strcmp(argv[0], "-?") == 0 ||
        strcmp(argv[0], "help") == 0) {
        print_help(cli);
        return CRL_EXIT_OK;
    }
    if (strcmp(argv[0], "--version") == 0) {
        printf("carole %s\n", CRL_TEXT(CRL_VERSION));
        return CRL_EXIT_OK;
    }
    for (int i = 0; crl_commands[i]; i++) {
        const crl_command *command = crl_commands[i];
        const int words = match(command->name, argc, argv);
        if (words > 0)
            return run_command(cli, command, argc - words, argv + words);
    }
    if (is_family(argv[0]) && (argc == 1 || strcmp(argv[1], "--help") == 0)) {
        if (argc == 1) {
            crl_cli_error(cli, "'%s' needs a second word (see `%s %s --help`)", argv[0],
                          cli->program, argv[0]);
            return CRL_EXIT_USAGE;
        }
        printf("Usage: %s %s COMMAND [ARGUMENT...]\n\n", cli->program, argv[0]);
        print_commands(argv[0]);
        return CRL_EXIT_OK;
    }
    return unknown_command(cli, argc, argv);
}

/* A caller may have closed the standard descriptors: the next file to be opened, a log or a
 * checkpoint, would take their numbers and get what is meant for the terminal. Held open so that
 * writing fails. */
static bool hold_standard_descriptors(void) {
    int held;
    do {
        held = open("/dev/null", O_RDONLY);
    } while (held >= 0 && held <= STDERR_FILENO);
    return held >= 0 && close(held) == 0;
}

int crl_main_with(int argc, char **argv, const crl_model_def *model,
                  const crl_registries *registries) {
    crl_cli cli = {.program = "carole",
                   .model = model,
                   .registries = registries,
                   .ranks = 1,
                   .argc = argc,
                   .argv = argv};
    if (argc > 0 && argv[0]) {
        const char *slash = strrchr(argv[0], '/');
        cli.program = slash ? slash + 1 : argv[0];
    }
    if (!hold_standard_descriptors())
        return CRL_EXIT_FAILURE;
    crl_cli_find_job(&cli);
    /* One voice per job: rank 0 prints results, whoever fails prints why. */
    if (cli.rank > 0 && !freopen("/dev/null", "w", stdout))
        return CRL_EXIT_FAILURE;
    return dispatch(&cli, argc > 0 ? argc - 1 : 0, argv + (argc > 0 ? 1 : 0));
}

int crl_main(int argc, char **argv, const crl_model_def *model) {
    return crl_main_with(argc, argv, model, crl_builtins());
}
