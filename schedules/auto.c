/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The shortest step that list scheduling finds for measured times of F, I, W and messages, within a
 * memory limit (without one: twice what 1F1B keeps): never longer than 1F1B where that fits. One
 * stage per position, or two on a V, p and 2P-p-1, where the last stage meets the first [qi24].
 * Refuses more stages, and limits that one micro-batch exceeds.
 *
 *       0 | 0F0 0F1 0F2 .. 3F0 .. 3I0 ..        P = 2 on a V: stages 1 and 2 are neighbours on
 *       1 | ..  1F0 2F0 2I0 1I0 ..              one position, so no message lies between them
 *
 * cost card, without costs: bubble i/(3VM+i) with V = S/P, i = P-1 + max(0, P-M), at most · peak
 * activations of a stage min(2VP, M), at most · messages 2(S-V)M
 */
#include "schedules/list_internal.h"

/* Micro-batches a position may hold, in P. */
static const double PIPELINES = 2;

extern const crl_schedule crl_schedule_auto;

static int position(const crl_schedule_request *request, int stage) {
    const int positions = request->positions;
    return stage < positions ? stage : 2 * positions - 1 - stage;
}

static crl_status build(crl_program **out, const crl_schedule_request *request) {
    return crl_list_build(out, &crl_schedule_auto, request, PIPELINES, LIST_GOAL_MAKESPAN);
}

static int peak_activations(const crl_schedule_request *request, int stage) {
    return crl_list_peak(&crl_schedule_auto, request, stage, PIPELINES);
}

const crl_schedule crl_schedule_auto = {
    .name = "auto",
    .help = "the shortest step found for measured times, within a memory limit",
    .least_virtual = 1,
    .most_virtual = 2,
    .position = position,
    .effort = 100,
    .build = build,
    .bubble = crl_list_bubble,
    .peak_activations = peak_activations,
};
