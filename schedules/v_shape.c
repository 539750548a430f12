/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The schedules on a V: a pattern that repeats every six units, squeezed [qi24]. Refuses other
 * times than F = I = W = 1: what to do with others is a question for auto.
 *
 * A pattern alone is a schedule, but one that starts and ends as slowly as it repeats. So time is
 * walked through unit by unit, and each position runs, of the passes that could run now,
 * the one that is first in the pattern; a W only where no other can. A forward must
 * leave the rest of the pattern, in its own order, within the pattern's peaks of memory: of
 * each stage from F to I, of the position from F to W. The action that is first in the pattern of
 * all that are left can therefore always run, and the walk ends.
 *
 * cost card: time linear in the number of actions times the actions that a forward overtakes.
 */
#include "schedules/v_shape_internal.h"

#include "engine/base/alloc.h"
#include "schedules/request_internal.h"

enum { PERIOD = V_KINDS };

typedef struct v_position {
    int start[V_KINDS];        /* of micro-batch 0 in the pattern */
    int kind_at[PERIOD];       /* which kind has a unit modulo the period */
    int next[V_KINDS];         /* next micro-batch of each kind */
    int kept[2], most_kept[2]; /* micro-batches from F to I: stage p, stage 2P-p-1 */
    int held;                  /* from F to W, both stages */
    int *end[V_PASSES];        /* (M) */
} v_position;

typedef struct v_shape {
    int positions, micro_batches;
    int most_held;
    v_position *position; /* (P) */
    int *ends;            /* (P x V_PASSES x M) */
    crl_program *program;
} v_shape;

int crl_v_shape_position(const crl_schedule_request *request, int stage) {
    return stage < request->positions ? stage : 2 * request->positions - stage - 1;
}

static bool is_forward(int kind) {
    return kind == V_FORWARD_DOWN || kind == V_FORWARD_UP;
}

/* 1: on the way up, of stage 2P-p-1 (whose backward comes down). */
static int leg_of(int kind) {
    return kind == V_FORWARD_UP || kind == V_INPUT_DOWN || kind == V_WEIGHT_DOWN;
}

static int later_unit(int start, const int *kind_at, int taken) {
    do {
        start++;
    } while (kind_at[start % PERIOD] >= 0 || start % PERIOD == taken);
    return start;
}

/* The two free units of the period: each W gets one, so that they wait least in all. */
static void place_weights(v_position *self) {
    int *start = self->start;
    const int down = later_unit(start[V_INPUT_DOWN], self->kind_at, -1);
    const int up = later_unit(start[V_INPUT_UP], self->kind_at, -1);
    start[V_WEIGHT_DOWN] = down;
    start[V_WEIGHT_UP] = up;
    if (down % PERIOD == up % PERIOD) {
        const int other_down = later_unit(start[V_INPUT_DOWN], self->kind_at, up % PERIOD);
        const int other_up = later_unit(start[V_INPUT_UP], self->kind_at, down % PERIOD);
        if (other_down - down < other_up - up) {
            start[V_WEIGHT_DOWN] = other_down;
        } else {
            start[V_WEIGHT_UP] = other_up;
        }
    }
    self->kind_at[start[V_WEIGHT_DOWN] % PERIOD] = V_WEIGHT_DOWN;
    self->kind_at[start[V_WEIGHT_UP] % PERIOD] = V_WEIGHT_UP;
}

/* Micro-batches between two points of the pattern, seen right after a `from`, in the long run. */
static int in_flight(int from, int to, int now) {
    const int ahead = 4 * (to > now ? to : now) / PERIOD * PERIOD; /* keeps quotients positive */
    return (now - from + ahead) / PERIOD - (now - to + ahead) / PERIOD;
}

static int most_held(const v_position *self) {
    int most = 0;
    for (int kind = V_FORWARD_DOWN; kind <= V_FORWARD_UP; kind++) {
        const int *start = self->start, now = start[kind];
        const int held = in_flight(start[V_FORWARD_DOWN], start[V_WEIGHT_UP], now) +
                         in_flight(start[V_FORWARD_UP], start[V_WEIGHT_DOWN], now);
        most = held > most ? held : most;
    }
    return most;
}

static void position_init(v_position *self, const int start[V_PASSES]) {
    for (int i = 0; i < PERIOD; i++) {
        self->kind_at[i] = -1;
    }
    for (int kind = 0; kind < V_PASSES; kind++) {
        self->start[kind] = start[kind];
        self->kind_at[start[kind] % PERIOD] = kind;
    }
    place_weights(self);
    self->most_kept[0] = (start[V_INPUT_UP] - start[V_FORWARD_DOWN]) / PERIOD + 1;
    self->most_kept[1] = (start[V_INPUT_DOWN] - start[V_FORWARD_UP]) / PERIOD + 1;
}

static crl_status shape_init(v_shape *self, crl_v_pattern_fn pattern) {
    const size_t positions = (size_t)self->positions, micro_batches = (size_t)self->micro_batches;
    CRL_TRY(crl_alloc(&self->position, positions, sizeof *self->position));
    CRL_TRY(crl_alloc(&self->ends, positions * V_PASSES * micro_batches, sizeof *self->ends));
    for (int p = 0; p < self->positions; p++) {
        v_position *position = &self->position[p];
        int start[V_PASSES];
        pattern(self->positions, p, start);
        position_init(position, start);
        for (int kind = 0; kind < V_PASSES; kind++) {
            position->end[kind] =
                self->ends + ((size_t)p * V_PASSES + (size_t)kind) * micro_batches;
        }
        const int held = most_held(position);
        self->most_held = held > self->most_held ? held : self->most_held;
    }
    return CRL_STATUS_OK;
}

