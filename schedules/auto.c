/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The shortest step that list scheduling finds for measured times of F, I, W and messages, within a
 * memory limit (without one: twice what 1F1B keeps): never longer than 1F1B where that fits. One
 * stage per position, or two on a V, p and 2P-p-1, where the last stage meets the first [qi24].
 * Refuses more stages, and limits that one micro-batch exceeds.
 *
 *       0 | 0F0 0F1 0F2 3F0 3I0 3F1 3I1 0I0 3W0 0I1 0W0 3F2 3I2 3W1 0W1 0I2 0W2 3W2
 *       1 | ..  1F0 2F0 1F1 2F1 2I0 1I0 2I1 1I1 1F2 2F2 1W0 2W0 2I2 1I2 1W1 2W1 1W2 2W2
 *
 * It tries what it knows and takes the best: an order for these costs has no formula.
 *
 * cost card, without costs: bubble i/(3VM+i) with V = S/P and i = P-1 + max(0, P-M), on a V
 * P-1 + max(0, 2(P-M), 4(P-M)-P), at most · peak activations of a stage min(2VP, M), at most ·
 * messages 2(S-V)M
 */
#include "schedules/list_internal.h"
#include "schedules/v_shape_internal.h"

extern const crl_schedule crl_schedule_auto, crl_schedule_1f1b, crl_schedule_zb_h1,
    crl_schedule_zb_h2, crl_schedule_zb_v, crl_schedule_v_half, crl_schedule_v_min,
    crl_schedule_dualpipe_v;

static const crl_schedule *const KNOWN[] = {&crl_schedule_1f1b,
                                            &crl_schedule_zb_h1,
                                            &crl_schedule_zb_h2,
                                            &crl_schedule_zb_v,
                                            &crl_schedule_v_half,
                                            &crl_schedule_v_min,
                                            &crl_schedule_dualpipe_v,
                                            NULL};
static const list_recipe RECIPE = {.pipelines = 2, .goal = LIST_GOAL_MAKESPAN, .known = KNOWN};

static crl_status build(crl_program **out, const crl_schedule_request *request) {
    return crl_list_build(out, &crl_schedule_auto, request, &RECIPE);
}

static int peak_activations(const crl_schedule_request *request, int stage) {
    return crl_list_peak(&crl_schedule_auto, request, stage, RECIPE.pipelines);
}

const crl_schedule crl_schedule_auto = {
    .name = "auto",
    .help = "the shortest step found for measured times, within a memory limit",
    .least_virtual = 1,
    .most_virtual = 2,
    .position = crl_v_shape_position,
    .keeps_limit = true,
    .effort = 100,
    .build = build,
    .bubble = crl_list_bubble,
    .peak_activations = peak_activations,
};
