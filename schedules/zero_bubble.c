/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The lists of zb-h1 and zb-h2 [qi23]. Refuses to know bubbles: see the schedules.
 *
 * The first stage has no idle time at its end that weights could fill, so it does not put them off;
 * the last one has the most, and what it puts off would otherwise keep gradients from leaving.
 */
#include "schedules/zero_bubble_internal.h"

static crl_status emit_stage(crl_program *program, int stage, int ahead, int behind) {
    const int micro_batches = program->micro_batches;
    for (int i = 0; i < micro_batches + ahead + behind; i++) {
        const int input = i - ahead, weight = input - behind;
        if (i < micro_batches) {
            CRL_TRY(crl_program_append(program, stage, CRL_ACTION_FORWARD, stage, i));
        }
        if (input >= 0 && input < micro_batches) {
            CRL_TRY(crl_program_append(program, stage, CRL_ACTION_INPUT, stage, input));
        }
        if (weight >= 0) {
            CRL_TRY(crl_program_append(program, stage, CRL_ACTION_WEIGHT, stage, weight));
        }
    }
    return CRL_STATUS_OK;
}

crl_status crl_zero_bubble_emit(crl_program *program, int lead) {
    const int stages = program->stages;
    for (int s = 0; s < stages; s++) {
        const int behind = lead * s;
        CRL_TRY(emit_stage(program, s, lead * (stages - s - 1), behind));
    }
    return CRL_STATUS_OK;
}
