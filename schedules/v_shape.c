/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The schedules on a V: a pattern that repeats every six units, squeezed [qi24]. Refuses to hold
 * more than the pattern does.
 *
 * A pattern alone is a schedule, but one that starts and ends as slowly as it repeats, and only of
 * use where F = I = W. So it is run as an order of preference instead: time goes on from action to
 * action, with the request's costs, and each position takes, of the passes that could run, the one
 * that is first in the pattern; a W only where none comes within half its time.
 * A forward must leave the rest of the pattern, in its own order, within the pattern's peaks of
 * memory: of each stage from F to I, of the position from F to W. Of all that is left the action
 * that is first in the pattern can therefore always run, and the walk ends.
 *
 * cost card: time linear in the number of actions times log2(P).
 */
#include "schedules/v_shape_internal.h"

#include <math.h>
#include <string.h>

#include "engine/base/alloc.h"
#include "schedules/request_internal.h"

typedef struct v_position {
    v_pattern pattern;
    double takes_s[V_KINDS];
    int next[V_KINDS];       /* next micro-batch of each kind */
    int kept[2], held;       /* what most_kept and most_held are of */
    double free_s;           /* end of what ran last */
    int choice;              /* the kind that runs next, or -1: nothing can, as things are */
    double choice_s;         /* when */
    double *end_s[V_PASSES]; /* (M) */
} v_position;

typedef struct v_shape {
    int positions, micro_batches;
    double message_s;
    int most_held;
    v_position *position; /* (P) */
    double *ends;         /* (P x V_PASSES x M) */
    int leaves;           /* of a tree over the positions, a power of two: */
    int *first;           /* (2 x leaves) whose choice comes first; -1: nobody's. [1] of all */
    crl_program *program;
} v_shape;

int crl_v_shape_position(const crl_schedule_request *request, int stage) {
    return stage < request->positions ? stage : 2 * request->positions - stage - 1;
}

static int stage_of(int positions, int p, int kind) {
    return v_leg(kind) ? 2 * positions - p - 1 : p;
}

/* Seconds of a kind on position p, shared by its replicas. */
static double time_of(const crl_schedule_request *request, int p, int kind) {
    if (!request->cost) {
        return 1;
    }
    const crl_stage_cost *cost = &request->cost[stage_of(request->positions, p, kind)];
    const double time = v_is_forward(kind) ? cost->forward_s
                        : kind < V_PASSES  ? cost->input_s
                                           : cost->weight_s;
    return time / (request->widths ? request->widths[p] : 1);
}

static crl_status shape_init(v_shape *self, const crl_schedule_request *request,
                             crl_v_pattern_fn pattern) {
    const size_t positions = (size_t)self->positions, micro_batches = (size_t)self->micro_batches;
    CRL_TRY(crl_alloc(&self->position, positions, sizeof *self->position));
    CRL_TRY(crl_alloc(&self->ends, positions * V_PASSES * micro_batches, sizeof *self->ends));
    for (self->leaves = 1; self->leaves < self->positions;) {
        self->leaves *= 2;
    }
    CRL_TRY(crl_alloc(&self->first, 2 * (size_t)self->leaves, sizeof *self->first));
    memset(self->first, 0xff, 2 * (size_t)self->leaves * sizeof *self->first);
    for (int p = 0; p < self->positions; p++) {
        v_position *position = &self->position[p];
        int start[V_PASSES];
        pattern(self->positions, p, start);
        crl_v_pattern_init(&position->pattern, start);
        for (int kind = 0; kind < V_KINDS; kind++) {
            position->takes_s[kind] = time_of(request, p, kind);
        }
        for (int kind = 0; kind < V_PASSES; kind++) {
            position->end_s[kind] =
                self->ends + ((size_t)p * V_PASSES + (size_t)kind) * micro_batches;
        }
        const int held = position->pattern.most_held;
        self->most_held = held > self->most_held ? held : self->most_held;
    }
    return CRL_STATUS_OK;
}

/* When the next action of a kind can start on position p: INFINITY while what it needs has not
 * run. */
static double start_of(const v_shape *self, int p, int kind) {
    const v_position *position = &self->position[p];
    const int micro_batch = position->next[kind];
    const bool descends = kind == V_FORWARD_DOWN || kind == V_INPUT_DOWN;
    const int neighbour = p + (descends ? -1 : 1);
    const bool turns = neighbour < 0 || neighbour >= self->positions;
    if (micro_batch >= self->micro_batches) {
        return INFINITY;
    }
    if (kind == V_FORWARD_DOWN && turns) {
        return position->free_s;
    }
    if (kind < V_PASSES && !turns) {
        const v_position *from = &self->position[neighbour];
        return from->next[kind] > micro_batch
                   ? fmax(position->free_s, from->end_s[kind][micro_batch] + self->message_s)
                   : INFINITY;
    }
    const int own = kind < V_PASSES ? kind - 1 : kind - 2;
    return position->next[own] > micro_batch ? position->free_s : INFINITY;
}

static int due(const v_position *self, int kind) {
    return self->pattern.start[kind] + V_PERIOD * self->next[kind];
}

/* Actions of a kind that have not run and come before `unit` in the pattern. */
static int left_before(const v_shape *self, const v_position *position, int kind, int unit) {
    const int periods = (unit - due(position, kind) + V_PERIOD - 1) / V_PERIOD;
    const int left = self->micro_batches - position->next[kind];
    return periods < 0 ? 0 : periods < left ? periods : left;
}

/* The most that is held while the next `count` forwards of a kind run as in the pattern, after the
 * W before each of them. It grows until the W of a leg set in, falls or stays, and may grow again
 * when none are left: so it is largest at one of these or at an end. */
