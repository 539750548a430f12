/* SPDX-License-Identifier: Apache-2.0 */
/* What the simulator and the view share. */
#pragma once

#include "engine/ir/simulate.h"

/* Seconds a compute action takes; messages, REDUCE and STEP: 0. */
static inline double action_duration(const crl_simulation_config *config,
                                     const crl_action *action) {
    const crl_stage_cost *time = &config->stage[action->stage];
    switch (action->kind) {
    case CRL_ACTION_FORWARD:
        return time->forward_s;
    case CRL_ACTION_BACKWARD:
        return time->input_s + time->weight_s;
    case CRL_ACTION_INPUT:
        return time->input_s;
    case CRL_ACTION_WEIGHT:
        return time->weight_s;
    default:
        return 0;
    }
}
