/* SPDX-License-Identifier: Apache-2.0 */
/*
 * `carole profile`: what the layers of a config's model cost, counted or measured on this machine,
 * as a table and as the files that `carole plan` reads.
 */
#include "cli/cli_internal.h"
#include "cli/sizes_internal.h"

#include <stdlib.h>
#include <string.h>

#include "engine/base/alloc.h"
#include "engine/base/file.h"
#include "engine/base/thread.h"
#include "engine/run/counted.h"
#include "engine/run/machine.h"
#include "engine/run/profile.h"
#include "engine/run/profile_file.h"

typedef struct profile_options {
    crl_text_list sets, micro_batches;
    int64_t ranks;
    const char *out, *machine_out, *machine, *transport;
    bool counted;
} profile_options;

#define OPTION(name, value, help, type, field, min, max)                                           \
    { name, value, help, &type, offsetof(profile_options, field), min, max, NULL }
static const crl_option options[] = {
    CRL_CLI_SET_ROW(profile_options, sets),
    OPTION("ranks", "0",
           "measure with so many ranks at work at the same time; 0: as many as the config has, at "
           "most a core each",
           crl_option_int, ranks, 0, 1024),
    OPTION("micro-batches", "", "sizes, e.g. 1,2,4; the config's if none is given", crl_option_list,
           micro_batches, 0, 0),
    OPTION("out", "", "write the profile to this file", crl_option_text, out, 0, 0),
    OPTION("machine-out", "", "write to this file what the ranks and their links were like",
           crl_option_text, machine_out, 0, 0),
    OPTION("counted", "false", "count arithmetic and traffic instead of measuring", crl_option_bool,
           counted, 0, 0),
    OPTION("machine", "", "with --counted: the machine that is counted for (a file)",
           crl_option_text, machine, 0, 0),
    OPTION("transport", "", "local (ranks are threads) or mpi; the same as comm.transport",
           crl_option_text, transport, 0, 0),
    {0}};

/* One run of the command. */
typedef struct profile_run {
    const crl_cli *cli;
    const profile_options *options;
    crl_settings *settings;
    int ranks;
    crl_cli_sizes sizes;
    crl_profile *profile[CRL_CLI_MOST_SIZES]; /* (sizes) */
    crl_machine_file machine_file;
    crl_machine machine; /* counted for, or measured */
} profile_run;

/* The config with a layout in which every rank is a replica: the ranks are to work at the same
 * time. Becomes mpirun where that is needed. */
static crl_status load_side_by_side(profile_run *r, crl_cli_args *args) {
    static const char *const alone[] = {
        "parallel.layout=given",   "parallel.pipeline=1",     "parallel.virtual_stages=1",
        "parallel.replicas=",      "parallel.recompute=none", "parallel.partitioner=balance",
        "parallel.cuts=",          "parallel.group=0",        "parallel.schedule=1f1b",
        "parallel.memory_limit=0", "numerics.lanes=0"};
    const crl_option row = {.name = "set"};
    char data[64];
    crl_cli_launch launch = {
        .sets = r->options->sets, .transport = r->options->transport, .resume = ""};
    for (size_t i = 0; i < sizeof alone / sizeof alone[0]; i++)
        CRL_TRY(crl_cli_option_repeated.parse(&row, alone[i], &args->arena, &launch.sets));
    snprintf(data, sizeof data, "parallel.data=%d", r->ranks);
    CRL_TRY(crl_cli_option_repeated.parse(&row, data, &args->arena, &launch.sets));
    crl_settings_destroy(r->settings);
    r->settings = NULL;
    return crl_cli_load(&r->settings, r->cli, args, &launch);
}

static int default_ranks(const profile_run *r) {
    int64_t ranks = 0;
    for (int p = 0; p < r->settings->parallel.pipeline; p++)
        ranks += crl_settings_width(r->settings, p);
    return ranks < crl_cpu_count() ? (int)ranks : crl_cpu_count();
}

static crl_status check_options(const profile_run *r, crl_cli_args *args) {
    const profile_options *o = r->options;
    args->exit_code = CRL_EXIT_USAGE;
    if (o->machine[0] && !o->counted)
        return CRL_FAIL(INVALID, "--machine: is for --counted; measuring is for this machine");
    if (o->counted && (o->machine_out[0] || o->ranks > 0 || o->transport[0]))
        return CRL_FAIL(INVALID, "--counted: nothing is measured, so --%s means nothing",
                        o->machine_out[0] ? "machine-out"
                        : o->ranks > 0    ? "ranks"
                                          : "transport");
    args->exit_code = CRL_EXIT_FAILURE;
    return CRL_STATUS_OK;
}

static crl_status prepare(profile_run *r, crl_cli_args *args) {
    const profile_options *o = r->options;
    CRL_TRY(check_options(r, args));
    CRL_TRY(crl_cli_settings(&r->settings, r->cli, args, &o->sets));
    r->ranks = o->ranks > 0 ? (int)o->ranks : default_ranks(r);
    if (!o->counted)
        CRL_TRY(load_side_by_side(r, args));
    args->exit_code = CRL_EXIT_USAGE;
    CRL_TRY(crl_cli_sizes_take(&r->sizes, &o->micro_batches));
    if (r->sizes.count == 0)
        r->sizes.item[r->sizes.count++] = r->settings->train.micro_batch;
    r->machine = *crl_counted_nominal();
    if (o->machine[0]) {
        CRL_TRY(crl_machine_file_read(&r->machine_file, o->machine, NULL, 0));
        r->machine = r->machine_file.machine;
    }
    args->exit_code = CRL_EXIT_FAILURE;
    return CRL_STATUS_OK;
}

