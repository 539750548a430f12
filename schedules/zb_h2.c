/* SPDX-License-Identifier: Apache-2.0 */
/*
 * ZB-H2: ZB-H1 with twice as many forwards ahead, so that there is nothing to wait for before the
 * first backward either; holds twice as much [qi23] §2.3. Refuses several stages per position.
 *
 *       0 | F0 F1 F2 F3 F4 I0 W0 F5 I1 W1 I2 W2 I3 W3 I4 W4 I5 W5
 *       1 | .. F0 F1 F2 I0 F3 I1 F4 I2 W0 F5 I3 W1 I4 W2 I5 W3 W4 W5
 *       2 | .. .. F0 I0 F1 I1 F2 I2 F3 I3 F4 I4 W0 F5 I5 W1 W2 W3 W4 W5
 *
 * No position waits between its first and its last action; the positions begin and end one after
 * the other, which steps in a row hide but one step's makespan does not.
 *
 * cost card: bubble i/(3M+i) with i = max(P-1, 2(P-1) - floor(M/2)), exact · peak activations on
 * stage s min(2(P-s)-1, M) · messages 2(P-1)M · with other times a position's step is
 * (P-1)(F+I-2W) longer than M(F+I+W), as long as W is the shortest
 */
#include "engine/ir/schedule.h"

#include "schedules/request_internal.h"
#include "schedules/zero_bubble_internal.h"

static crl_status emit(crl_program *program, const crl_schedule_request *request) {
    (void)request;
    return crl_zero_bubble_emit(program, 2);
}

extern const crl_schedule crl_schedule_zb_h2;

static crl_status build(crl_program **out, const crl_schedule_request *request) {
    return crl_schedule_build(out, &crl_schedule_zb_h2, request, emit);
}

static double bubble(const crl_schedule_request *request) {
    const int begins = request->positions - 1;
    const int fills = 2 * begins - request->micro_batches / 2;
    const double idle = fills > begins ? fills : begins;
    return crl_schedule_dealt_bubble(request, idle / (3.0 * request->micro_batches + idle));
}

static int peak_activations(const crl_schedule_request *request, int stage) {
    return crl_schedule_dealt_peak(request, stage, 2 * (request->stages - stage) - 1);
}

const crl_schedule crl_schedule_zb_h2 = {
    .name = "zb-h2",
    .help = "zb-h1 with twice the forwards ahead: no idle time between steps, twice the memory",
    .least_virtual = 1,
    .most_virtual = 1,
    .build = build,
    .bubble = bubble,
    .peak_activations = peak_activations,
    .exact = crl_schedule_is_undealt,
};
