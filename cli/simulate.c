/* SPDX-License-Identifier: Apache-2.0 */
/*
 * `carole simulate`: what a schedule, or a user's own in a CSV file, would take: in numbers, as a
 * grid, as a picture, as a trace.
 */
#include "cli/cli_internal.h"
#include "cli/costs_internal.h"
#include "cli/simulate_internal.h"

#include <errno.h>
#include <string.h>

#include "engine/base/registry.h"
#include "engine/ir/schedule.h"
#include "engine/run/layout.h"

enum { GRID_COLUMNS = 160 };

typedef struct simulate_options {
    const char *schedule, *svg, *trace;
    int64_t stages, positions, micro_batches, virtual_stages, group, send_buffers;
    double memory_limit;
    crl_text_list widths;
    crl_cli_costs costs;
    bool grid, critical_path;
} simulate_options;

static const crl_option table[] = {
    {"schedule", "", "a schedule by name, in place of FILE.csv", &crl_option_text,
     offsetof(simulate_options, schedule), 0, 0, NULL},
    {"stages", "0", "of the schedule; or give --positions", &crl_option_int,
     offsetof(simulate_options, stages), 0, 65535, NULL},
    {"positions", "0", "pipeline positions of the schedule; or give --stages", &crl_option_int,
     offsetof(simulate_options, positions), 0, 65535, NULL},
    {"micro-batches", "0", "of the schedule", &crl_option_int,
     offsetof(simulate_options, micro_batches), 0, 65535, NULL},
    {"virtual", "0", "stages per pipeline position; 0: the least that the schedule serves",
     &crl_option_int, offsetof(simulate_options, virtual_stages), 0, 4096, NULL},
    {"group", "0", "micro-batches that go through a position's stages together; 0: the positions",
     &crl_option_int, offsetof(simulate_options, group), 0, 65535, NULL},
    {"widths", "", "replicas of each position, such as 3,1; empty: one each", &crl_option_list,
     offsetof(simulate_options, widths), 0, 0, NULL},
    CRL_CLI_COST_ROW(simulate_options, memory_limit, "memory-limit", "0",
                     "of a position, for schedules that obey one; 0: their own", double),
    CRL_CLI_COST_ROWS(simulate_options, costs),
    {"send-buffers", "0", "messages of a stage and direction under way at a time; 0: no limit",
     &crl_option_int, offsetof(simulate_options, send_buffers), 0, 65535, NULL},
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
                                     ? "simulate: --stages or --positions is missing"
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
                                  .group = (int)o->group,
                                  .message_s = crl_cli_message_s(&o->costs),
                                  .memory_limit_bytes = o->memory_limit};
    return CRL_STATUS_OK;
}

/* The widths as numbers; *out stays NULL when none are given. */
static crl_status read_widths(int **out, const crl_text_list *list, int positions,
                              crl_arena *arena) {
    static const crl_option row = {.name = "widths", .min = 1, .max = 1024};
    if (list->count == 0)
        return CRL_STATUS_OK;
    if (list->count != positions)
        return CRL_FAIL(INVALID, "--widths: %d numbers, expected one for each of %d positions",
                        list->count, positions);
    CRL_TRY(crl_arena_alloc(arena, out, (size_t)positions, sizeof **out));
    for (int p = 0; p < positions; p++) {
        int64_t width = 0;
        if (crl_option_int.parse(&row, list->item[p], arena, &width) != CRL_STATUS_OK) {
            char why[256];
            snprintf(why, sizeof why, "%.255s", crl_error_message());
            return CRL_FAIL(INVALID, "--widths: %s", why);
        }
        (*out)[p] = (int)width;
    }
    return CRL_STATUS_OK;
}

