/* SPDX-License-Identifier: Apache-2.0 */
/*
 * `carole simulate`: what a schedule, or a user's own in a CSV file, would take: in numbers, as a
 * grid, as a picture, as a trace.
 */
#include "cli/cli_internal.h"
#include "cli/costs_internal.h"

#include <errno.h>
#include <string.h>

#include "engine/base/alloc.h"
#include "engine/base/file.h"
#include "engine/base/registry.h"
#include "engine/ir/schedule.h"
#include "engine/ir/timeline.h"

enum { GRID_COLUMNS = 160, MOST_LINES = 64 };
static const size_t csv_limit_bytes = (size_t)256 << 20;

typedef struct simulate_options {
    const char *schedule, *svg, *trace;
    int64_t stages, positions, micro_batches, virtual_stages;
    double memory_limit;
    crl_cli_costs costs;
    bool grid, critical_path;
} simulate_options;

static const crl_option table[] = {
    {"schedule", "", "a schedule by name, in place of FILE.csv", &crl_option_text,
     offsetof(simulate_options, schedule), 0, 0, NULL},
    {"stages", "0", "its number of stages", &crl_option_int, offsetof(simulate_options, stages), 0,
     65535, NULL},
    {"positions", "0", "or its number of pipeline positions", &crl_option_int,
     offsetof(simulate_options, positions), 0, 65535, NULL},
    {"micro-batches", "0", "its number of micro-batches", &crl_option_int,
     offsetof(simulate_options, micro_batches), 0, 65535, NULL},
    {"virtual", "0", "stages per pipeline position; 0: the least that the schedule serves",
     &crl_option_int, offsetof(simulate_options, virtual_stages), 0, 4096, NULL},
    CRL_CLI_COST_ROW(simulate_options, memory_limit, "memory-limit", "0",
                     "of a position, for schedules that obey one; 0: their own", double),
    CRL_CLI_COST_ROWS(simulate_options, costs),
    {"grid", "false", "draw the schedule", &crl_option_bool, offsetof(simulate_options, grid), 0, 0,
     NULL},
    {"critical-path", "false", "list the actions that the makespan is made of", &crl_option_bool,
     offsetof(simulate_options, critical_path), 0, 0, NULL},
    {"svg", "", "write the timeline to this file, as a picture", &crl_option_text,
     offsetof(simulate_options, svg), 0, 0, NULL},
    {"trace", "", "write it to this file, for ui.perfetto.dev", &crl_option_text,
     offsetof(simulate_options, trace), 0, 0, NULL},
    {0}};

/* Positions and stages: one of them is given, the other follows. */
static crl_status read_sizes(crl_schedule_request *out, const crl_schedule *schedule,
                             const simulate_options *o) {
    const int64_t width = o->virtual_stages > 0 ? o->virtual_stages : schedule->least_virtual;
    if ((o->stages == 0) == (o->positions == 0))
        return CRL_FAIL(INVALID, o->stages == 0
                                     ? "simulate: --stages is missing"
                                     : "simulate: both --stages and --positions are given");
    if (o->micro_batches == 0)
        return CRL_FAIL(INVALID, "simulate: --micro-batches is missing");
    if (o->stages % width != 0)
        return CRL_FAIL(INVALID, "--stages is %lld, expected a multiple of --virtual, %lld",
                        (long long)o->stages, (long long)width);
    if (o->positions * width > 65535)
        return CRL_FAIL(INVALID,
                        "--positions is %lld, with %lld stages each expected at most 65535",
                        (long long)o->positions, (long long)width);
    *out = (crl_schedule_request){.positions = (int)(o->stages ? o->stages / width : o->positions),
                                  .stages = (int)(o->stages ? o->stages : o->positions * width),
                                  .micro_batches = (int)o->micro_batches,
                                  .message_s = crl_cli_message_s(&o->costs),
                                  .memory_limit_bytes = o->memory_limit};
    return CRL_STATUS_OK;
}

static crl_status build_named(crl_program **out, const simulate_options *o, const crl_cli *cli,
                              crl_arena *arena) {
    const void *found = NULL;
    crl_schedule_request request;
    crl_stage_cost *cost = NULL;
    CRL_TRY(crl_registry_find(&found, cli->registries->schedules, "schedule", o->schedule));
    const crl_schedule *schedule = found;
    CRL_TRY(read_sizes(&request, schedule, o));
    CRL_TRY(crl_cli_stage_costs(&cost, &o->costs, request.stages, arena));
    request.cost = cost;
    return schedule->build(out, &request);
}

static crl_status read_program(crl_program **out, const char *path) {
    char *text = NULL;
    size_t bytes = 0;
    CRL_TRY(crl_file_read(&text, &bytes, path, csv_limit_bytes));
    const crl_status status = crl_program_parse(out, path, text, bytes);
    crl_free(text);
    return status;
}

static crl_status load(crl_program **out, const char **title, const crl_cli *cli,
                       crl_cli_args *args) {
    const simulate_options *o = args->options;
    const bool named = o->schedule[0] != '\0';
    args->exit_code = CRL_EXIT_USAGE;
    if (named == (args->arguments > 0))
        return CRL_FAIL(INVALID, named ? "simulate: both FILE.csv and --schedule are given"
                                       : "simulate: FILE.csv or --schedule is missing");
    if (named) {
        *title = o->schedule;
        return build_named(out, o, cli, &args->arena);
    }
    const char *slash = strrchr(args->argument[0], '/');
    *title = slash ? slash + 1 : args->argument[0];
    args->exit_code = CRL_EXIT_FAILURE;
    return read_program(out, args->argument[0]);
}

