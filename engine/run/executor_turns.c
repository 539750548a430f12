/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The turning points of a training step: where its backward pass begins, where its losses are
 * known. A pass that turns out to be in vain is carried on to its end without computing, so that
 * every message that was started is completed:
 *
 *     F0 send F1 send recv' | B0 ...         recv' is the first that touches gradients: the turn is
 *                 turn ----^                 before it, on every rank before its own first one
 *
 * No rank has moved a gradient when it turns, and all decide alike, so those that follow can be
 * left out on both sides. Refuses to know why a pass may be in vain.
 */
#include "engine/run/executor_internal.h"

static bool moves_gradient(const crl_executor *x, const crl_action *action) {
    return action->message >= 0 && x->config.program->message[action->message].gradient;
}

void crl_turns_begin(crl_turn_state *state, const crl_executor *x, const crl_action_list *list,
                     crl_executor_step *step) {
    const crl_plan *plan = x->config.plan;
    const int loss_stage = crl_plan_stage_of(plan, plan->graph->loss_node);
    *state = (crl_turn_state){.last_loss = -1};
    for (int i = 0; i < list->count; i++) {
        const crl_action *action = &list->action[i];
        if (action->kind == CRL_ACTION_FORWARD && action->stage == loss_stage) {
            state->last_loss = i;
        }
    }
    step->in_vain = false;
}

crl_status crl_turns_reach(crl_turn_state *state, const crl_executor *x,
                           const crl_action_list *list, int index, crl_executor_step *step) {
    const crl_executor_turns *turns = step->turns;
    if (!turns) {
        return CRL_STATUS_OK;
    }
    const crl_action *action = index < list->count ? &list->action[index] : NULL;
    const bool forward = action && (action->message >= 0 ? !moves_gradient(x, action)
                                                         : action->kind == CRL_ACTION_FORWARD);
    if (!state->backward && !forward) {
        bool go = true;
        state->backward = true;
        CRL_TRY(turns->before_backward(turns->context, &go));
        step->in_vain = !go;
    }
    if (state->backward && !step->in_vain && !state->losses && index > state->last_loss) {
        state->losses = true;
        CRL_TRY(turns->losses_known(turns->context));
    }
    return CRL_STATUS_OK;
}

bool crl_turns_skip(const crl_executor *x, const crl_action *action,
                    const crl_executor_step *step) {
    return step->in_vain && (action->message < 0 || moves_gradient(x, action));
}
