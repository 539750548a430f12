/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How the process was started and how it has to be: alone with ranks as threads, or as one of the
 * processes of an MPI job. Becomes mpirun when the settings ask for MPI and nobody has started it.
 * The one place that reads the environment.
 */
#include "cli/cli_internal.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "engine/base/registry.h"

extern char **environ;

static int environment_int(const char *name, int otherwise) {
    const char *text = getenv(name);
    if (!text || !*text)
        return otherwise;
    char *end = NULL;
    const long value = strtol(text, &end, 10);
    return *end || value < 0 || value > 1000000 ? otherwise : (int)value;
}

void crl_cli_find_job(crl_cli *cli) {
    cli->rank = environment_int("OMPI_COMM_WORLD_RANK", 0);
    cli->ranks = environment_int("OMPI_COMM_WORLD_SIZE", 0);
    if (cli->ranks == 0 && getenv("PMIX_RANK")) { /* srun --mpi=pmix */
        cli->rank = environment_int("PMIX_RANK", 0);
        cli->ranks = environment_int("SLURM_NTASKS", 0);
    }
    if (cli->ranks < 1 || cli->rank >= cli->ranks) {
        cli->rank = 0;
        cli->ranks = 1;
    }
}

static bool user_tuned_mpi(void) {
    for (char **variable = environ; *variable; variable++)
        if (strncmp(*variable, "OMPI_MCA_", 9) == 0)
            return true;
    return false;
}

/* Returns only when it fails. */
static crl_status become_mpirun(const crl_cli *cli, crl_cli_args *args, int ranks) {
    char self[4096];
    const ssize_t length = readlink("/proc/self/exe", self, sizeof self - 1);
    if (length < 0)
        return CRL_FAIL(IO, "/proc/self/exe: %s", strerror(errno));
    self[length] = '\0';
    char number[16];
    snprintf(number, sizeof number, "%d", ranks);
    /* --oversubscribe only permits more ranks than cores; threads are set by carole, not by
     * binding. */
    const char *const always[] = {"mpirun", "--oversubscribe", "--bind-to", "none", "-n", number};
    const char *const untuned[] = {"--mca", "pml", "ob1", "--mca", "btl", "self,vader,tcp"};
    enum { ALWAYS = 6, UNTUNED = 6 };
    const char **word = NULL;
    CRL_TRY(crl_arena_alloc(&args->arena, &word, (size_t)cli->argc + ALWAYS + UNTUNED + 2,
                            sizeof *word));
    int words = 0;
    for (int i = 0; i < ALWAYS; i++)
        word[words++] = always[i];
    for (int i = 0; i < UNTUNED && !user_tuned_mpi(); i++)
        word[words++] = untuned[i];
    word[words++] = self;
    for (int i = 1; i < cli->argc; i++)
        word[words++] = cli->argv[i];
    if (geteuid() == 0) { /* containers */
        setenv("OMPI_ALLOW_RUN_AS_ROOT", "1", 1);
        setenv("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1", 1);
    }
    fflush(stdout);
    execvp("mpirun", (char **)(uintptr_t)word);
    return errno == ENOENT
               ? CRL_FAIL(NOT_FOUND, "mpirun was not found: install it (Debian: openmpi-bin), or "
                                     "use --transport local")
               : CRL_FAIL(IO, "mpirun: %s", strerror(errno));
}

static crl_status add_set(crl_arena *arena, crl_text_list *sets, const char *key,
                          const char *value) {
    const char *text = NULL;
    CRL_TRY(crl_arena_format(arena, &text, "%s=%s", key, value));
    const crl_option row = {.name = "set"};
    return crl_cli_option_repeated.parse(&row, text, arena, sets);
}

static bool sets_transport(const crl_text_list *sets) {
    for (int i = 0; i < sets->count; i++)
        if (strncmp(sets->item[i], "comm.transport=", 15) == 0)
            return true;
    return false;
}

static bool has_mpi(const crl_cli *cli) {
    for (int i = 0; cli->registries->transports[i]; i++)
        if (strcmp(((const crl_plugin *)cli->registries->transports[i])->name, "mpi") == 0)
            return true;
    return false;
}

static const char *widths_keys(const crl_settings *settings) {
    return settings->parallel.widths ? "parallel.replicas" : "parallel.pipeline x parallel.data";
}

static crl_status check_start(const crl_cli *cli, const crl_settings *settings, int64_t np) {
    char text[CRL_CLI_WIDTHS_BYTES];
    const int64_t needed = crl_settings_ranks(settings);
    if (cli->ranks > 1 && strcmp(settings->comm.transport, "mpi") != 0)
        return CRL_FAIL(INVALID,
                        "transport '%s' runs all ranks in one process, but this is one of %d that "
                        "mpirun started: leave out mpirun, or the transport",
                        settings->comm.transport, cli->ranks);
    if (cli->ranks > 1 && cli->ranks != needed)
        return CRL_FAIL(INVALID, "layout needs %s = %lld ranks (%s), mpirun started %d",
                        crl_cli_widths(text, settings), (long long)needed, widths_keys(settings),
                        cli->ranks);
    if (np > 0 && np != needed)
        return CRL_FAIL(INVALID, "--np is %lld, but the layout needs %s = %lld ranks (%s)",
                        (long long)np, crl_cli_widths(text, settings), (long long)needed,
                        widths_keys(settings));
    return CRL_STATUS_OK;
}

