/* SPDX-License-Identifier: Apache-2.0 */
/* Messages for a program that has no model behind it: every stage sends its output to the next. */
#include "cli/simulate_internal.h"

#include <math.h>

#include "engine/base/arena.h"

/* Where its stages are; whether it has forwards alone. */
static void survey(const crl_program *program, crl_stage *stage, bool *forward_only) {
    *forward_only = true;
    for (int p = 0; p < program->positions; p++) {
        for (int i = 0; i < program->position[p].count; i++) {
            const crl_action *action = &program->position[p].action[i];
            stage[action->stage].position = p;
            *forward_only = *forward_only && action->kind == CRL_ACTION_FORWARD;
        }
    }
}

crl_status crl_cli_add_messages(crl_program *program, const crl_stage_cost *cost, int window,
                                crl_arena *arena) {
    crl_plan plan = {
        .positions = program->positions, .stages = program->stages, .edges = program->stages - 1};
    bool forward_only = false;
    CRL_TRY(crl_arena_alloc(arena, &plan.stage, (size_t)plan.stages, sizeof *plan.stage));
    CRL_TRY(crl_arena_alloc(arena, &plan.edge, (size_t)plan.edges, sizeof *plan.edge));
    survey(program, plan.stage, &forward_only);
    for (int e = 0; e < plan.edges; e++)
        plan.edge[e] = (crl_edge){.value = e,
                                  .from = e,
                                  .to = e + 1,
                                  .bytes = (size_t)llround(cost[e].output_bytes),
                                  .gradient = true};
    return crl_program_add_messages(program, &plan, window, forward_only);
}
