/* SPDX-License-Identifier: Apache-2.0 */
/*
 * DualPipe-V: DualPipe cut in half and folded: a position runs stages p and 2P-p-1, and once the
 * pipeline is full, each runs a forward of the one beside a backward of the other [deepseek25],
 * [pytorch24]. Here they run in turn. Refuses other than two stages per position.
 *
 *       0 | 0F0 0F1 0F2 3F0 3I0 3W0 3F1 0F3 3B1---- 3F2 0B0---- 3B2---- 3F3 ..  0B1---- ...  P = 2
 *       1 | ..  1F0 2F0 1F1 2F1 1F2 2B0---- 2F2 1B0---- 1F3 2B1---- 2F3 1B1---- 2B2---- 1B2 ...
 *
 * Position p: 2(P-p-1) F of its first stage; p+1 pairs F F; P-p-1 rounds I W F of its second; then
 * rounds of F B F B until forwards end, P-p-1 of B F B, p+1 of B B of which the later half puts its
 * W off, P-p-1 of W I, and what W remain. That needs M >= 2P: fewer are 2P with the last ones left
 * out, which neither delays nor blocks the others.
 *
 * cost card: bubble i/(6M+i), exact, with i = P-1 for M >= 2P, P-1+2(2P-M) for P < M < 2P, and
 * 5(P-1)-2(M-1) else · peak activations min(2P-p, M) of the first stage, min(p+1, M) of the second
 * · messages 2(S-2)M
 */
#include "engine/ir/schedule.h"

#include "schedules/request_internal.h"
#include "schedules/v_shape_internal.h"

/* A position's list as it grows; [0] is its first stage, [1] its second. */
typedef struct emitter {
    crl_program *program;
    int position;
    int stage[2];
    int forward[2], backward[2], weight[2]; /* next micro-batch: of F, of B or I, of W */
    int oldest;                             /* which the W put off longest is of */
} emitter;

static crl_status append(emitter *self, crl_action_kind kind, int which, int micro_batch) {
    if (micro_batch >= self->program->micro_batches) {
        return CRL_STATUS_OK;
    }
    return crl_program_append(self->program, self->position, kind, self->stage[which], micro_batch);
}

static crl_status emit_forward(emitter *self, int which) {
    return append(self, CRL_ACTION_FORWARD, which, self->forward[which]++);
}

static crl_status emit_backward(emitter *self, int which) {
    self->weight[which]++;
    return append(self, CRL_ACTION_BACKWARD, which, self->backward[which]++);
}

static crl_status emit_input(emitter *self, int which) {
    return append(self, CRL_ACTION_INPUT, which, self->backward[which]++);
}

/* Of the two in turn, as their I were; of one when the other has none. */
static crl_status emit_weight(emitter *self) {
    const int which =
        self->weight[self->oldest] < self->backward[self->oldest] ? self->oldest : 1 - self->oldest;
    self->oldest = 1 - which;
    return append(self, CRL_ACTION_WEIGHT, which, self->weight[which]++);
}

static crl_status fill(emitter *self, int after) {
    for (int i = 0; i < 2 * after; i++) {
        CRL_TRY(emit_forward(self, 0));
    }
    for (int i = 0; i <= self->position; i++) {
        CRL_TRY(emit_forward(self, 0));
        CRL_TRY(emit_forward(self, 1));
    }
    self->oldest = 1;
    for (int i = 0; i < after; i++) {
        CRL_TRY(emit_input(self, 1));
        CRL_TRY(emit_weight(self));
        CRL_TRY(emit_forward(self, 1));
        self->oldest = 1;
    }
    return CRL_STATUS_OK;
}

static crl_status run_full(emitter *self, int rounds, int after) {
    for (int i = 0; i < rounds + after; i++) {
        if (i < rounds) {
            CRL_TRY(emit_forward(self, 0));
        }
        CRL_TRY(emit_backward(self, 1));
        CRL_TRY(emit_forward(self, 1));
        CRL_TRY(emit_backward(self, 0));
    }
    return CRL_STATUS_OK;
}

static crl_status run_empty(emitter *self, int micro_batches, int after) {
    const int pairs = self->position + 1;
    self->oldest = self->position % 2;
    for (int i = 0; i < 2 * pairs; i++) {
        const bool whole = i < pairs;
        CRL_TRY(whole ? emit_backward(self, 1 - i % 2) : emit_input(self, 1 - i % 2));
    }
    for (int i = 0; i < after; i++) {
        CRL_TRY(emit_weight(self));
        CRL_TRY(emit_input(self, 0));
    }
    while (self->weight[0] + self->weight[1] < 2 * micro_batches) {
        CRL_TRY(emit_weight(self));
    }
    return CRL_STATUS_OK;
}

static int padded(const crl_schedule_request *request) {
    const int least = 2 * request->positions;
    return request->micro_batches > least ? request->micro_batches : least;
}

static crl_status emit_position(crl_program *program, int position, int micro_batches) {
    const int positions = program->positions, after = positions - position - 1;
    emitter self = {.program = program,
                    .position = position,
                    .stage = {position, 2 * positions - position - 1}};
    CRL_TRY(fill(&self, after));
    CRL_TRY(run_full(&self, micro_batches - 2 * positions + position + 1, after));
    return run_empty(&self, micro_batches, after);
}

static crl_status emit(crl_program *program, const crl_schedule_request *request) {
    for (int p = 0; p < request->positions; p++) {
        CRL_TRY(emit_position(program, p, padded(request)));
    }
    return CRL_STATUS_OK;
}

extern const crl_schedule crl_schedule_dualpipe_v;

static crl_status build(crl_program **out, const crl_schedule_request *request) {
    return crl_schedule_build(out, &crl_schedule_dualpipe_v, request, emit);
}

static double bubble(const crl_schedule_request *request) {
    const int after = request->positions - 1, micro_batches = request->micro_batches;
    const int missing = padded(request) - micro_batches;
    const bool few = micro_batches <= request->positions;
    const double idle = few ? 5 * after - 2 * (micro_batches - 1) : after + 2 * missing;
    return crl_schedule_dealt_bubble(request, idle / (6.0 * micro_batches + idle));
}

static int peak_activations(const crl_schedule_request *request, int stage) {
    const int position = crl_v_shape_position(request, stage);
    return crl_schedule_dealt_peak(request, position, request->stages - stage);
}

const crl_schedule crl_schedule_dualpipe_v = {
    .name = "dualpipe-v",
    .help = "forwards of one stage in turn with backwards of the other, on a V: little bubble",
    .least_virtual = 2,
    .most_virtual = 2,
    .position = crl_v_shape_position,
    .build = build,
    .bubble = bubble,
    .peak_activations = peak_activations,
    .exact = crl_schedule_is_undealt,
};
