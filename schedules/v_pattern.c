/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A repeated pattern [qi24]: where its W go, and what it holds. Refuses to run it: see v_shape.c.
 *
 *     v-half, position 1 of 3: passes at 2 6 10 15, W at 11 and 19; so modulo 6 it runs, for one
 *     micro-batch or another,      4F   1W   1F   1I   4I   4W      as stages 1 and 4
 */
#include "schedules/v_shape_internal.h"

static int later_unit(int start, const int *kind_at, int taken) {
    do {
        start++;
    } while (kind_at[start % V_PERIOD] >= 0 || start % V_PERIOD == taken);
    return start;
}

/* The two free units of the period: each W gets one, so that they wait least in all. */
static void place_weights(v_pattern *self) {
    int *start = self->start;
    const int down = later_unit(start[V_INPUT_DOWN], self->kind_at, -1);
    const int up = later_unit(start[V_INPUT_UP], self->kind_at, -1);
    start[V_WEIGHT_DOWN] = down;
    start[V_WEIGHT_UP] = up;
    if (down % V_PERIOD == up % V_PERIOD) {
        const int other_down = later_unit(start[V_INPUT_DOWN], self->kind_at, up % V_PERIOD);
        const int other_up = later_unit(start[V_INPUT_UP], self->kind_at, down % V_PERIOD);
        if (other_down - down < other_up - up) {
            start[V_WEIGHT_DOWN] = other_down;
        } else {
            start[V_WEIGHT_UP] = other_up;
        }
    }
    self->kind_at[start[V_WEIGHT_DOWN] % V_PERIOD] = V_WEIGHT_DOWN;
    self->kind_at[start[V_WEIGHT_UP] % V_PERIOD] = V_WEIGHT_UP;
}

/* Micro-batches that are past `from` and not past `to`, at `now` in the long run. */
static int in_flight(int from, int to, int now) {
    const int later = now + to / V_PERIOD * V_PERIOD + V_PERIOD; /* keeps quotients positive */
    return (later - from) / V_PERIOD - (later - to) / V_PERIOD;
}

void crl_v_pattern_init(v_pattern *self, const int start[V_PASSES]) {
    for (int i = 0; i < V_PERIOD; i++) {
        self->kind_at[i] = -1;
    }
    for (int kind = 0; kind < V_PASSES; kind++) {
        self->start[kind] = start[kind];
        self->kind_at[start[kind] % V_PERIOD] = kind;
    }
    place_weights(self);
    self->most_kept[0] = (start[V_INPUT_UP] - start[V_FORWARD_DOWN]) / V_PERIOD + 1;
    self->most_kept[1] = (start[V_INPUT_DOWN] - start[V_FORWARD_UP]) / V_PERIOD + 1;
    self->most_held = 0;
    for (int kind = V_FORWARD_DOWN; kind <= V_FORWARD_UP; kind++) {
        const int held = in_flight(start[V_FORWARD_DOWN], self->start[V_WEIGHT_UP], start[kind]) +
                         in_flight(start[V_FORWARD_UP], self->start[V_WEIGHT_DOWN], start[kind]);
        self->most_held = held > self->most_held ? held : self->most_held;
    }
}
