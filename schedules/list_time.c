/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Times a given sequence, and improves it where a W stands in the way of what others wait for.
 *
 *     4 | F7 I5 W2 I6 ..      the critical path comes through W2 although the input of I6 was
 *     4 | F7 I5 I6 W2 ..      there before: W2 goes behind it, if memory allows
 *
 * Nothing waits for a W but the next W of its stage, so moving one back keeps every order valid.
 * W of a stage stay in ascending order even where different replicas run them: which ones do is
 * known exactly only when the program is dealt out, and gradients are added in that order.
 *
 * cost card: one timing is linear in tasks; an improvement is two timings for each W tried
 */
#include "schedules/list_internal.h"

#include <math.h>
#include <string.h>

static const double ROUNDING = 1e-9;

crl_status crl_list_timer_init(list_timer *self, const list_problem *problem) {
    const size_t tasks = (size_t)problem->tasks, servers = (size_t)problem->servers;
    *self = (list_timer){.problem = problem};
    CRL_TRY(crl_arena_alloc(&self->arena, &self->end_s, tasks, sizeof *self->end_s));
    CRL_TRY(crl_arena_alloc(&self->arena, &self->before, tasks, sizeof *self->before));
    CRL_TRY(crl_arena_alloc(&self->arena, &self->free_s, servers, sizeof *self->free_s));
    CRL_TRY(crl_arena_alloc(&self->arena, &self->used, servers, sizeof *self->used));
    CRL_TRY(crl_arena_alloc(&self->arena, &self->begin_s, servers, sizeof *self->begin_s));
    return crl_arena_alloc(&self->arena, &self->last, servers, sizeof *self->last);
}

void crl_list_timer_fini(list_timer *self) {
    crl_arena_fini(&self->arena);
}

typedef struct list_input {
    int task; /* -1: none */
    double ready_s;
} list_input;

/* The input of a task that arrives last. */
static list_input input_of(const list_timer *self, int task) {
    const list_problem *problem = self->problem;
    const int M = problem->micro_batches;
    const int stage = task / M / LIST_KINDS, kind = task / M % LIST_KINDS;
    const int from = kind == LIST_FORWARD ? stage - 1 : stage + 1;
    list_input input = {-1, 0};
    if (kind != LIST_FORWARD) {
        input = (list_input){task - M, self->end_s[task - M]};
    }
    if (kind != LIST_WEIGHT && from >= 0 && from < problem->stages) {
        const int other = task + (from - stage) * LIST_KINDS * M;
        const double ready = self->end_s[other] + (kind == LIST_FORWARD ? problem->arrive_s[stage]
                                                                        : problem->return_s[stage]);
        input = ready >= input.ready_s ? (list_input){other, ready} : input;
    }
    return input;
}

static double duration_of(const list_problem *problem, int task) {
    const int M = problem->micro_batches;
    return problem->duration_s[task / M / LIST_KINDS][task / M % LIST_KINDS];
}

static int server_of(const list_problem *problem, int task) {
    const int M = problem->micro_batches;
    return crl_list_server(problem, task / M / LIST_KINDS, task % M);
}

static double growth_of(const list_problem *problem, int task) {
    const int M = problem->micro_batches;
    const int stage = task / M / LIST_KINDS;
    const double kept = problem->kept[stage], held = problem->held[stage];
    const double growth[LIST_KINDS] = {kept, held - kept, -held};
    return growth[task / M % LIST_KINDS];
}

