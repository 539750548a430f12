/* SPDX-License-Identifier: Apache-2.0 */
/*
 * `carole schedule compare`: every registered schedule on the same pipeline, side by side. A
 * schedule with V stages per position gets stages of 1/V of a position's costs, so that all of them
 * do the same work. The schedule of --sweep is also built for a row of memory limits: what it makes
 * of more memory is the curve of the picture. Refuses to say which is best: that depends on the
 * memory there is.
 */
#include "cli/schedule_compare_internal.h"
#include "cli/cli_internal.h"
#include "cli/costs_internal.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "engine/ir/schedule.h"

enum { SWEEP_POINTS = 16, MOST_CURVES = 3 };

typedef struct compare_options {
    const char *svg, *sweep;
    int64_t stages, micro_batches, virtual_stages;
    double memory_limit;
    crl_cli_costs costs;
} compare_options;

static const crl_option table[] = {
    {"stages", NULL, "number of pipeline positions", &crl_option_int,
     offsetof(compare_options, stages), 1, 4096, NULL},
    {"micro-batches", NULL, "number of micro-batches", &crl_option_int,
     offsetof(compare_options, micro_batches), 1, 65535, NULL},
    {"virtual", "0", "stages per position, of schedules that leave a choice; 0: all, or the least",
     &crl_option_int, offsetof(compare_options, virtual_stages), 0, 64, NULL},
    CRL_CLI_COST_ROW(compare_options, memory_limit, "memory-limit", "0",
                     "of a position, for schedules that obey one; 0: their own", double),
    CRL_CLI_COST_ROWS(compare_options, costs),
    {"sweep", "auto", "schedule that the picture shows over memory limits", &crl_option_text,
     offsetof(compare_options, sweep), 0, 0, NULL},
    {"svg", "", "write bubble over memory to this file, as a picture", &crl_option_text,
     offsetof(compare_options, svg), 0, 0, NULL},
    {0}};

/* Stages per position that a schedule is compared with: those asked for as far as it serves them;
 * none asked for: all that it serves, or the least where there is no limit. */
typedef struct range {
    int first, last;
} range;

static range virtual_range(const crl_schedule *schedule, int64_t asked) {
    const int least = schedule->least_virtual, most = schedule->most_virtual;
    if (asked == 0)
        return (range){least, most > 0 ? most : least};
    const int wanted = (int)(most > 0 && asked > most ? most : asked);
    const int each = wanted > least ? wanted : least;
    return (range){each, each};
}

static void measure(crl_comparison_row *row, const crl_program *program,
                    const crl_simulation *times) {
    row->makespan = times->makespan_s;
    row->bubble = times->bubble;
    row->span = times->span_s;
    row->messages = (long long)times->messages;
    row->least_activations = INFINITY;
    for (int p = 0; p < program->positions; p++) {
        const crl_position_times *t = &times->position[p];
        const double held = (double)t->peak_activations / row->virtual_stages;
        row->least_activations = fmin(row->least_activations, held);
        row->most_activations = fmax(row->most_activations, held);
        row->peak_memory = fmax(row->peak_memory, t->peak_bytes);
    }
}

/* Costs of the schedule's stages: of their position's, an equal share. */
static crl_status share_costs(crl_stage_cost **out, const crl_schedule *schedule,
                              const crl_schedule_request *request, const crl_cli_costs *costs,
                              crl_arena *arena) {
    crl_stage_cost *whole = NULL, *stage = NULL;
    const double each = (double)request->stages / request->positions;
    CRL_TRY(crl_cli_stage_costs(&whole, costs, request->positions, arena));
    CRL_TRY(crl_arena_alloc(arena, &stage, (size_t)request->stages, sizeof *stage));
    for (int s = 0; s < request->stages; s++) {
        stage[s] = whole[crl_schedule_position(schedule, request, s)];
        stage[s].forward_s /= each;
        stage[s].input_s /= each;
        stage[s].weight_s /= each;
        stage[s].kept_bytes /= each;
        stage[s].held_bytes /= each;
    }
    *out = stage;
    return CRL_STATUS_OK;
}