static crl_status measure(profile_run *r, int index, const crl_settings *settings) {
    const crl_measure_config config = {
        .settings = settings, .registries = r->cli->registries, .ranks = r->ranks, .split = true};
    crl_measured measured = {0};
    CRL_TRY(crl_measure(&measured, &config));
    r->machine = crl_measured_machine(&measured, "measured");
    const crl_status status =
        crl_measured_profile(&r->profile[index], &measured, settings, r->cli->registries);
    crl_measured_fini(&measured);
    return status;
}

/* Profile number `index`; the machine is that of the largest micro-batch. */
static crl_status make_one(profile_run *r, int index) {
    crl_settings settings = *r->settings;
    const int64_t size = r->sizes.item[index];
    settings.train.micro_batch = settings.train.evaluate_batch = size;
    return r->options->counted
               ? crl_cli_count_profile(&r->profile[index], r->cli, &settings, &r->machine, size)
               : measure(r, index, &settings);
}

static void print_row(const char *name, const crl_profile_unit *u) {
    char text[6][32];
    printf("%-20s  %9s  %9s  %9s  %9s  %10s  %10s\n", name,
           crl_units_seconds(text[0], u->forward_s), crl_units_seconds(text[1], u->input_s),
           crl_units_seconds(text[2], u->weight_s), crl_units_seconds(text[3], u->update_s),
           crl_units_bytes(text[4], u->kept_bytes[CRL_RECOMPUTE_NONE]),
           crl_units_bytes(text[5], u->parameter_bytes));
}

static void print_table(const crl_profile *profile) {
    crl_profile_unit sum = {0};
    printf("micro-batches of %lld: %s\n", (long long)profile->micro_batch, profile->source);
    printf("%-20s  %9s  %9s  %9s  %9s  %10s  %10s\n", "layer", "forward", "input", "weight",
           "update", "kept", "parameters");
    for (int u = 0; u < profile->units; u++) {
        print_row(profile->unit[u].name, &profile->unit[u]);
        for (const crl_profile_number *n = crl_profile_numbers; n->name; n++) {
            double *at = (double *)(void *)((char *)&sum + n->offset);
            *at += *(const double *)(const void *)((const char *)&profile->unit[u] + n->offset);
        }
    }
    print_row("all", &sum);
    printf("\n");
}

static void print_machine(const profile_run *r) {
    const crl_machine *m = &r->machine;
    char latency[32], message[32];
    if (r->options->counted || r->ranks < 2)
        return;
    printf("links (%s): %s and %.2f GB/s; a rank itself spends %s on either end of a message\n",
           r->settings->comm.transport, crl_units_seconds(latency, m->within.latency_s),
           m->within.bytes_per_s * 1e-9, crl_units_seconds(message, m->message_s));
}

/* `what` (0 profile, 1 machine) to a file: all of it or nothing. */
static crl_status write_file(const profile_run *r, const char *path, int what) {
    crl_status status = CRL_STATUS_OK;
    char *text = NULL;
    size_t bytes = 0;
    FILE *stream = open_memstream(&text, &bytes);
    if (!stream)
        return CRL_FAIL(NOMEM, "%s: no memory to write it", path);
    if (what == 0)
        status =
            crl_profile_file_write((const crl_profile *const *)r->profile, r->sizes.count, stream);
    else
        crl_machine_file_write(&r->machine, stream);
    const bool failed = fclose(stream) != 0;
    if (status == CRL_STATUS_OK)
        status = failed ? CRL_FAIL(NOMEM, "%s: no memory to write it", path)
                        : crl_file_write_atomic(path, text, bytes);
    free(text);
    return status;
}

static crl_status show(const profile_run *r) {
    if (r->cli->rank > 0) /* of an MPI job: all have the same */
        return CRL_STATUS_OK;
    if (r->options->out[0])
        CRL_TRY(write_file(r, r->options->out, 0));
    if (r->options->machine_out[0])
        CRL_TRY(write_file(r, r->options->machine_out, 1));
    for (int i = 0; i < r->sizes.count; i++)
        print_table(r->profile[i]);
    print_machine(r);
    return CRL_STATUS_OK;
}

static crl_status run(const crl_cli *cli, crl_cli_args *args) {
    crl_status status = CRL_STATUS_OK;
    profile_run r = {.cli = cli, .options = args->options};
    CRL_TRY_OUT(prepare(&r, args));
    for (int i = 0; i < r.sizes.count; i++)
        CRL_TRY_OUT(make_one(&r, i));
    CRL_TRY_OUT(show(&r));
out:
    for (int i = 0; i < r.sizes.count; i++)
        crl_profile_destroy(r.profile[i]);
    if (r.machine_file.machine.name)
        crl_machine_file_fini(&r.machine_file);
    crl_settings_destroy(r.settings);
    return status;
}

const crl_command crl_command_profile = {
    .name = "profile",
    .help = "measure what the layers of a config's model cost, for the planner",
    .arguments = "CONFIG",
    .min_arguments = 1,
    .max_arguments = 1,
    .options = options,
    .options_bytes = sizeof(profile_options),
    .run = run,
};
