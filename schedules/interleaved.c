/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Interleaved 1F1B: each position runs V = S/P stages, p, P+p, 2P+p ..., so that the pipeline
 * fills in shorter steps [narayanan21] §2.2. Refuses one stage per position (that is 1f1b).
 *
 * Micro-batches go through in groups of g (P unless the request says otherwise): a position runs a
 * whole group through its first stage, then through its second, and so on; backwards likewise, last
 * stage first. With f(i) and b(i) numbered in that order, position p runs w = 2(P-p-1) + (V-1)g
 * forwards ahead and then alternates f(w+k) and b(k).
 *
 *       0 | 0F0 0F1 2F0 2F1 ..  ..  2B0---- ..  2B1---- 0B0---- 0B1----     P = V = M = 2
 *       1 | ..  1F0 1F1 3F0 3B0---- 3F1 3B1---- 1B0---- 1B1---- ..  ..
 *
 * Groups above P leave a message that much time on its way from the last position to the first, and
 * hold more. The last group is as large as what is left. A group of fewer than P keeps the places
 * of the missing ones in both numberings and leaves them out of the lists: dropping whole
 * micro-batches neither delays nor blocks others.
 *
 * cost card, G = the places of all groups, each its size or P: bubble 1 - MV/(GV+P-1), exact when
 * no group has fewer than P, an upper bound else · peak activations of a stage: its largest number
 * of f up to f(i) less b(k) with k < i-w, exact · messages 2(S-1)M
 */
#include "engine/ir/schedule.h"

#include "schedules/request_internal.h"

typedef struct order {
    int positions, chunks; /* P, V */
    int micro_batches;     /* M */
    int group;             /* micro-batches of a group, the last one perhaps fewer */
    int places;            /* G·V: length of the numberings */
} order;

/* Micro-batches of a group, and the places it takes for them. */
static int group_size(const order *self, int group) {
    const int left = self->micro_batches - group * self->group;
    return left < self->group ? left : self->group;
}

static int group_places(const order *self, int group) {
    const int size = group_size(self, group);
    return size > self->positions ? size : self->positions;
}

static order order_of(const crl_schedule_request *request) {
    const int wanted = request->group ? request->group : request->positions;
    order self = {.positions = request->positions,
                  .chunks = request->stages / request->positions,
                  .micro_batches = request->micro_batches};
    self.group = wanted < self.micro_batches ? wanted : self.micro_batches;
    const int last = (self.micro_batches - 1) / self.group;
    self.places = self.chunks * (last * group_places(&self, 0) + group_places(&self, last));
    return self;
}

static int warm_up(const order *self, int position) {
    const int forwards =
        2 * (self->positions - position - 1) + (self->chunks - 1) * group_places(self, 0);
    return forwards < self->places ? forwards : self->places;
}

/* Place of a micro-batch of a chunk in f, or in b for the chunk counted from the end. */
static int place_of(const order *self, int chunk, int micro_batch) {
    const int group = micro_batch / self->group;
    return group * self->chunks * group_places(self, 0) + chunk * group_places(self, group) +
           micro_batch % self->group;
}

static crl_status emit_place(crl_program *program, const order *self, int position,
                             crl_action_kind kind, int place) {
    const int all = self->chunks * group_places(self, 0);
    const int last = (self->micro_batches - 1) / self->group;
    const int group = place / all < last ? place / all : last;
    const int places = group_places(self, group), in_group = place - group * all;
    int chunk = in_group / places;
    if (in_group % places >= group_size(self, group)) {
        return CRL_STATUS_OK;
    }
    if (kind == CRL_ACTION_BACKWARD) {
        chunk = self->chunks - 1 - chunk;
    }
    return crl_program_append(program, position, kind, chunk * self->positions + position,
                              group * self->group + in_group % places);
}

static crl_status emit_position(crl_program *program, const order *self, int position) {
    const int ahead = warm_up(self, position);
    for (int i = 0; i < self->places + ahead; i++) {
        if (i < self->places) {
            CRL_TRY(emit_place(program, self, position, CRL_ACTION_FORWARD, i));
        }
        if (i >= ahead) {
            CRL_TRY(emit_place(program, self, position, CRL_ACTION_BACKWARD, i - ahead));
        }
    }
    return CRL_STATUS_OK;
}

static crl_status emit(crl_program *program, const crl_schedule_request *request) {
    const order self = order_of(request);
    for (int p = 0; p < request->positions; p++) {
        CRL_TRY(emit_position(program, &self, p));
    }
    return CRL_STATUS_OK;
}

extern const crl_schedule crl_schedule_interleaved;

static crl_status build(crl_program **out, const crl_schedule_request *request) {
    return crl_schedule_build(out, &crl_schedule_interleaved, request, emit);
}

static double bubble(const crl_schedule_request *request) {
    const order self = order_of(request);
    const double work = (double)self.micro_batches * self.chunks;
    return crl_schedule_dealt_bubble(request, 1 - work / (self.places + self.positions - 1.0));
}

static int peak_activations(const crl_schedule_request *request, int stage) {
    const order self = order_of(request);
    const int chunk = stage / self.positions, position = stage % self.positions;
    const int ahead = warm_up(&self, position);
    int peak = 0, freed = 0;
    for (int m = 0; m < self.micro_batches; m++) {
        const int before = place_of(&self, chunk, m) - ahead;
        while (place_of(&self, self.chunks - 1 - chunk, freed) < before) {
            freed++;
        }
        peak = m + 1 - freed > peak ? m + 1 - freed : peak;
    }
    return crl_schedule_dealt_peak(request, position, peak);
}

static bool exact(const crl_schedule_request *request) {
    const order self = order_of(request);
    return !request->widths && self.places == self.micro_batches * self.chunks;
}

const crl_schedule crl_schedule_interleaved = {
    .name = "interleaved",
    .help = "1f1b with several stages per position: smaller bubble, more messages and memory",
    .least_virtual = 2,
    .build = build,
    .bubble = bubble,
    .peak_activations = peak_activations,
    .exact = exact,
};
