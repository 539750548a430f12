/* SPDX-License-Identifier: Apache-2.0 */
/*
 * GPipe: all forwards, then all backwards [huang19]. Refuses several stages per position.
 *
 *       0 | F0 F1 F2 .. .. .. .. .. .. B0--- B1--- B2---
 *       1 | .. F0 F1 F2 .. .. .. B0--- B1--- B2--- .. ..
 *       2 | .. .. F0 F1 F2 B0--- B1--- B2--- .. .. .. ..
 *
 * Backwards run in ascending order as everywhere, because sums of gradients are taken in that
 * order.
 *
 * cost card: bubble (S-1)/(M+S-1) exact · peak activations M, of a replica M/w rounded up ·
 * messages 2(S-1)M
 */
#include "engine/ir/schedule.h"

#include "schedules/request_internal.h"

static crl_status emit_kind(crl_program *program, crl_action_kind kind) {
    for (int s = 0; s < program->stages; s++) {
        for (int m = 0; m < program->micro_batches; m++) {
            CRL_TRY(crl_program_append(program, s, kind, s, m));
        }
    }
    return CRL_STATUS_OK;
}

static crl_status emit(crl_program *program, const crl_schedule_request *request) {
    (void)request;
    CRL_TRY(emit_kind(program, CRL_ACTION_FORWARD));
    return emit_kind(program, CRL_ACTION_BACKWARD);
}

extern const crl_schedule crl_schedule_gpipe;

static crl_status build(crl_program **out, const crl_schedule_request *request) {
    return crl_schedule_build(out, &crl_schedule_gpipe, request, emit);
}

static double bubble(const crl_schedule_request *request) {
    const double idle = request->stages - 1;
    return crl_schedule_dealt_bubble(request, idle / (request->micro_batches + idle));
}

static int peak_activations(const crl_schedule_request *request, int stage) {
    return crl_schedule_dealt_peak(request, stage, request->micro_batches);
}

const crl_schedule crl_schedule_gpipe = {
    .name = "gpipe",
    .help = "all forwards, then all backwards: simple, holds every micro-batch",
    .least_virtual = 1,
    .most_virtual = 1,
    .build = build,
    .bubble = bubble,
    .peak_activations = peak_activations,
    .exact = crl_schedule_is_undealt,
};
