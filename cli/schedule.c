/* SPDX-License-Identifier: Apache-2.0 */
/* `carole schedule show | check`: schedules as pictures, and the checker for a user's own file. */
#include "cli/cli_internal.h"

#include "engine/base/registry.h"
#include "engine/ir/schedule.h"
#include "engine/ir/simulate.h"
#include "engine/run/layout.h"

enum { GRID_COLUMNS = 160 };

typedef struct show_options {
    const char *schedule;
    int64_t stages, micro_batches, virtual_stages, group;
    double backward;
    bool csv;
} show_options;

static const crl_option show_table[] = {
    {"schedule", "1f1b", "its name (`carole info` lists them)", &crl_option_text,
     offsetof(show_options, schedule), 0, 0, NULL},
    {"stages", NULL, "number of stages", &crl_option_int, offsetof(show_options, stages), 1, 4096,
     NULL},
    {"micro-batches", NULL, "number of micro-batches", &crl_option_int,
     offsetof(show_options, micro_batches), 1, 65536, NULL},
    {"virtual", "0", "stages per pipeline position; 0: 1, or 2 where the schedule needs more",
     &crl_option_int, offsetof(show_options, virtual_stages), 0, 4096, NULL},
    {"group", "0", "micro-batches that go through a position's stages together; 0: the positions",
     &crl_option_int, offsetof(show_options, group), 0, 65535, NULL},
    {"backward", "2", "time of a backward, in forwards", &crl_option_double,
     offsetof(show_options, backward), 0.01, 100, NULL},
    {"csv", "false", "print the program instead of the picture", &crl_option_bool,
     offsetof(show_options, csv), 0, 0, NULL},
    {0}};

/* All stages alike: forward 1, backward `backward`, half of it for each of its parts. */
static crl_status uniform_times(crl_arena *arena, crl_stage_cost **out, int stages,
                                double backward) {
    CRL_TRY(crl_arena_alloc(arena, out, (size_t)stages, sizeof **out));
    for (int s = 0; s < stages; s++)
        (*out)[s] = (crl_stage_cost){.forward_s = 1,
                                     .input_s = backward / 2,
                                     .weight_s = backward / 2,
                                     .kept_bytes = 1,
                                     .held_bytes = 1};
    return CRL_STATUS_OK;
}

static crl_status print_facts(const crl_program *program, const crl_simulation_config *times) {
    crl_simulation *simulation = NULL;
    CRL_TRY(crl_simulate(&simulation, program, times));
    printf("%d positions, %d stages, %d micro-batches: bubble %.1f %%", program->positions,
           program->stages, program->micro_batches, 100 * simulation->bubble);
    crl_simulation_destroy(simulation);
    return CRL_STATUS_OK;
}

/* The most micro-batches that each stage holds from F to its last part, in one pass. */
static crl_status print_held(const crl_program *program, crl_arena *arena) {
    int *held = NULL, *most = NULL;
    CRL_TRY(crl_arena_alloc(arena, &held, (size_t)program->stages, sizeof *held));
    CRL_TRY(crl_arena_alloc(arena, &most, (size_t)program->stages, sizeof *most));
    for (int p = 0; p < program->positions; p++) {
        for (int i = 0; i < program->position[p].count; i++) {
            const crl_action *action = &program->position[p].action[i];
            int *now = &held[action->stage];
            *now += action->kind == CRL_ACTION_FORWARD;
            most[action->stage] = *now > most[action->stage] ? *now : most[action->stage];
            *now -= action->kind == CRL_ACTION_BACKWARD || action->kind == CRL_ACTION_WEIGHT;
        }
    }
    printf(", most micro-batches held per stage:");
    for (int s = 0; s < program->stages; s++)
        printf(" %d", most[s]);
    printf("\n");
    return CRL_STATUS_OK;
}