/* Positions to be listed of many: the first and the last. */
static bool is_listed(int position, int positions) {
    return positions <= MOST_LINES || position < MOST_LINES / 2 ||
           position >= positions - MOST_LINES / 2;
}

static void print_positions(const crl_program *program, const crl_simulation *times) {
    printf("\nposition       busy          F          I          W   messages"
           "   waits: input    message       send      after   peak memory  micro-batches\n");
    for (int p = 0; p < program->positions; p++) {
        const crl_position_times *t = &times->position[p];
        if (!is_listed(p, program->positions)) {
            if (is_listed(p - 1, program->positions))
                printf("     ...\n");
            continue;
        }
        printf("%8d %10.6g %10.6g %10.6g %10.6g %10.6g %14.6g %10.6g %10.6g %10.6g %13.6g %14d\n",
               p, times->busy_s[p], t->forward_s, t->input_s, t->weight_s, t->message_s,
               t->wait_input_s, t->wait_message_s, t->wait_send_s, t->after_s, t->peak_bytes,
               t->peak_activations);
    }
}

static const char kind_letter[] = {'F', 'B', 'I', 'W'};

static const crl_action *action_of(const crl_program *program, const crl_path_step *step) {
    return &program->position[step->position].action[step->index];
}

static void print_path_summary(const crl_program *program, const crl_simulation *times) {
    double spent_s[4] = {0}, computing_s = 0;
    for (int i = 0; i < times->path_steps; i++) {
        const crl_path_step *step = &times->path[i];
        spent_s[action_of(program, step)->kind] += step->end_s - step->start_s;
        computing_s += step->end_s - step->start_s;
    }
    printf("\ncritical path: %d actions,", times->path_steps);
    for (int kind = 0; kind < 4; kind++)
        if (spent_s[kind] > 0)
            printf(" %c %.6g,", kind_letter[kind], spent_s[kind]);
    printf(" messages %.6g\n", times->makespan_s - computing_s);
}

static void print_path(const crl_program *program, const crl_simulation *times) {
    printf("     start        end  position  action\n");
    for (int i = 0; i < times->path_steps; i++) {
        const crl_path_step *step = &times->path[i];
        const crl_action *action = action_of(program, step);
        printf("%10.6g %10.6g %9d  %d%c%d\n", step->start_s, step->end_s, step->position,
               action->stage, kind_letter[action->kind], action->micro_batch);
    }
}

static crl_status write_file(const char *path, const crl_timeline *timeline,
                             crl_status (*writer)(const crl_timeline *, FILE *)) {
    FILE *out = fopen(path, "we");
    if (!out)
        return CRL_FAIL(IO, "%s: %s", path, strerror(errno));
    crl_status status = writer(timeline, out);
    const bool bad = ferror(out) != 0;
    if ((fclose(out) != 0 || bad) && status == CRL_STATUS_OK)
        status = CRL_FAIL(IO, "%s: write failed", path);
    return status;
}

static crl_status show(const simulate_options *o, const crl_timeline *line) {
    const crl_program *program = line->program;
    const crl_simulation *times = line->times;
    printf("%s: %d positions, %d stages, %d micro-batches, %lld messages\n", line->title,
           program->positions, program->stages, program->micro_batches, (long long)times->messages);
    printf("makespan %.10g, bubble %.1f %%, longest position %.10g\n", times->makespan_s,
           100 * times->bubble, times->span_s);
    print_positions(program, times);
    print_path_summary(program, times);
    if (o->critical_path)
        print_path(program, times);
    if (o->grid) {
        printf("\n");
        CRL_TRY(crl_program_print_grid(program, line->config, NULL, GRID_COLUMNS, stdout));
    }
    if (o->svg[0])
        CRL_TRY(write_file(o->svg, line, crl_timeline_write_svg));
    return o->trace[0] ? write_file(o->trace, line, crl_timeline_write_trace) : CRL_STATUS_OK;
}

static crl_status run(const crl_cli *cli, crl_cli_args *args) {
    const simulate_options *o = args->options;
    crl_status status = CRL_STATUS_OK;
    crl_program *program = NULL;
    crl_simulation *times = NULL;
    crl_stage_cost *stage = NULL;
    crl_simulation_config config = {0};
    const char *title = NULL;
    CRL_TRY_OUT(load(&program, &title, cli, args));
    args->exit_code = CRL_EXIT_USAGE;
    CRL_TRY_OUT(crl_cli_stage_costs(&stage, &o->costs, program->stages, &args->arena));
    CRL_TRY_OUT(
        crl_cli_simulation_config(&config, &o->costs, stage, program->positions, &args->arena));
    args->exit_code = CRL_EXIT_FAILURE;
    CRL_TRY_OUT(crl_simulate(&times, program, &config));
    const crl_timeline line = {
        .title = title, .program = program, .config = &config, .times = times};
    CRL_TRY_OUT(show(o, &line));
out:
    crl_simulation_destroy(times);
    crl_program_destroy(program);
    return status;
}

const crl_command crl_command_simulate = {
    .name = "simulate",
    .help = "time a schedule: makespan, bubble, waiting, memory, critical path, pictures",
    .arguments = "[FILE.csv]",
    .min_arguments = 0,
    .max_arguments = 1,
    .more = crl_cli_costs_more,
    .options = table,
    .options_bytes = sizeof(simulate_options),
    .run = run,
};
