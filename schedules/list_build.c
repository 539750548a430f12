/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A schedule made by list scheduling: the best sequence that the search finds, or that of a
 * schedule made by hand where it is better still, as a program.
 */
#include "schedules/list_internal.h"

#include <math.h>

#include "engine/base/alloc.h"
#include "schedules/request_internal.h"

enum {
    BRIEF_RUNS = 15,
    POLISH_BUDGET = 3000000 /* tasks of all tries */
};

static crl_status emit(crl_program *program, const list_problem *problem,
                       const list_sequence *sequence) {
    static const crl_action_kind kinds[LIST_KINDS] = {CRL_ACTION_FORWARD, CRL_ACTION_INPUT,
                                                      CRL_ACTION_WEIGHT};
    for (int i = 0; i < problem->tasks; i++) {
        const int group = sequence->task[i] / problem->micro_batches;
        const int stage = group / LIST_KINDS;
        CRL_TRY(crl_program_append(program, problem->position_of[stage], kinds[group % LIST_KINDS],
                                   stage, sequence->task[i] % problem->micro_batches));
    }
    return CRL_STATUS_OK;
}

/* Without costs the lists for one replica each are what the declared bubble is that of: dealing
 * them out delays nothing. Those made for the widths are better as a rule. */
static crl_status compare_undealt(list_sequence *best, const list_problem *problem,
                                  const crl_schedule *schedule, const crl_schedule_request *request,
                                  const list_recipe *recipe) {
    crl_schedule_request alone = *request;
    crl_program *program = NULL;
    alone.widths = NULL;
    CRL_TRY(crl_list_build(&program, schedule, &alone, recipe));
    const crl_status status = crl_list_compare(best, problem, LIST_GOAL_MAKESPAN, program);
    crl_program_destroy(program);
    return status;
}

static crl_status compare_known(list_sequence *best, const list_problem *problem,
                                const crl_schedule_request *request, const list_recipe *recipe) {
    crl_schedule_request free_request = *request;
    free_request.memory_limit_bytes = 0; /* compared by what they hold, not by what they allow */
    for (int i = 0; recipe->known[i]; i++) {
        const crl_schedule *known = recipe->known[i];
        const int each = request->stages / request->positions;
        crl_program *program = NULL;
        if (each < known->least_virtual || (known->most_virtual && each > known->most_virtual)) {
            continue;
        }
        CRL_TRY(known->build(&program, &free_request));
        const crl_status status = crl_list_compare(best, problem, recipe->goal, program);
        crl_program_destroy(program);
        CRL_TRY(status);
    }
    return CRL_STATUS_OK;
}

static crl_status polish(list_sequence *best, const list_problem *problem, list_goal goal) {
    crl_status status = CRL_STATUS_OK;
    list_timer timer = {0};
    CRL_TRY_OUT(crl_list_timer_init(&timer, problem));
    crl_list_improve(&timer, best, goal, POLISH_BUDGET / problem->tasks);
out:
    crl_list_timer_fini(&timer);
    return status;
}

/* Without costs there is nothing to search by: a few policies do, and what is declared of a
 * schedule is declared of those. */
static crl_status find(list_sequence *best, const list_problem *problem,
                       const crl_schedule *schedule, const crl_schedule_request *request,
                       const list_recipe *recipe) {
    CRL_TRY(crl_list_search(best, problem, recipe->goal, request->cost ? 0 : BRIEF_RUNS));
    if (request->cost) {
        CRL_TRY(compare_known(best, problem, request, recipe));
        return polish(best, problem, recipe->goal);
    }
    return request->widths ? compare_undealt(best, problem, schedule, request, recipe)
                           : CRL_STATUS_OK;
}

crl_status crl_list_build(crl_program **out, const crl_schedule *schedule,
                          const crl_schedule_request *request, const list_recipe *recipe) {
    crl_status status = CRL_STATUS_OK;
    crl_program *program = NULL;
    list_problem problem = {0};
    list_sequence best = {0};
    CRL_TRY(crl_schedule_check_request(schedule, request));
    CRL_TRY(
        crl_program_create(&program, request->positions, request->stages, request->micro_batches));
    CRL_TRY_OUT(crl_list_problem_init(&problem, schedule, request, recipe->pipelines));
    CRL_TRY_OUT(find(&best, &problem, schedule, request, recipe));
    CRL_TRY_OUT(emit(program, &problem, &best));
    *out = program;
    program = NULL;
out:
    crl_program_destroy(program);
    crl_free(best.task);
    crl_list_problem_fini(&problem);
    return status;
}

/* Without costs and limit a step is as long as in ZB-H1, a bit longer with fewer micro-batches than
 * positions; on a V it misses more of them, since each comes by twice. Else: some replica is busy
 * at any time. */
double crl_list_bubble(const crl_schedule_request *request) {
    const double M = request->micro_batches, P = request->positions;
    const double each = request->stages / P;
    double servers = 0;
    for (int p = 0; p < request->positions; p++) {
        servers += request->widths ? request->widths[p] : 1;
    }
    if (request->cost || request->memory_limit_bytes > 0) {
        return 1 - 1 / servers;
    }
    const double missing = fmax(0, P - M), work = 3 * each * M;
    const double idle = P - 1 + (each > 1 ? fmax(2 * missing, 4 * missing - P) : missing);
    return crl_schedule_dealt_bubble(request, idle / (work + idle));
}

int crl_list_peak(const crl_schedule *schedule, const crl_schedule_request *request, int stage,
                  double pipelines) {
    const double limit = crl_list_limit(schedule, request, pipelines);
    const double kept = crl_list_cost(request, stage).kept_bytes;
    const int position = crl_schedule_position(schedule, request, stage);
    const double width = request->widths ? request->widths[position] : 1;
    const double held = kept > 0 ? fmax(1, floor(limit / kept * (1 + 1e-9))) * width : INFINITY;
    return crl_schedule_dealt_peak(
        request, position, held < request->micro_batches ? (int)held : request->micro_batches);
}
