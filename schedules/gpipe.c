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

static crl_status emit(crl_program *program, crl_action_kind kind) {
    for (int s = 0; s < program->stages; s++) {
        for (int m = 0; m < program->micro_batches; m++) {
            CRL_TRY(crl_program_append(program, s, kind, s, m));
        }
    }
    return CRL_STATUS_OK;
}

extern const crl_schedule crl_schedule_gpipe;

static crl_status build(crl_program **out, const crl_schedule_request *request) {
    crl_status status = CRL_STATUS_OK;
    crl_program *program = NULL;
    CRL_TRY(crl_schedule_check_request(&crl_schedule_gpipe, request));
    CRL_TRY(
        crl_program_create(&program, request->positions, request->stages, request->micro_batches));
    CRL_TRY_OUT(emit(program, CRL_ACTION_FORWARD));
    CRL_TRY_OUT(emit(program, CRL_ACTION_BACKWARD));
    *out = program;
    return CRL_STATUS_OK;
out:
    crl_program_destroy(program);
    return status;
}

static double bubble(const crl_schedule_request *request) {
    const double idle = request->stages - 1;
    return crl_schedule_dealt_bubble(request, idle / (request->micro_batches + idle));
}

static int peak_activations(const crl_schedule_request *request, int stage) {
    return crl_schedule_dealt_peak(request, stage, request->micro_batches);
}

static bool exact(const crl_schedule_request *request) {
    return !request->widths;
}

const crl_schedule crl_schedule_gpipe = {
    .name = "gpipe",
    .help = "all forwards, then all backwards: simple, holds every micro-batch",
    .least_virtual = 1,
    .most_virtual = 1,
    .build = build,
    .bubble = bubble,
    .peak_activations = peak_activations,
    .exact = exact,
};