/* Builds and times one schedule under one memory limit; what it refuses is said in the row. */
static crl_status fill_row(crl_comparison_row *row, const crl_schedule *schedule, int each,
                           const compare_options *o, double limit, crl_arena *arena) {
    crl_status status = CRL_STATUS_OK;
    crl_program *program = NULL;
    crl_simulation *times = NULL;
    crl_simulation_config config = {0};
    crl_stage_cost *cost = NULL;
    const int positions = (int)o->stages;
    *row = (crl_comparison_row){
        .name = schedule->name, .label = schedule->name, .virtual_stages = each};
    crl_schedule_request request = {.positions = positions,
                                    .stages = positions * each,
                                    .micro_batches = (int)o->micro_batches,
                                    .message_s = crl_cli_message_s(&o->costs),
                                    .memory_limit_bytes = limit};
    CRL_TRY(share_costs(&cost, schedule, &request, &o->costs, arena));
    request.cost = cost;
    status = schedule->build(&program, &request);
    if (status == CRL_STATUS_INVALID || status == CRL_STATUS_UNSUPPORTED)
        return crl_arena_text(arena, &row->refused, crl_error_message());
    CRL_TRY_OUT(status);
    CRL_TRY_OUT(crl_cli_simulation_config(&config, &o->costs, cost, positions, arena));
    CRL_TRY_OUT(crl_simulate(&times, program, &config));
    measure(row, program, times);
out:
    crl_simulation_destroy(times);
    crl_program_destroy(program);
    return status;
}

/* Fastest first; those that do not serve last; by name where nothing else tells. */
static int compare_rows(const void *left, const void *right) {
    const crl_comparison_row *a = left, *b = right;
    if (!a->refused != !b->refused)
        return a->refused ? 1 : -1;
    if (a->makespan != b->makespan)
        return a->makespan < b->makespan ? -1 : 1;
    const int names = strcmp(a->name, b->name);
    return names ? names : a->virtual_stages - b->virtual_stages;
}

static void print_rows(const crl_comparison_row *row, int rows) {
    printf("schedule          V    makespan   bubble     longest    activations   peak memory   "
           "messages\n");
    for (int i = 0; i < rows; i++) {
        if (row[i].refused) {
            printf("%-12s  does not serve: %s\n", row[i].name, row[i].refused);
            continue;
        }
        char held[48];
        snprintf(held, sizeof held, "%.4g..%.4g", row[i].least_activations,
                 row[i].most_activations);
        printf("%-12s  %5d  %10.8g  %5.1f %%  %10.8g  %13s  %12.6g  %9lld\n", row[i].name,
               row[i].virtual_stages, row[i].makespan, 100 * row[i].bubble, row[i].span, held,
               row[i].peak_memory, row[i].messages);
    }
}

/* Rows of one schedule, one for each number of stages per position. `*rows` grows. */
static crl_status fill_rows(crl_comparison_row *row, int *rows, const crl_schedule *schedule,
                            const compare_options *o, crl_arena *arena) {
    const range each = virtual_range(schedule, o->virtual_stages);
    for (int v = each.first; v <= each.last; v++) {
        crl_comparison_row *next = &row[(*rows)++];
        CRL_TRY(fill_row(next, schedule, v, o, o->memory_limit, arena));
        if (v > each.first)
            CRL_TRY(crl_arena_format(arena, &next->label, "%s x%d", schedule->name, v));
    }
    return CRL_STATUS_OK;
}

/* Memory that one micro-batch takes of a position at most. */
static crl_status least_memory(double *out, const compare_options *o, crl_arena *arena) {
    crl_stage_cost *cost = NULL;
    CRL_TRY(crl_cli_stage_costs(&cost, &o->costs, (int)o->stages, arena));
    *out = 0;
    for (int p = 0; p < (int)o->stages; p++)
        *out = fmax(*out, fmax(cost[p].kept_bytes, cost[p].held_bytes));
    return CRL_STATUS_OK;
}

