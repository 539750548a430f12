/* SPDX-License-Identifier: Apache-2.0 */
/* Running a program: the loop, and messages. */
#include <stdio.h>
#include <string.h>

#include "engine/base/thread.h"
#include "engine/run/executor.h"
#include "engine/run/executor_internal.h"

void *crl_executor_locate(const crl_executor *x, const crl_local_stage *local, int micro_batch,
                          crl_place place) {
    if (place.block == CRL_BLOCK_WORKSPACE) {
        return x->workspace + place.offset_bytes;
    }
    if (place.block < 0) {
        return NULL;
    }
    const int index = micro_batch * local->layout->blocks + place.block;
    return x->activations + local->block_offset[index] + place.offset_bytes;
}

crl_status crl_executor_progress(void *executor) {
    const crl_executor *x = executor;
    if (x->turns) {
        CRL_TRY(x->turns->progress(x->turns->context));
    }
    return x->config.sync ? crl_grad_sync_progress(x->config.sync) : CRL_STATUS_OK;
}

/* The buffer of a message on the side of `stage`. */
static void *message_buffer(const crl_executor *x, const crl_message *message, int stage) {
    const crl_local_stage *local = &x->local[x->local_of_stage[stage]];
    const int value = x->config.plan->edge[message->edge].value;
    const crl_place place =
        (message->gradient ? local->layout->gradient : local->layout->value)[value];
    return crl_executor_locate(x, local, message->micro_batch, place);
}

/* Both stages are on this rank: the later of the two sides copies. */
static crl_status run_local_message(crl_executor *x, const crl_message *message, int index) {
    const crl_edge *edge = &x->config.plan->edge[message->edge];
    if (!x->reached[index]) {
        x->reached[index] = true;
        return CRL_STATUS_OK;
    }
    x->reached[index] = false;
    const int from = message->gradient ? edge->to : edge->from;
    const int to = message->gradient ? edge->from : edge->to;
    return crl_device_copy(x->config.backend->device, x->config.stream,
                           message_buffer(x, message, to), message_buffer(x, message, from),
                           message->bytes);
}

static crl_status wait_message(crl_executor *x, const crl_action *action, crl_request *request) {
    const crl_message *message = &x->config.program->message[action->message];
    bool done = false;
    CRL_TRY(crl_comm_test(x->comm, request, &done));
    if (done) {
        return CRL_STATUS_OK;
    }
    char what[96];
    snprintf(what, sizeof what, "%s %s stage %d, micro-batch %d",
             message->gradient ? "gradient" : "activation",
             action->kind == CRL_ACTION_WAIT_SEND ? "of" : "for", action->stage,
             x->config.first_micro_batch + message->micro_batch);
    return crl_comm_wait(x->comm, request, what, crl_executor_progress, x);
}

static crl_status run_message(crl_executor *x, const crl_action *action) {
    const crl_message *message = &x->config.program->message[action->message];
    const bool sending = action->kind == CRL_ACTION_SEND || action->kind == CRL_ACTION_WAIT_SEND;
    crl_request *request = &x->request[action->message * 2 + (sending ? 0 : 1)];
    const bool waiting =
        action->kind == CRL_ACTION_WAIT_SEND || action->kind == CRL_ACTION_WAIT_RECV;
    if (message->from == message->to) {
        return waiting ? CRL_STATUS_OK : run_local_message(x, message, action->message);
    }
    if (waiting) {
        return wait_message(x, action, request);
    }
    const int peer =
        crl_mesh_rank_of_row(x->config.mesh, x->pipeline, sending ? message->to : message->from);
    void *buffer = message_buffer(x, message, action->stage);
    const int tag = CRL_TAG_ACTION | (x->config.first_tag + action->message);
    x->watched = request;
    return sending ? crl_comm_send(x->comm, peer, tag, buffer, message->bytes, request)
                   : crl_comm_recv(x->comm, peer, tag, buffer, message->bytes, request);
}

crl_status crl_executor_actions(crl_executor *x, crl_executor_step *step) {
    const crl_action_list *list = &x->config.program->position[x->row];
    crl_turn_state turn;
    crl_turns_begin(&turn, x, list, step);
    for (int i = 0; i < list->count; i++) {
        const crl_action *action = &list->action[i];
        CRL_TRY(crl_turns_reach(&turn, x, list, i, step));
        if (crl_turns_skip(x, action, step)) {
            continue;
        }
        if (action->message >= 0) {
            CRL_TRY(run_message(x, action));
        } else if (action->kind <= CRL_ACTION_WEIGHT) {
            CRL_TRY(crl_executor_compute(x, step, action));
        } /* REDUCE and STEP are done by the caller, after the last action */
    }
    return crl_turns_reach(&turn, x, list, list->count, step);
}

crl_status crl_executor_run(crl_executor *x, crl_executor_step *step) {
    const int64_t begin_ns = crl_clock_ns();
    step->busy_ns = 0;
    x->watched = NULL;
    x->turns = step->turns;
    CRL_TRY(crl_device_zero(x->config.backend->device, x->config.stream, step->loss,
                            (size_t)crl_executor_micro_batches(x) * sizeof *step->loss));
    CRL_TRY(crl_fields_begin(x, step));
    if (x->records && step->alike && step->turns && !x->profile_ns) {
        CRL_TRY(crl_executor_replay(x, step));
    } else {
        CRL_TRY(crl_executor_actions(x, step));
    }
    CRL_TRY(crl_fields_end(x));
    step->span_ns = crl_clock_ns() - begin_ns;
    return CRL_STATUS_OK;
}

const void *crl_executor_value(const crl_executor *x, int value) {
    const int stage =
        crl_plan_stage_of(x->config.plan, x->config.plan->graph->value[value].producer);
    const crl_local_stage *local = &x->local[x->local_of_stage[stage]];
    return crl_executor_locate(x, local, 0, local->layout->value[value]);
}
