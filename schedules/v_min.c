/* SPDX-License-Identifier: Apache-2.0 */
/*
 * V-Min: stages on a V, in the pattern that holds the least: each pass follows at once on the next
 * position [qi24] §3. Refuses other than two stages per position.
 *
 *       0 | 0F0 0F1 ..  ..  ..  5F0 5I0 5W0 ..  5F1 5I1 0I0 5W1 0W0 ...                     P = 3
 *       1 | ..  1F0 1F1 ..  4F0 ..  ..  4I0 4F1 4W0 1I0 ..  4I1 1W0 ...
 *       2 | ..  ..  2F0 3F0 2F1 3F1 ..  ..  3I0 2I0 3W0 2W0 ...
 *
 * Where P is a multiple of 3 backward starts two units later, or passes would meet modulo 6.
 *
 * cost card: bubble i/(6M+i) with i = 4P-5 (two less where 3 divides P and M > 1; P > 1); 1F1B's is
 * 6(P-1) · from F to W a position holds about (2P+4)/3 micro-batches of a stage, 1F1B's first
 * position 2P · messages 2(S-2)M · with other times than F = I = W the pattern no longer fits
 * tightly, and the idle time grows with M
 */
#include "engine/ir/schedule.h"

#include "schedules/request_internal.h"
#include "schedules/v_shape_internal.h"

static void pattern(int positions, int position, int start[V_PASSES]) {
    const int turn = positions % 3 == 0 ? 2 : 0;
    start[V_FORWARD_DOWN] = position;
    start[V_FORWARD_UP] = 2 * positions - 1 - position;
    start[V_INPUT_DOWN] = 2 * positions + turn + position;
    start[V_INPUT_UP] = 4 * positions + turn - 1 - position;
}

extern const crl_schedule crl_schedule_v_min;

static crl_status build(crl_program **out, const crl_schedule_request *request) {
    CRL_TRY(crl_schedule_check_request(&crl_schedule_v_min, request));
    return crl_v_shape_build(out, request, pattern);
}

static double bubble(const crl_schedule_request *request) {
    const int least = 4 * request->positions - 5;
    const bool turns = request->positions % 3 == 0 && request->micro_batches > 1;
    const double idle = request->positions == 1 ? 0 : least - (turns ? 2 : 0);
    return crl_schedule_dealt_bubble(request, idle / (6.0 * request->micro_batches + idle));
}

static int peak_activations(const crl_schedule_request *request, int stage) {
    return crl_v_shape_peak(request, stage, pattern);
}

const crl_schedule crl_schedule_v_min = {
    .name = "v-min",
    .help = "stages on a V: a third of the memory of 1f1b, a smaller bubble",
    .least_virtual = 2,
    .most_virtual = 2,
    .position = crl_v_shape_position,
    .build = build,
    .bubble = bubble,
    .peak_activations = peak_activations,
};
