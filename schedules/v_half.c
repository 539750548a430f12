/* SPDX-License-Identifier: Apache-2.0 */
/*
 * V-Half: stages on a V, in a pattern that holds half of what 1F1B does [qi24] §3. Refuses other
 * than two stages per position.
 *
 *       0 | 0F0 0F1 0F2 ..  ..  5F0 5I0 5W0 ..  ..  5F1 5I1 0I0 5W1 0W0 5F2 5I2 0I1 ...     P = 3
 *       1 | ..  1F0 1F1 1F2 4F0 ..  ..  4I0 4W0 4F1 1I0 1W0 4I1 4W1 4F2 ..  1I1 4I2 ...
 *       2 | ..  ..  2F0 3F0 2F1 3F1 ..  ..  3I0 2I0 3W0 2F2 2W0 3F2 3I1 2I1 3W1 2W1 ...
 *
 * The pattern goes down in steps of 2 and up in steps of 1; where P is even it turns three units
 * later, or down and up would meet modulo 6.
 *
 * cost card: bubble at most i/(6M+i) with i = max(3P-4, 4P-3-2M) (P > 1); 1F1B's is 6(P-1) · from F
 * to W a position holds about P+2 micro-batches of a stage, 1F1B's first position 2P · messages
 * 2(S-2)M
 */
#include "engine/ir/schedule.h"

#include "schedules/request_internal.h"
#include "schedules/v_shape_internal.h"

static void pattern(int positions, int position, int start[V_PASSES]) {
    const int turn = positions % 2 == 0 ? 3 : 0;
    start[V_FORWARD_DOWN] = 2 * position;
    start[V_FORWARD_UP] = 3 * positions - 2 - position;
    start[V_INPUT_DOWN] = 3 * positions - 1 + turn + 2 * position;
    start[V_INPUT_UP] = 6 * positions - 2 + turn - position;
}

extern const crl_schedule crl_schedule_v_half;

static crl_status build(crl_program **out, const crl_schedule_request *request) {
    CRL_TRY(crl_schedule_check_request(&crl_schedule_v_half, request));
    return crl_v_shape_build(out, request, pattern);
}

static double bubble(const crl_schedule_request *request) {
    const int full = 3 * request->positions - 4;
    const int few = 4 * request->positions - 3 - 2 * request->micro_batches;
    const double idle = request->positions == 1 ? 0 : few > full ? few : full;
    return crl_schedule_dealt_bubble(request, idle / (6.0 * request->micro_batches + idle));
}

static int peak_activations(const crl_schedule_request *request, int stage) {
    return crl_v_shape_peak(request, stage, pattern);
}

const crl_schedule crl_schedule_v_half = {
    .name = "v-half",
    .help = "stages on a V: half the memory of 1f1b, half its bubble",
    .least_virtual = 2,
    .most_virtual = 2,
    .position = crl_v_shape_position,
    .build = build,
    .bubble = bubble,
    .peak_activations = peak_activations,
};