static int fullest(const v_shape *self, const v_position *position, int kind, int count) {
    const int from = due(position, kind);
    const int corner[] = {1, (due(position, V_WEIGHT_DOWN) - from) / V_PERIOD + 1,
                          (due(position, V_WEIGHT_UP) - from) / V_PERIOD + 1, count};
    int most = position->held;
    for (size_t c = 0; count > 0 && c < sizeof corner / sizeof *corner; c++) {
        const int i = corner[c] < 1 ? 1 : corner[c] < count ? corner[c] : count;
        const int unit = from + V_PERIOD * (i - 1);
        const int held = position->held + i - left_before(self, position, V_WEIGHT_DOWN, unit) -
                         left_before(self, position, V_WEIGHT_UP, unit);
        most = held > most ? held : most;
    }
    return most;
}

/* Whether the next forward of a kind may overtake all that the pattern runs before it. Of that only
 * forwards of the other leg fill memory. */
static bool fits(const v_shape *self, const v_position *position, int kind) {
    const int leg = v_leg(kind), other = leg ? V_FORWARD_DOWN : V_FORWARD_UP;
    const int overtaken = left_before(self, position, other, due(position, kind));
    return position->kept[leg] < position->pattern.most_kept[leg] &&
           fullest(self, position, other, overtaken) < self->most_held;
}

/* Which of two kinds goes first: the one that starts first, else as in the pattern. */
static void prefer(v_position *self, int kind, double start_s) {
    if (start_s < self->choice_s || (start_s <= self->choice_s && self->choice >= 0 &&
                                     due(self, kind) < due(self, self->choice))) {
        self->choice = kind;
        self->choice_s = start_s;
    }
}

/* Tells the tree of a new choice. Of equal ones the lower position's is first. */
static void rank_choice(v_shape *self, int p) {
    self->first[self->leaves + p] = p;
    for (int node = (self->leaves + p) / 2; node > 0; node /= 2) {
        const int left = self->first[2 * node], right = self->first[2 * node + 1];
        const bool is_left =
            right < 0 || self->position[left].choice_s <= self->position[right].choice_s;
        self->first[node] = is_left ? left : right;
    }
}

static void choose(v_shape *self, int p) {
    v_position *position = &self->position[p];
    position->choice = -1;
    position->choice_s = INFINITY;
    for (int kind = 0; kind < V_PASSES; kind++) {
        const double start_s = start_of(self, p, kind);
        if (start_s <= position->choice_s && start_s < INFINITY &&
            (!v_is_forward(kind) || fits(self, position, kind))) {
            prefer(position, kind, start_s);
        }
    }
    const double wait_s = position->takes_s[V_WEIGHT_DOWN] / 2;
    if (position->choice_s > position->free_s + wait_s) {
        for (int kind = V_WEIGHT_DOWN; kind <= V_WEIGHT_UP; kind++) {
            prefer(position, kind, start_of(self, p, kind));
        }
    }
    rank_choice(self, p);
}

static crl_status run(v_shape *self, int p) {
    static const crl_action_kind action[V_KINDS] = {CRL_ACTION_FORWARD, CRL_ACTION_FORWARD,
                                                    CRL_ACTION_INPUT,   CRL_ACTION_INPUT,
                                                    CRL_ACTION_WEIGHT,  CRL_ACTION_WEIGHT};
    v_position *position = &self->position[p];
    const int kind = position->choice, micro_batch = position->next[kind]++;
    position->free_s = position->choice_s + position->takes_s[kind];
    if (kind < V_PASSES) {
        position->end_s[kind][micro_batch] = position->free_s;
        position->kept[v_leg(kind)] += v_is_forward(kind) ? 1 : -1;
    }
    position->held += v_is_forward(kind) ? 1 : kind >= V_PASSES ? -1 : 0;
    return crl_program_append(self->program, p, action[kind], stage_of(self->positions, p, kind),
                              micro_batch);
}

static crl_status run_all(v_shape *self) {
    const int64_t actions = (int64_t)V_KINDS * self->positions * self->micro_batches;
    for (int p = 0; p < self->positions; p++) {
        choose(self, p);
    }
    for (int64_t i = 0; i < actions; i++) {
        const int p = self->first[1]; /* what others then can start is not earlier */
        CRL_TRY(run(self, p));
        for (int q = p > 0 ? p - 1 : 0; q <= p + 1 && q < self->positions; q++) {
            choose(self, q);
        }
    }
    return CRL_STATUS_OK;
}

crl_status crl_v_shape_build(crl_program **out, const crl_schedule_request *request,
                             crl_v_pattern_fn pattern) {
    crl_status status = CRL_STATUS_OK;
    v_shape self = {.positions = request->positions,
                    .micro_batches = request->micro_batches,
                    .message_s = request->message_s};
    CRL_TRY(crl_program_create(&self.program, request->positions, request->stages,
                               request->micro_batches));
    CRL_TRY_OUT(shape_init(&self, request, pattern));
    CRL_TRY_OUT(run_all(&self));
    *out = self.program;
    self.program = NULL;
out:
    crl_program_destroy(self.program);
    crl_free(self.position);
    crl_free(self.ends);
    crl_free(self.first);
    return status;
}

int crl_v_shape_peak(const crl_schedule_request *request, int stage, crl_v_pattern_fn pattern) {
    const int p = crl_v_shape_position(request, stage);
    int start[V_PASSES];
    v_pattern full;
    pattern(request->positions, p, start);
    crl_v_pattern_init(&full, start);
    return crl_schedule_dealt_peak(request, p, full.most_kept[stage >= request->positions]);
}