static crl_status show_program(const show_options *o, const crl_schedule *schedule,
                               const crl_schedule_request *request, crl_program *program,
                               crl_arena *arena) {
    CRL_TRY(crl_program_require_valid(program));
    if (o->csv) {
        crl_program_write(program, false, stdout);
        return CRL_STATUS_OK;
    }
    crl_stage_cost *time = NULL;
    CRL_TRY(uniform_times(arena, &time, program->stages, o->backward));
    const crl_simulation_config config = {.stage = time};
    CRL_TRY(crl_program_print_grid(program, &config, NULL, GRID_COLUMNS, stdout));
    CRL_TRY(print_facts(program, &config));
    printf(" (declared for backward = 2: %.1f %%)", 100 * schedule->bubble(request));
    return print_held(program, arena);
}

static crl_status run_show(const crl_cli *cli, crl_cli_args *args) {
    const show_options *o = args->options;
    const void *found = NULL;
    args->exit_code = CRL_EXIT_USAGE;
    CRL_TRY(crl_registry_find(&found, cli->registries->schedules, "schedule", o->schedule));
    const crl_schedule *schedule = found;
    const int64_t width = o->virtual_stages > 0 ? o->virtual_stages : schedule->least_virtual;
    if (o->stages % width != 0)
        return CRL_FAIL(INVALID, "--stages is %lld, expected a multiple of --virtual, %lld",
                        (long long)o->stages, (long long)width);
    const crl_schedule_request request = {.positions = (int)(o->stages / width),
                                          .stages = (int)o->stages,
                                          .micro_batches = (int)o->micro_batches,
                                          .group = (int)o->group};
    crl_program *program = NULL;
    CRL_TRY(schedule->build(&program, &request));
    args->exit_code = CRL_EXIT_FAILURE;
    const crl_status status = show_program(o, schedule, &request, program, &args->arena);
    crl_program_destroy(program);
    return status;
}

typedef struct check_options {
    bool grid;
} check_options;

static const crl_option check_table[] = {
    {"grid", "false", "draw the schedule, with the action that is wrong marked", &crl_option_bool,
     offsetof(check_options, grid), 0, 0, NULL},
    {0}};

static crl_status check_program(const char *path, const crl_program *program, bool grid,
                                crl_arena *arena) {
    crl_check_report report;
    crl_program_check(program, &report);
    crl_stage_cost *time = NULL;
    CRL_TRY(uniform_times(arena, &time, program->stages, 2));
    const crl_simulation_config config = {.stage = time};
    if (grid)
        CRL_TRY(crl_program_print_grid(program, &config, &report, GRID_COLUMNS, stdout));
    if (report.verdict != CRL_VERDICT_VALID)
        return CRL_FAIL(INVALID, "%s: %s: %s", path,
                        report.verdict == CRL_VERDICT_DEADLOCK ? "deadlock" : "invalid",
                        report.why);
    printf("%s: valid: ", path);
    CRL_TRY(print_facts(program, &config));
    printf("\n");
    return CRL_STATUS_OK;
}

static crl_status run_check(const crl_cli *cli, crl_cli_args *args) {
    (void)cli;
    const check_options *o = args->options;
    crl_program *program = NULL;
    const char *path = args->argument[0];
    CRL_TRY(crl_layout_read_schedule(&program, path));
    const crl_status status = check_program(path, program, o->grid, &args->arena);
    crl_program_destroy(program);
    return status;
}

const crl_command crl_command_schedule_show = {
    .name = "schedule show",
    .help = "draw a schedule",
    .options = show_table,
    .options_bytes = sizeof(show_options),
    .run = run_show,
};

const crl_command crl_command_schedule_check = {
    .name = "schedule check",
    .help = "check a schedule in a CSV file: complete, ordered, free of deadlocks",
    .arguments = "FILE.csv",
    .min_arguments = 1,
    .max_arguments = 1,
    .more =
        "One row per pipeline position, cells like 0F3 1B0 2I5 2W5: stage, action (F forward, B "
        "backward, I input gradient, W weight gradient), micro-batch.",
    .options = check_table,
    .options_bytes = sizeof(check_options),
    .run = run_check,
};
