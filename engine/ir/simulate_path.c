/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The critical path: from the action that ends last, back to what it waited for: the action before
 * it on its position, or the one on another position whose result came later. Where both came at
 * the same time, its own position's. Refuses to list more than compute actions: what lies between
 * two of them are messages.
 *
 * cost card: linear in the length of the path
 */
#include "engine/ir/simulate_internal.h"

#include "engine/base/alloc.h"

enum { FIRST_CAPACITY = 64 };

/* When a position is done with its action `at`, the start of its send included. */
static double done_at(const simulator *self, int position, int at) {
    if (at < 0) {
        return 0;
    }
    const crl_action *action = &self->program->position[position].action[at];
    const bool sends = is_bare(self) && crl_simulator_output(self->index, position, action) >= 0;
    return self->result->end_s[position][at] + (sends ? self->config->message_s : 0);
}

/* Number of the action that the start of this one waited for, or -1. */
static int cause_of(const simulator *self, int position, int at) {
    const crl_action *action = &self->program->position[position].action[at];
    int cause;
    const double there = crl_simulator_awaited(self, position, action, &cause);
    if (cause >= 0 && there > done_at(self, position, at - 1)) {
        return cause;
    }
    return at > 0 ? self->index->first[position] + at - 1 : -1;
}

static int last_action(const simulator *self) {
    for (int p = 0; p < self->program->positions; p++) {
        const int last = self->program->position[p].count - 1;
        if (last >= 0 && self->clock[p] == self->result->makespan_s) {
            return self->index->first[p] + last;
        }
    }
    return -1;
}

static crl_status append(crl_simulation *result, int *capacity, const crl_path_step *step) {
    if (result->path_steps == *capacity) {
        const int larger = *capacity ? 2 * *capacity : FIRST_CAPACITY;
        CRL_TRY(crl_realloc(&result->path, (size_t)*capacity, (size_t)larger, sizeof *step));
        *capacity = larger;
    }
    result->path[result->path_steps++] = *step;
    return CRL_STATUS_OK;
}

static void reverse(crl_path_step *path, int steps) {
    for (int i = 0; i < steps / 2; i++) {
        const crl_path_step held = path[i];
        path[i] = path[steps - 1 - i];
        path[steps - 1 - i] = held;
    }
}

crl_status crl_simulator_path(const simulator *self) {
    crl_simulation *result = self->result;
    int capacity = 0;
    for (int number = last_action(self); number >= 0;) {
        const int position = crl_program_position_of(self->index, number);
        const int at = number - self->index->first[position];
        if (is_compute(self->program->position[position].action[at].kind)) {
            const crl_path_step step = {.position = position,
                                        .index = at,
                                        .start_s = result->start_s[position][at],
                                        .end_s = result->end_s[position][at]};
            CRL_TRY(append(result, &capacity, &step));
        }
        number = cause_of(self, position, at);
    }
    reverse(result->path, result->path_steps);
    return CRL_STATUS_OK;
}