bool crl_list_time(list_timer *self, list_sequence *sequence, list_goal goal) {
    const list_problem *problem = self->problem;
    for (int u = 0; u < problem->servers; u++) {
        self->free_s[u] = self->used[u] = 0;
        self->last[u] = -1;
    }
    for (int i = 0; i < problem->tasks; i++) {
        const int task = sequence->task[i], server = server_of(problem, task);
        const double start = fmax(self->free_s[server], input_of(self, task).ready_s);
        if (self->last[server] < 0) {
            self->begin_s[server] = start;
        }
        self->before[task] = self->last[server];
        self->last[server] = task;
        self->free_s[server] = self->end_s[task] = start + duration_of(problem, task);
        self->used[server] += growth_of(problem, task);
        if (self->used[server] > problem->limit) {
            return false;
        }
    }
    double longest = -1;
    sequence->makespan_s = sequence->span_s = 0;
    for (int u = 0; u < problem->servers; u++) {
        const double span = self->last[u] < 0 ? 0 : self->free_s[u] - self->begin_s[u];
        sequence->makespan_s = fmax(sequence->makespan_s, self->free_s[u]);
        sequence->span_s = fmax(sequence->span_s, span);
        const double counts = goal == LIST_GOAL_SPAN ? span : self->free_s[u];
        if (counts > longest) {
            longest = counts;
            self->critical = u;
        }
    }
    return true;
}

bool crl_list_is_better(const list_sequence *a, const list_sequence *b, list_goal goal) {
    const double first_a = goal == LIST_GOAL_SPAN ? a->span_s : a->makespan_s;
    const double first_b = goal == LIST_GOAL_SPAN ? b->span_s : b->makespan_s;
    const double second_a = goal == LIST_GOAL_SPAN ? a->makespan_s : a->span_s;
    const double second_b = goal == LIST_GOAL_SPAN ? b->makespan_s : b->span_s;
    if (fabs(first_a - first_b) > ROUNDING * first_b) {
        return first_a < first_b;
    }
    return second_a < second_b * (1 - ROUNDING);
}

/* Puts `task` right behind `behind`; shifts what lies between. Returns where it stood. */
static int move_behind(list_sequence *sequence, int task, int behind) {
    int from = 0, to;
    while (sequence->task[from] != task) {
        from++;
    }
    for (to = from; sequence->task[to] != behind; to++) {
        sequence->task[to] = sequence->task[to + 1];
    }
    sequence->task[to] = task;
    return from;
}

static void move_back(list_sequence *sequence, int task, int place) {
    int at = place;
    while (sequence->task[at] != task) {
        at++;
    }
    memmove(&sequence->task[place + 1], &sequence->task[place],
            (size_t)(at - place) * sizeof *sequence->task);
    sequence->task[place] = task;
}

/* Whether another W of its stage lies between this W and the task that it is to follow. */
static bool passes_weight(const list_sequence *sequence, int micro_batches, int task, int behind) {
    int at = 0;
    while (sequence->task[at] != task) {
        at++;
    }
    do {
        at++;
    } while (sequence->task[at] != behind &&
             sequence->task[at] / micro_batches != task / micro_batches);
    return sequence->task[at] != behind;
}

/* One move along the critical path that does no harm; false: there is none, or no try is left. */
static bool improve_once(list_timer *self, list_sequence *sequence, list_goal goal, int *tries) {
    const int M = self->problem->micro_batches;
    int task = self->last[self->critical];
    while (task >= 0 && *tries > 0) {
        const list_input input = input_of(self, task);
        const double start = self->end_s[task] - duration_of(self->problem, task);
        const int before = self->before[task];
        const bool by_server = before >= 0 && self->end_s[before] >= start * (1 - ROUNDING) &&
                               input.ready_s < start * (1 - ROUNDING);
        const int kind = before < 0 ? -1 : before / M % LIST_KINDS;
        if (by_server && kind == LIST_WEIGHT && task / M % LIST_KINDS != LIST_WEIGHT &&
            !passes_weight(sequence, M, before, task)) {
            list_sequence tried = *sequence;
            const int place = move_behind(&tried, before, task);
            (*tries)--;
            if (crl_list_time(self, &tried, goal) && !crl_list_is_better(sequence, &tried, goal)) {
                *sequence = tried;
                return true;
            }
            move_back(&tried, before, place);
            const bool fits = crl_list_time(self, &tried, goal);
            CRL_ASSERT(fits);
        }
        task = by_server ? before : input.task;
    }
    return false;
}

void crl_list_improve(list_timer *self, list_sequence *sequence, list_goal goal, int tries) {
    const bool fits = crl_list_time(self, sequence, goal);
    CRL_ASSERT(fits);
    while (improve_once(self, sequence, goal, &tries)) {
    }
}