/* Replicas take equal shares of the micro-batches, in order. */
static crl_status deal(crl_program *program, const int *widths, int **first_row, crl_arena *arena) {
    const int positions = program->positions, micro_batches = program->micro_batches;
    int *first = NULL;
    crl_range *range = NULL;
    CRL_TRY(crl_arena_alloc(arena, &first, (size_t)positions + 1, sizeof *first));
    for (int p = 0; p < positions; p++)
        first[p + 1] = first[p] + widths[p];
    CRL_TRY(crl_arena_alloc(arena, &range, (size_t)first[positions], sizeof *range));
    for (int p = 0; p < positions; p++)
        for (int r = 0; r < widths[p]; r++)
            range[first[p] + r] =
                (crl_range){micro_batches * r / widths[p], micro_batches * (r + 1) / widths[p]};
    *first_row = first;
    return crl_program_deal(program, first, range);
}

static crl_status build_named(crl_program **out, int **first_row, const simulate_options *o,
                              const crl_cli *cli, crl_arena *arena) {
    crl_status status = CRL_STATUS_OK;
    const void *found = NULL;
    crl_schedule_request request;
    crl_stage_cost *cost = NULL;
    crl_program *program = NULL;
    int *widths = NULL;
    CRL_TRY(crl_registry_find(&found, cli->registries->schedules, "schedule", o->schedule));
    const crl_schedule *schedule = found;
    CRL_TRY(read_sizes(&request, schedule, o));
    CRL_TRY(read_widths(&widths, &o->widths, request.positions, arena));
    CRL_TRY(crl_cli_stage_costs(&cost, &o->costs, request.stages, arena));
    request.cost = cost;
    request.widths = widths;
    CRL_TRY(schedule->build(&program, &request));
    if (widths)
        CRL_TRY_OUT(deal(program, widths, first_row, arena));
    *out = program;
    program = NULL;
out:
    crl_program_destroy(program);
    return status;
}

static crl_status load(crl_program **out, int **first_row, const char **title, const crl_cli *cli,
                       crl_cli_args *args) {
    const simulate_options *o = args->options;
    const bool named = o->schedule[0] != '\0';
    args->exit_code = CRL_EXIT_USAGE;
    if (named == (args->arguments > 0))
        return CRL_FAIL(INVALID, named ? "simulate: both FILE.csv and --schedule are given"
                                       : "simulate: FILE.csv or --schedule is missing");
    if (named) {
        *title = o->schedule;
        return build_named(out, first_row, o, cli, &args->arena);
    }
    if (o->stages || o->positions || o->micro_batches || o->virtual_stages || o->widths.count ||
        o->memory_limit > 0)
        return CRL_FAIL(INVALID, "simulate: sizes, widths and memory limit go with --schedule");
    const char *slash = strrchr(args->argument[0], '/');
    *title = slash ? slash + 1 : args->argument[0];
    args->exit_code = CRL_EXIT_FAILURE;
    return crl_layout_read_schedule(out, args->argument[0]);
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

static crl_status show(const simulate_options *o, const crl_timeline *line, const int *first_row) {
    crl_cli_print_simulation(line, first_row, o->critical_path);
    if (o->grid) {
        printf("\n");
        CRL_TRY(crl_program_print_grid(line->program, line->config, NULL, GRID_COLUMNS, stdout));
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
    int *first_row = NULL;
    CRL_TRY_OUT(load(&program, &first_row, &title, cli, args));
    args->exit_code = CRL_EXIT_USAGE;
    CRL_TRY_OUT(crl_cli_stage_costs(&stage, &o->costs, program->stages, &args->arena));
    CRL_TRY_OUT(
        crl_cli_simulation_config(&config, &o->costs, stage, program->positions, &args->arena));
    args->exit_code = CRL_EXIT_FAILURE;
    if (o->send_buffers > 0)
        CRL_TRY_OUT(crl_cli_add_messages(program, stage, (int)o->send_buffers, &args->arena));
    CRL_TRY_OUT(crl_simulate(&times, program, &config));
    const crl_timeline line = {
        .title = title, .program = program, .config = &config, .times = times};
    CRL_TRY_OUT(show(o, &line, first_row));
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
