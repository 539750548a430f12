/* SPDX-License-Identifier: Apache-2.0 */
/*
 * ZB-H1: 1F1B with backward in two halves; the weight half fills what would be idle [qi23] §2.2.
 * Stage s runs as many forwards ahead as in 1F1B and its W s micro-batches behind its I, so every
 * stage holds P micro-batches from F to W, no more than the first one does in 1F1B. Refuses several
 * stages per position.
 *
 *       0 | F0 F1 F2 .. .. I0 W0 F3 I1 W1 F4 I2 W2 I3 W3 I4 W4
 *       1 | .. F0 F1 .. I0 F2 I1 W0 F3 I2 W1 F4 I3 W2 I4 W3 W4
 *       2 | .. .. F0 I0 F1 I1 F2 I2 W0 F3 I3 W1 F4 I4 W2 W3 W4
 *
 * cost card: bubble i/(3M+i) with i = P-1 + max(0, P-M), exact · peak activations on stage s
 * min(P-s, M) · messages 2(P-1)M · with other times a step is (P-1)(F+I-W) longer than M(F+I+W), a
 * third of 1F1B's loss, as long as W is the shortest
 */
#include "engine/ir/schedule.h"

#include "schedules/request_internal.h"
#include "schedules/zero_bubble_internal.h"

static crl_status emit(crl_program *program, const crl_schedule_request *request) {
    (void)request;
    return crl_zero_bubble_emit(program, 1);
}

extern const crl_schedule crl_schedule_zb_h1;

static crl_status build(crl_program **out, const crl_schedule_request *request) {
    return crl_schedule_build(out, &crl_schedule_zb_h1, request, emit);
}

static double bubble(const crl_schedule_request *request) {
    const int missing = request->positions - request->micro_batches;
    const double idle = request->positions - 1 + (missing > 0 ? missing : 0);
    return crl_schedule_dealt_bubble(request, idle / (3.0 * request->micro_batches + idle));
}

static int peak_activations(const crl_schedule_request *request, int stage) {
    return crl_schedule_dealt_peak(request, stage, request->stages - stage);
}

const crl_schedule crl_schedule_zb_h1 = {
    .name = "zb-h1",
    .help = "1f1b with weight gradients put off into idle time: a third of its bubble, its memory",
    .least_virtual = 1,
    .most_virtual = 1,
    .build = build,
    .bubble = bubble,
    .peak_activations = peak_activations,
    .exact = crl_schedule_is_undealt,
};