/* What the next action of a kind waits for: a kind on a position, or NULL. */
static const v_position *source_of(const v_shape *self, int p, int kind, int *source) {
    const bool descends = kind == V_FORWARD_DOWN || kind == V_INPUT_DOWN;
    const int from = p + (descends ? -1 : 1);
    if (kind >= V_PASSES) {
        *source = kind == V_WEIGHT_DOWN ? V_INPUT_DOWN : V_INPUT_UP;
        return &self->position[p];
    }
    if (from >= 0 && from < self->positions) {
        *source = kind;
        return &self->position[from];
    }
    *source = kind - 1;
    return kind == V_FORWARD_DOWN ? NULL : &self->position[p];
}

static bool is_ready(const v_shape *self, int p, int kind, int now) {
    const int micro_batch = self->position[p].next[kind];
    int source;
    if (micro_batch >= self->micro_batches) {
        return false;
    }
    const v_position *from = source_of(self, p, kind, &source);
    return !from || (from->next[source] > micro_batch && from->end[source][micro_batch] <= now);
}

static int due(const v_position *self, int kind) {
    return self->start[kind] + PERIOD * self->next[kind];
}

/* Whether the next forward of a kind may overtake all that the pattern runs before it. */
static bool fits(const v_shape *self, const v_position *position, int kind) {
    const int leg = leg_of(kind);
    int kept = position->kept[leg], held = position->held;
    int first = due(position, kind);
    for (int k = 0; k < V_KINDS; k++) {
        first = due(position, k) < first ? due(position, k) : first;
    }
    for (int unit = first;; unit++) {
        if (kept >= position->most_kept[leg] || held >= self->most_held) {
            return false;
        }
        if (unit == due(position, kind)) {
            return true;
        }
        const int other = position->kind_at[unit % PERIOD];
        if (unit < due(position, other) ||
            (unit - position->start[other]) / PERIOD >= self->micro_batches) {
            continue; /* has run, or is not there */
        }
        held += is_forward(other) ? 1 : other >= V_PASSES ? -1 : 0;
        if (leg_of(other) == leg && other < V_PASSES) {
            kept += is_forward(other) ? 1 : -1;
        }
    }
}

/* The action that position p runs now, or -1. */
static int choose(const v_shape *self, int p, int now) {
    const v_position *position = &self->position[p];
    int best = -1;
    for (int kind = 0; kind < V_KINDS; kind++) {
        const bool spare = kind >= V_PASSES && best >= 0 && best < V_PASSES;
        if (spare || (best >= 0 && due(position, best) < due(position, kind)) ||
            !is_ready(self, p, kind, now)) {
            continue;
        }
        if (!is_forward(kind) || fits(self, position, kind)) {
            best = kind;
        }
    }
    return best;
}

static crl_status run(v_shape *self, int p, int kind, int now) {
    static const crl_action_kind action[V_KINDS] = {CRL_ACTION_FORWARD, CRL_ACTION_FORWARD,
                                                    CRL_ACTION_INPUT,   CRL_ACTION_INPUT,
                                                    CRL_ACTION_WEIGHT,  CRL_ACTION_WEIGHT};
    v_position *position = &self->position[p];
    const int leg = leg_of(kind), micro_batch = position->next[kind]++;
    if (kind < V_PASSES) {
        position->end[kind][micro_batch] = now + 1;
        position->kept[leg] += is_forward(kind) ? 1 : -1;
    }
    position->held += is_forward(kind) ? 1 : kind >= V_PASSES ? -1 : 0;
    return crl_program_append(self->program, p, action[kind], leg ? 2 * self->positions - p - 1 : p,
                              micro_batch);
}

static crl_status run_all(v_shape *self) {
    int64_t left = (int64_t)V_KINDS * self->positions * self->micro_batches;
    for (int now = 0; left > 0; now++) {
        for (int p = 0; p < self->positions; p++) {
            const int kind = choose(self, p, now);
            if (kind >= 0) {
                CRL_TRY(run(self, p, kind, now));
                left--;
            }
        }
    }
    return CRL_STATUS_OK;
}

crl_status crl_v_shape_build(crl_program **out, const crl_schedule_request *request,
                             crl_v_pattern_fn pattern) {
    crl_status status = CRL_STATUS_OK;
    v_shape self = {.positions = request->positions, .micro_batches = request->micro_batches};
    CRL_TRY(crl_program_create(&self.program, request->positions, request->stages,
                               request->micro_batches));
    CRL_TRY_OUT(shape_init(&self, pattern));
    CRL_TRY_OUT(run_all(&self));
    *out = self.program;
    self.program = NULL;
out:
    crl_program_destroy(self.program);
    crl_free(self.position);
    crl_free(self.ends);
    return status;
}

int crl_v_shape_peak(const crl_schedule_request *request, int stage, crl_v_pattern_fn pattern) {
    const int p = crl_v_shape_position(request, stage);
    int start[V_PASSES];
    v_position position = {0};
    pattern(request->positions, p, start);
    position_init(&position, start);
    return crl_schedule_dealt_peak(request, p, position.most_kept[stage >= request->positions]);
}
