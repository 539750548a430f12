/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Looks for the policy that suits a problem: a policy is a point with a few coordinates, each with
 * a few values. First those that wait for nothing, then an even sample of all, then from the best
 * of each order one coordinate at a time as long as that helps; at the end single W are moved.
 * After the switches that [qi23] §3.1 searches over, and a few more. Refuses nothing; the same
 * problem always gives the same sequence, however fast the machine: effort is counted, not timed.
 *
 * cost card: at most WORK_BUDGET / (servers + 32) decisions
 */
#include "schedules/list_internal.h"

#include <string.h>

#include "engine/base/alloc.h"

static const double ROUNDING = 1e-9;

enum {
    SAMPLES = 128,            /* policies tried before climbing */
    WORK_BUDGET = 1500000000, /* of all runs; a run takes tasks · (servers + RUN_WORK) */
    RUN_WORK = 32
};

/* What a policy is chosen from, one coordinate each; `step` is odd: i · step mod 2^32 visits the
 * values evenly, and those of different coordinates independently (a Kronecker sequence). */
enum { LEAD, ORDER, ROOM, DEEP, WAIT_F, WAIT_W, END_INPUTS, TARGET, SPAN, COORDINATES };
enum { MOST_LEVELS = 8 };
typedef struct coordinate {
    int levels;
    uint32_t step;
    double value[MOST_LEVELS];
} coordinate;
static const coordinate COORDINATE[COORDINATES] = {
    [LEAD] = {8, 0x9e3779b9u, {1, 0, 1.5, 2, 1.25, .75, .5, .35}},
    [ORDER] = {3, 0xc2b2ae35u, {LIST_INPUT_FIRST, LIST_ALTERNATE, LIST_FORWARD_FIRST}},
    [ROOM] = {2, 0x85ebca6bu, {0, 1}},
    [DEEP] = {2, 0x27d4eb2fu, {0, 1}},
    [WAIT_F] = {4, 0x165667b1u, {0, .25, .5, 1}},
    [WAIT_W] = {4, 0xd3a2646du, {0, 1, .5, .25}},
    [END_INPUTS] = {4, 0xb55a4f09u, {0, 4, 2, 8}},
    [TARGET] = {7, 0x6c8e9cf5u, {1, .5, .15, 0, .33, .67, .85}},
    [SPAN] = {2, 0x2545f491u, {0, 1}},
};

/* A policy by its coordinates, and what it reached. */
typedef struct candidate {
    int level[COORDINATES];
    list_sequence reached; /* times only */
} candidate;

typedef struct search {
    const list_problem *problem;
    list_machine *machine;
    list_goal goal;
    list_sequence best, tried;      /* makespan < 0: nothing yet */
    double target_s, target_span_s; /* what was reached without waiting */
    int64_t runs_left;
} search;

static list_policy policy_of(const search *self, const candidate *at) {
    double value[COORDINATES];
    for (int c = 0; c < COORDINATES; c++) {
        value[c] = COORDINATE[c].value[at->level[c]];
    }
    const list_problem *problem = self->problem;
    const bool of_span = value[SPAN] > 0;
    const double least = of_span ? problem->least_span_s : problem->least_s;
    const double known = of_span ? self->target_span_s : self->target_s;
    return (list_policy){.lead = value[LEAD],
                         .order = (list_order)value[ORDER],
                         .make_room = value[ROOM] > 0,
                         .deep_first = value[DEEP] > 0,
                         .wait_f = value[WAIT_F],
                         .wait_w = value[WAIT_W],
                         .end_inputs = (int)value[END_INPUTS],
                         .target_s = least + value[TARGET] * (known - least),
                         .of_span = of_span};
}

