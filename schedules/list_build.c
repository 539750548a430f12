/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A schedule made by list scheduling: the best sequence that the search finds, or 1F1B where that
 * is better still, as a program. Without costs there is nothing to search by, so a few policies do;
 * what is declared of a schedule is declared of those.
 */
#include "schedules/list_internal.h"

#include <math.h>

#include "engine/base/alloc.h"
#include "schedules/request_internal.h"

enum { BRIEF_RUNS = 15 };

static int task_of(const list_problem *problem, int kind, int stage, int micro_batch) {
    return (LIST_KINDS * stage + kind) * problem->micro_batches + micro_batch;
}

/* Forwards that 1F1B runs ahead on a stage: on each replica one for every later stage, more where
 * later stages have more replicas. */
static int warm_up(const list_problem *problem, int stage) {
    const int *first = problem->first_server;
    const int width = first[stage + 1] - first[stage];
    const int later = problem->servers - first[stage + 1];
    const int ahead = (later + width - 1) / width * width;
    return ahead < problem->micro_batches ? ahead : problem->micro_batches;
}

/* The i-th action of 1F1B on a stage, of 3M: the first `ahead` are F, the last 2·ahead I and W. */
static int one_f_one_b(const list_problem *problem, int stage, int i) {
    const int ahead = warm_up(problem, stage);
    const int turn = (i - ahead) / LIST_KINDS, kind = (i - ahead) % LIST_KINDS;
    if (i < ahead) {
        return task_of(problem, LIST_FORWARD, stage, i);
    }
    if (ahead + turn < problem->micro_batches) {
        return task_of(problem, kind, stage, kind == LIST_FORWARD ? ahead + turn : turn);
    }
    const int rest = i - problem->micro_batches;
    return task_of(problem, LIST_INPUT + rest % 2, stage, rest / 2);
}

static bool may_run(const list_problem *problem, const bool *done, int task) {
    const int kind = task / problem->micro_batches % LIST_KINDS;
    const int stage = task / problem->micro_batches / LIST_KINDS;
    const int row = LIST_KINDS * problem->micro_batches;
    const bool first = stage == 0, last = stage == problem->stages - 1;
    if (kind == LIST_FORWARD) {
        return first || done[task - row];
    }
    return done[task - problem->micro_batches] && (kind == LIST_WEIGHT || last || done[task + row]);
}

/* 1F1B with its backward in halves, in an order that respects what each action needs. */
static void fill_one_f_one_b(int *task, const list_problem *problem, int *reached, bool *done) {
    int placed = 0, before = -1;
    while (placed < problem->tasks && placed > before) {
        before = placed;
        for (int s = 0; s < problem->stages; s++) {
            while (reached[s] < LIST_KINDS * problem->micro_batches) {
                const int next = one_f_one_b(problem, s, reached[s]);
                if (!may_run(problem, done, next)) {
                    break;
                }
                done[next] = true;
                task[placed++] = next;
                reached[s]++;
            }
        }
    }
    CRL_ASSERT(placed == problem->tasks);
}

static void take_if_better(list_sequence *best, list_sequence *tried, list_timer *timer,
                           list_goal goal) {
    if (crl_list_time(timer, tried, goal) && crl_list_is_better(tried, best, goal)) {
        const list_sequence old = *best;
        *best = *tried;
        *tried = old;
    }
}

/* Replaces `best` by 1F1B if that is better and within memory. */
static crl_status compare_one_f_one_b(list_sequence *best, const list_problem *problem,
                                      list_goal goal) {
    crl_status status = CRL_STATUS_OK;
    list_timer timer = {0};
    list_sequence tried = {0};
    bool *done = NULL;
    int *reached = NULL;
    CRL_TRY_OUT(crl_alloc(&tried.task, (size_t)problem->tasks, sizeof *tried.task));
    CRL_TRY_OUT(crl_alloc(&done, (size_t)problem->tasks, sizeof *done));
    CRL_TRY_OUT(crl_alloc(&reached, (size_t)problem->stages, sizeof *reached));
    CRL_TRY_OUT(crl_list_timer_init(&timer, problem));
    fill_one_f_one_b(tried.task, problem, reached, done);
    take_if_better(best, &tried, &timer, goal);
out:
    crl_list_timer_fini(&timer);
    crl_free(tried.task);
    crl_free(reached);
    crl_free(done);
    return status;
}

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
                                  double pipelines) {
    crl_status status = CRL_STATUS_OK;
    crl_schedule_request alone = *request;
    list_problem lists = {0};
    list_timer timer = {0};
    list_sequence tried = {0};
    alone.widths = NULL;
    CRL_TRY_OUT(crl_list_problem_init(&lists, schedule, &alone, pipelines));
    CRL_TRY_OUT(crl_list_search(&tried, &lists, LIST_GOAL_MAKESPAN, BRIEF_RUNS));
    CRL_TRY_OUT(crl_list_timer_init(&timer, problem));
    take_if_better(best, &tried, &timer, LIST_GOAL_MAKESPAN);
out:
    crl_list_timer_fini(&timer);
    crl_free(tried.task);
    crl_list_problem_fini(&lists);
    return status;
}

crl_status crl_list_build(crl_program **out, const crl_schedule *schedule,
                          const crl_schedule_request *request, double pipelines, list_goal goal) {
    crl_status status = CRL_STATUS_OK;
    crl_program *program = NULL;
    list_problem problem = {0};
    list_sequence best = {0};
    CRL_TRY(crl_schedule_check_request(schedule, request));
    CRL_TRY(
        crl_program_create(&program, request->positions, request->stages, request->micro_batches));
    CRL_TRY_OUT(crl_list_problem_init(&problem, schedule, request, pipelines));
    CRL_TRY_OUT(crl_list_search(&best, &problem, goal, request->cost ? 0 : BRIEF_RUNS));
    if (request->cost && request->stages == request->positions) {
        CRL_TRY_OUT(compare_one_f_one_b(&best, &problem, goal));
    }
    if (request->widths && !request->cost) {
        CRL_TRY_OUT(compare_undealt(&best, &problem, schedule, request, pipelines));
    }
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
