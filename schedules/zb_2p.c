/* SPDX-License-Identifier: Apache-2.0 */
/*
 * ZB-2P: a zero-bubble schedule made for measured times of F, I, W and messages, within the memory
 * of 2·P micro-batches [qi23] §3.1, or within the limit that is given. Refuses several stages per
 * position, and limits that one micro-batch exceeds.
 *
 *       0 | F0 F1 F2 F3 F4 I0 W0 I1 W1 I2 W2 I3 W3 I4 W4
 *       1 | .. F0 F1 F2 I0 F3 I1 F4 I2 W0 I3 W1 I4 W2 W3 W4
 *       2 | .. .. F0 I0 F1 I1 F2 I2 F3 I3 F4 I4 W0 W1 W2 W3 W4
 *
 * No position waits once it has begun: the second one starts a step later than the first and ends a
 * step later. What is searched for is as in zb-1p.
 *
 * cost card, without costs: bubble i/(3M+i) with i = P-1 + max(0, P-M), at most · peak activations
 * min(2P, M), at most · messages 2(P-1)M
 */
#include "schedules/list_internal.h"

extern const crl_schedule crl_schedule_zb_2p, crl_schedule_1f1b, crl_schedule_zb_h1,
    crl_schedule_zb_h2;

static const crl_schedule *const KNOWN[] = {&crl_schedule_1f1b, &crl_schedule_zb_h1,
                                            &crl_schedule_zb_h2, NULL};
static const list_recipe RECIPE = {.pipelines = 2, .goal = LIST_GOAL_SPAN, .known = KNOWN};

static crl_status build(crl_program **out, const crl_schedule_request *request) {
    return crl_list_build(out, &crl_schedule_zb_2p, request, &RECIPE);
}

static int peak_activations(const crl_schedule_request *request, int stage) {
    return crl_list_peak(&crl_schedule_zb_2p, request, stage, RECIPE.pipelines);
}

const crl_schedule crl_schedule_zb_2p = {
    .name = "zb-2p",
    .help = "zero-bubble made for measured times, with twice the memory of 1f1b",
    .least_virtual = 1,
    .most_virtual = 1,
    .keeps_limit = true,
    .effort = 100,
    .build = build,
    .bubble = crl_list_bubble,
    .peak_activations = peak_activations,
};
