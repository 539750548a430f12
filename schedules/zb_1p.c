/* SPDX-License-Identifier: Apache-2.0 */
/*
 * ZB-1P: a zero-bubble schedule made for measured times of F, I, W and messages, within the memory
 * of 1·P micro-batches [qi23] §3.1, or within the limit that is given. Refuses several stages per
 * position, and limits that one micro-batch exceeds.
 *
 *       0 | F0 F1 F2 .. .. I0 W0 F3 I1 W1 F4 I2 W2 I3 W3 I4 W4
 *       1 | .. F0 F1 .. I0 F2 I1 W0 F3 I2 W1 F4 I3 W2 I4 W3 W4
 *       2 | .. .. F0 I0 F1 I1 F2 I2 W0 F3 I3 W1 F4 I4 W2 W3 W4
 *
 * That is zb-h1's without costs, and with costs where they suit it; what is searched for is the
 * shortest time of a position from its first start to its last end, which is what a step adds when
 * steps follow each other without a barrier; then the shortest step.
 *
 * cost card, without costs: bubble i/(3M+i) with i = P-1 + max(0, P-M), at most · peak activations
 * min(P, M), at most · messages 2(P-1)M
 */
#include "schedules/list_internal.h"

extern const crl_schedule crl_schedule_zb_1p, crl_schedule_1f1b, crl_schedule_zb_h1;

static const crl_schedule *const KNOWN[] = {&crl_schedule_1f1b, &crl_schedule_zb_h1, NULL};
static const list_recipe RECIPE = {.pipelines = 1, .goal = LIST_GOAL_SPAN, .known = KNOWN};

static crl_status build(crl_program **out, const crl_schedule_request *request) {
    return crl_list_build(out, &crl_schedule_zb_1p, request, &RECIPE);
}

static int peak_activations(const crl_schedule_request *request, int stage) {
    return crl_list_peak(&crl_schedule_zb_1p, request, stage, RECIPE.pipelines);
}

const crl_schedule crl_schedule_zb_1p = {
    .name = "zb-1p",
    .help = "zero-bubble made for measured times, with no more memory than 1f1b",
    .least_virtual = 1,
    .most_virtual = 1,
    .keeps_limit = true,
    .effort = 100,
    .build = build,
    .bubble = crl_list_bubble,
    .peak_activations = peak_activations,
};
