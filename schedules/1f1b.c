/* SPDX-License-Identifier: Apache-2.0 */
/*
 * 1F1B: after a warm-up of S-s-1 forwards, stage s alternates one forward and one backward
 * [narayanan19]. Refuses several stages per position.
 *
 *       0 | F0 F1 F2 .. .. .. .. B0--- F3 B1--- .. B2--- .. B3---
 *       1 | .. F0 F1 .. .. B0--- F2 B1--- F3 B2--- .. B3--- .. ..
 *       2 | .. .. F0 B0--- F1 B1--- F2 B2--- F3 B3--- .. .. .. ..
 *
 * As fast as gpipe, but what a stage holds does not grow with M.
 *
 * Where stage s has w replicas, and W replicas come after it, the list warms up with
 * a = w·ceil(W/w) forwards: dealt out to w, that is ceil(W/w) each, enough to keep all that come
 * after it busy [narayanan19] §3.2. Equal widths: w(S-s-1), the same list for each.
 *
 * cost card: bubble (S-1)/(M+S-1), exact with a width of 1 · peak activations on stage s
 * min(a+1, M), of a replica of the widest ceil(W/w)+1 when shares are even · messages 2(S-1)M
 */
#include "engine/ir/schedule.h"

#include "schedules/request_internal.h"

static int warm_up(const crl_schedule_request *request, int stage) {
    const int width = request->widths ? request->widths[stage] : 1;
    int64_t after = 0;
    for (int s = stage + 1; s < request->stages; s++) {
        after += request->widths ? request->widths[s] : 1;
    }
    const int64_t forwards = (after + width - 1) / width * width;
    return forwards < request->micro_batches ? (int)forwards : request->micro_batches;
}

static crl_status emit_stage(crl_program *program, int stage, int ahead) {
    for (int i = 0; i < program->micro_batches + ahead; i++) {
        if (i < program->micro_batches) {
            CRL_TRY(crl_program_append(program, stage, CRL_ACTION_FORWARD, stage, i));
        }
        if (i >= ahead) {
            CRL_TRY(crl_program_append(program, stage, CRL_ACTION_BACKWARD, stage, i - ahead));
        }
    }
    return CRL_STATUS_OK;
}

static crl_status emit(crl_program *program, const crl_schedule_request *request) {
    for (int s = 0; s < request->stages; s++) {
        CRL_TRY(emit_stage(program, s, warm_up(request, s)));
    }
    return CRL_STATUS_OK;
}

extern const crl_schedule crl_schedule_1f1b;

static crl_status build(crl_program **out, const crl_schedule_request *request) {
    return crl_schedule_build(out, &crl_schedule_1f1b, request, emit);
}

static double bubble(const crl_schedule_request *request) {
    const double idle = request->stages - 1;
    return crl_schedule_dealt_bubble(request, idle / (request->micro_batches + idle));
}

static int peak_activations(const crl_schedule_request *request, int stage) {
    return crl_schedule_dealt_peak(request, stage, warm_up(request, stage) + 1);
}

const crl_schedule crl_schedule_1f1b = {
    .name = "1f1b",
    .help = "one forward, one backward: holds at most as many micro-batches as there are stages",
    .least_virtual = 1,
    .most_virtual = 1,
    .build = build,
    .bubble = bubble,
    .peak_activations = peak_activations,
    .exact = crl_schedule_is_undealt,
};