/* Runs a candidate, keeps the best of all. */
static void try_candidate(search *self, candidate *at) {
    const list_policy policy = policy_of(self, at);
    self->runs_left--;
    crl_list_run(self->machine, &policy, &self->tried);
    at->reached =
        (list_sequence){.makespan_s = self->tried.makespan_s, .span_s = self->tried.span_s};
    if (self->best.makespan_s < 0 || crl_list_is_better(&self->tried, &self->best, self->goal)) {
        const list_sequence old = self->best;
        self->best = self->tried;
        self->tried = old;
    }
}

static void keep_better(candidate *best, const candidate *at, list_goal goal) {
    if (best->reached.makespan_s == 0 || crl_list_is_better(&at->reached, &best->reached, goal)) {
        *best = *at;
    }
}

static bool is_perfect(const search *self) {
    const list_problem *problem = self->problem;
    return self->best.makespan_s <= problem->least_s * (1 + ROUNDING) &&
           self->best.span_s <= problem->least_span_s * (1 + ROUNDING);
}

static bool is_done(const search *self) {
    return self->runs_left <= 0 || is_perfect(self);
}

/* Policies that wait for nothing: where targets are counted from. */
static void try_plain(search *self, candidate *best) {
    const int orders = COORDINATE[ORDER].levels;
    for (int i = 0; i == 0 || (i < COORDINATE[LEAD].levels * orders && !is_done(self)); i++) {
        candidate at = {.level = {[LEAD] = i / orders, [ORDER] = i % orders}};
        try_candidate(self, &at);
        keep_better(&best[i % orders], &at, self->goal);
    }
    self->target_s = self->best.makespan_s;
    self->target_span_s = self->best.span_s;
}

static void try_samples(search *self, candidate *best) {
    for (uint32_t i = 1; i <= SAMPLES && !is_done(self); i++) {
        candidate at = {{0}, {0}};
        for (int c = 0; c < COORDINATES; c++) {
            const uint64_t place = (uint32_t)(i * COORDINATE[c].step);
            at.level[c] = (int)(place * (uint64_t)COORDINATE[c].levels >> 32);
        }
        try_candidate(self, &at);
        keep_better(&best[at.level[ORDER]], &at, self->goal);
    }
}

/* Changes one coordinate at a time as long as that helps. */
static void climb(search *self, candidate *best) {
    for (int c = 0, unchanged = 0; unchanged < COORDINATES; c = (c + 1) % COORDINATES) {
        const candidate before = *best;
        unchanged++;
        for (int v = 0; v < COORDINATE[c].levels && !is_done(self); v++) {
            candidate at = before;
            at.level[c] = v;
            if (v != before.level[c]) {
                try_candidate(self, &at);
                keep_better(best, &at, self->goal);
            }
        }
        if (memcmp(before.level, best->level, sizeof best->level) != 0) {
            unchanged = 0;
        }
    }
}

static void run_all(search *self) {
    candidate best[MOST_LEVELS] = {{{0}, {0}}}; /* of each order */
    try_plain(self, best);
    try_samples(self, best);
    for (int i = 0; i < COORDINATE[ORDER].levels; i++) {
        climb(self, &best[i]);
    }
}

crl_status crl_list_search(list_sequence *out, const list_problem *problem, list_goal goal,
                           int runs) {
    crl_status status = CRL_STATUS_OK;
    const int64_t work = (int64_t)problem->tasks * (problem->servers + RUN_WORK);
    const int64_t most = WORK_BUDGET / work + 1;
    search self = {.problem = problem,
                   .goal = goal,
                   .best = {.makespan_s = -1},
                   .runs_left = runs > 0 && runs < most ? runs : most};
    CRL_TRY_OUT(crl_alloc(&self.best.task, (size_t)problem->tasks, sizeof *self.best.task));
    CRL_TRY_OUT(crl_alloc(&self.tried.task, (size_t)problem->tasks, sizeof *self.tried.task));
    CRL_TRY_OUT(crl_list_machine_create(&self.machine, problem));
    run_all(&self);
    *out = self.best;
    self.best.task = NULL;
out:
    crl_list_machine_destroy(self.machine);
    crl_free(self.best.task);
    crl_free(self.tried.task);
    return status;
}
