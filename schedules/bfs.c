/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Looped breadth-first: each position runs V = S/P stages, and all micro-batches go through one of
 * them before the first goes through the next [lamypoirier23]. Refuses one stage per position (that
 * is gpipe); has no use for groups.
 *
 *       0 | 0F0 0F1 2F0 2F1 ..  ..  ..  2B0---- 2B1---- 0B0---- 0B1----     P = V = M = 2
 *       1 | ..  1F0 1F1 3F0 3F1 3B0---- 3B1---- 1B0---- 1B1---- ..  ..
 *
 * Holds every micro-batch, like gpipe, in a bubble like interleaved's. A stage is done with its
 * weights, or its gradients, all at once: what loads weights or reduces gradients by stage has the
 * time of the other stages for it.
 *
 * cost card: bubble 1 - MV/(M + (V-1)max(M,P) + P-1) exact · peak activations M ·
 * messages 2(S-1)M
 */
#include "engine/ir/schedule.h"

#include "schedules/request_internal.h"

static crl_status emit_stage(crl_program *program, crl_action_kind kind, int stage) {
    for (int m = 0; m < program->micro_batches; m++) {
        CRL_TRY(crl_program_append(program, stage % program->positions, kind, stage, m));
    }
    return CRL_STATUS_OK;
}

static crl_status emit(crl_program *program, const crl_schedule_request *request) {
    for (int s = 0; s < request->stages; s++) {
        CRL_TRY(emit_stage(program, CRL_ACTION_FORWARD, s));
    }
    for (int s = request->stages - 1; s >= 0; s--) {
        CRL_TRY(emit_stage(program, CRL_ACTION_BACKWARD, s));
    }
    return CRL_STATUS_OK;
}

extern const crl_schedule crl_schedule_bfs;

static crl_status build(crl_program **out, const crl_schedule_request *request) {
    return crl_schedule_build(out, &crl_schedule_bfs, request, emit);
}

static double bubble(const crl_schedule_request *request) {
    const int positions = request->positions, micro_batches = request->micro_batches;
    const double chunks = request->stages / positions;
    const int round = micro_batches > positions ? micro_batches : positions;
    const double steps = micro_batches + (chunks - 1) * round + positions - 1;
    return crl_schedule_dealt_bubble(request, 1 - micro_batches * chunks / steps);
}

static int peak_activations(const crl_schedule_request *request, int stage) {
    return crl_schedule_dealt_peak(request, stage % request->positions, request->micro_batches);
}

const crl_schedule crl_schedule_bfs = {
    .name = "bfs",
    .help = "all micro-batches through one stage of a position, then the next: gpipe, interleaved",
    .least_virtual = 2,
    .build = build,
    .bubble = bubble,
    .peak_activations = peak_activations,
    .exact = crl_schedule_is_undealt,
};