/* From what one micro-batch needs to what all of them do, in equal ratios. */
static crl_status fill_curve(crl_comparison_curve *curve, const crl_schedule *schedule, int each,
                             const compare_options *o, crl_arena *arena) {
    double least = 0;
    CRL_TRY(least_memory(&least, o, arena));
    CRL_TRY(crl_arena_alloc(arena, &curve->memory, SWEEP_POINTS, sizeof *curve->memory));
    CRL_TRY(crl_arena_alloc(arena, &curve->bubble, SWEEP_POINTS, sizeof *curve->bubble));
    CRL_TRY(crl_arena_format(arena, &curve->label, "%s x%d", schedule->name, each));
    for (int i = 0; i < SWEEP_POINTS && least > 0; i++) {
        crl_comparison_row row;
        const double share = (double)i / (SWEEP_POINTS - 1);
        const double limit = least * pow((double)o->micro_batches, share);
        CRL_TRY(fill_row(&row, schedule, each, o, limit, arena));
        if (!row.refused) {
            curve->memory[curve->points] = row.peak_memory;
            curve->bubble[curve->points++] = row.bubble;
        }
    }
    return CRL_STATUS_OK;
}

static crl_status fill_curves(crl_comparison_curve curve[MOST_CURVES], int *curves,
                              const crl_cli *cli, const compare_options *o, crl_arena *arena) {
    for (int i = 0; cli->registries->schedules[i]; i++) {
        const crl_schedule *schedule = cli->registries->schedules[i];
        const range each = virtual_range(schedule, o->virtual_stages);
        if (strcmp(schedule->name, o->sweep) != 0)
            continue;
        for (int v = each.first; v <= each.last && *curves < MOST_CURVES; v++)
            CRL_TRY(fill_curve(&curve[(*curves)++], schedule, v, o, arena));
    }
    return CRL_STATUS_OK;
}

static crl_status write_picture(const compare_options *o, const crl_comparison_row *row, int rows,
                                const crl_comparison_curve *curve, int curves) {
    char title[128];
    FILE *out = fopen(o->svg, "we");
    if (!out)
        return CRL_FAIL(IO, "%s: %s", o->svg, strerror(errno));
    snprintf(title, sizeof title, "Bubble and memory: %lld positions, %lld micro-batches",
             (long long)o->stages, (long long)o->micro_batches);
    crl_comparison_write_svg(title, row, rows, curve, curves, out);
    const bool bad = ferror(out) != 0;
    if (fclose(out) != 0 || bad)
        return CRL_FAIL(IO, "%s: write failed", o->svg);
    return CRL_STATUS_OK;
}

static crl_status run(const crl_cli *cli, crl_cli_args *args) {
    const compare_options *o = args->options;
    const void *const *schedules = cli->registries->schedules;
    crl_comparison_row *row = NULL;
    crl_comparison_curve curve[MOST_CURVES] = {0};
    int room = 0, rows = 0, curves = 0;
    for (int i = 0; schedules[i]; i++) {
        const range each = virtual_range(schedules[i], o->virtual_stages);
        room += each.last - each.first + 1;
    }
    CRL_TRY(crl_arena_alloc(&args->arena, &row, (size_t)room + 1, sizeof *row));
    args->exit_code = CRL_EXIT_USAGE;
    for (int i = 0; schedules[i]; i++)
        CRL_TRY(fill_rows(row, &rows, schedules[i], o, &args->arena));
    args->exit_code = CRL_EXIT_FAILURE;
    qsort(row, (size_t)rows, sizeof *row, compare_rows);
    print_rows(row, rows);
    if (!o->svg[0])
        return CRL_STATUS_OK;
    CRL_TRY(fill_curves(curve, &curves, cli, o, &args->arena));
    return write_picture(o, row, rows, curve, curves);
}

const crl_command crl_command_schedule_compare = {
    .name = "schedule compare",
    .help = "every schedule side by side: makespan, bubble, memory, messages",
    .more =
        "Costs are those of a whole position: a schedule with V stages per position gets "
        "stages of 1/V of them, so that rows compare. Longest is the time of a position from its "
        "first action to its last: what a step takes where the next one follows at once. "
        "Activations are the most micro-batches "
        "a position holds between F and B or I, least and most of all positions; memory also "
        "counts what is held from I to W.",
    .options = table,
    .options_bytes = sizeof(compare_options),
    .run = run,
};