crl_status crl_cli_settings(crl_settings **out, const crl_cli *cli, crl_cli_args *args,
                            const crl_text_list *sets) {
    const int otherwise = args->exit_code;
    args->exit_code = CRL_EXIT_USAGE;
    CRL_TRY(crl_settings_load(out, cli->registries, cli->model, args->argument[0], sets->item,
                              sets->count));
    args->exit_code = otherwise;
    return CRL_STATUS_OK;
}

/* A user's own schedule that is broken is shown, with the action that is wrong marked; what is
 * wrong is said by the failure that follows. */
static crl_status show_broken_schedule(const crl_cli *cli, const char *path) {
    crl_program *program = NULL;
    crl_check_report report;
    enum { COLUMNS = 160 };
    CRL_TRY(crl_layout_read_schedule(&program, path));
    crl_status status = crl_program_try_check(program, &report);
    if (status == CRL_STATUS_OK && report.verdict != CRL_VERDICT_VALID && cli->rank == 0)
        status = crl_program_print_grid(program, NULL, &report, COLUMNS, stderr);
    crl_program_destroy(program);
    return status;
}

crl_status crl_cli_layout(crl_layout **out, const crl_cli *cli, crl_cli_args *args,
                          const crl_settings *settings, const double *node_s) {
    const int otherwise = args->exit_code;
    crl_status status = CRL_STATUS_OK;
    crl_layout *layout = NULL;
    crl_program *program = NULL;
    if (crl_layout_is_file(settings->parallel.schedule))
        CRL_TRY_OUT(show_broken_schedule(cli, settings->parallel.schedule));
    CRL_TRY_OUT(crl_layout_create(&layout, settings, cli->registries, node_s));
    CRL_TRY_OUT(crl_layout_program(&program, layout, layout->plan,
                                   crl_layout_busy_pipeline(layout), false));
    *out = layout;
    layout = NULL;
out:
    args->exit_code = status == CRL_STATUS_INVALID ? CRL_EXIT_USAGE : otherwise;
    crl_program_destroy(program);
    crl_layout_destroy(layout);
    return status;
}

/* A layout that cannot be is found before any rank begins. What else may fail here will fail in the
 * run, which says it better. */
static crl_status check_layout(const crl_cli *cli, crl_cli_args *args,
                               const crl_settings *settings) {
    crl_layout *layout = NULL;
    const crl_status status = crl_cli_layout(&layout, cli, args, settings, NULL);
    crl_layout_destroy(layout);
    return status == CRL_STATUS_INVALID ? status : CRL_STATUS_OK;
}

crl_status crl_cli_load(crl_settings **out, const crl_cli *cli, crl_cli_args *args,
                        const crl_cli_launch *launch) {
    crl_text_list sets = launch->sets;
    if (cli->ranks > 1 && !has_mpi(cli))
        return CRL_FAIL(UNSUPPORTED,
                        "mpirun started %d processes, but this build has no MPI "
                        "(`%s info` says how to get it)",
                        cli->ranks, cli->program);
    if (launch->transport[0])
        CRL_TRY(add_set(&args->arena, &sets, "comm.transport", launch->transport));
    else if (cli->ranks > 1 && !sets_transport(&sets))
        CRL_TRY(add_set(&args->arena, &sets, "comm.transport", "mpi"));
    if (launch->resume[0])
        CRL_TRY(add_set(&args->arena, &sets, "run.resume", launch->resume));
    crl_settings *settings = NULL;
    CRL_TRY(crl_cli_settings(&settings, cli, args, &sets));
    args->exit_code = CRL_EXIT_USAGE;
    crl_status status = CRL_STATUS_OK;
    char said[CRL_CLI_CHOICE_BYTES];
    CRL_TRY_OUT(crl_cli_choose_layout(&settings, said, cli, args, &sets, launch->np));
    CRL_TRY_OUT(check_start(cli, settings, launch->np));
    CRL_TRY_OUT(check_layout(cli, args, settings));
    args->exit_code = CRL_EXIT_FAILURE;
    const int64_t ranks = crl_settings_ranks(settings);
    if (cli->ranks == 1 && ranks > 1 && strcmp(settings->comm.transport, "mpi") == 0)
        CRL_TRY_OUT(become_mpirun(cli, args, (int)ranks));
    if (said[0] && !launch->quiet)
        printf("%s\n", said);
    *out = settings;
    settings = NULL;
out:
    crl_settings_destroy(settings);
    return status;
}
