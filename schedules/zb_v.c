/* SPDX-License-Identifier: Apache-2.0 */
/*
 * ZB-V: zero bubble on a V, where the last stage sits beside the first, so that backward starts
 * where forward ends and the memory of 1F1B is enough [qi23] §6, [qi24]. Refuses other than two
 * stages per position.
 *
 *       0 | 0F0 0F1 0F2 ..  ..  5F0 5I0 5F1 5I1 5F2 5I2 0I0 5W0 0I1 5W1 0I2 5W2 0W0 0W1 0W2
 *       1 | ..  1F0 1F1 1F2 4F0 ..  4F1 4I0 4F2 4I1 1I0 4I2 1I1 4W0 1I2 4W1 1W0 4W2 1W1 1W2
 *       2 | ..  ..  2F0 3F0 2F1 3F1 2F2 3F2 3I0 2I0 3I1 2I1 3I2 2I2 3W0 2W0 3W1 2W1 3W2 2W2
 *
 * The pattern goes down in steps of 4 and up in steps of 2, which are the same modulo 6: wherever
 * the four passes fit on one position, they fit on all.
 *
 * cost card: bubble at most i/(6M+i) with i = max(5P/4, 3P-1-2M, 4P-1-4M) for M <= P, else
 * max(5P/4, 3P-1-M); 1F1B's is 6(P-1), positions that begin one after the other have P-1 · from F
 * to W a position holds at most 2P micro-batches of a stage, as in 1F1B · peak activations of stage
 * p min(2P-p-1, M), of stage 2P-p-1 min(p+1, M) · messages 2(S-2)M
 */
#include "engine/ir/schedule.h"

#include "schedules/request_internal.h"
#include "schedules/v_shape_internal.h"

#include <math.h>

static void pattern(int positions, int position, int start[V_PASSES]) {
    start[V_FORWARD_DOWN] = 4 * position;
    start[V_FORWARD_UP] = 6 * positions - 5 - 2 * position;
    start[V_INPUT_DOWN] = 6 * positions - 4 + 4 * position;
    start[V_INPUT_UP] = 12 * positions - 9 - 2 * position;
}

extern const crl_schedule crl_schedule_zb_v;

static crl_status build(crl_program **out, const crl_schedule_request *request) {
    CRL_TRY(crl_schedule_check_request(&crl_schedule_zb_v, request));
    return crl_v_shape_build(out, request, pattern);
}

static double bubble(const crl_schedule_request *request) {
    const int P = request->positions, M = request->micro_batches;
    const double few = M > P ? 3 * P - 1 - M : fmax(3 * P - 1 - 2 * M, 4 * P - 1 - 4 * M);
    const double idle = P == 1 ? 0 : fmax(few, 1.25 * P);
    return crl_schedule_dealt_bubble(request, idle / (6.0 * request->micro_batches + idle));
}

static int peak_activations(const crl_schedule_request *request, int stage) {
    return crl_v_shape_peak(request, stage, pattern);
}

const crl_schedule crl_schedule_zb_v = {
    .name = "zb-v",
    .help = "stages on a V: the memory of 1f1b, idle only where positions begin and end",
    .least_virtual = 2,
    .most_virtual = 2,
    .position = crl_v_shape_position,
    .build = build,
    .bubble = bubble,
    .peak_activations = peak_activations,
};
