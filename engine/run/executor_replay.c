/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Steps whose work is always the same are recorded once, where the device can (a CUDA graph), and
 * then queued as one: the host no longer pays for every kernel.
 *
 *     step 1   turn: backward | record F B F B ... | replay | turn: losses
 *     step 2   turn: backward |                      replay | turn: losses
 *
 * Refuses programs with messages, whose posting is the host's work, layers that draw random
 * numbers, which depend on the step, and steps with padding.
 */
#include "engine/run/executor_internal.h"

static bool draws(const crl_executor *x) {
    const crl_graph *graph = x->config.plan->graph;
    for (int n = 0; n < graph->nodes; n++) {
        if (graph->node[n].spec.draws) {
            return true;
        }
    }
    return false;
}

void crl_executor_plan_recording(crl_executor *x) {
    x->records = x->config.sync && x->config.backend->device->record_begin &&
                 crl_mesh_rows(x->config.mesh) * x->config.mesh->data == 1 && !draws(x);
}

void crl_executor_forget_recording(crl_executor *x) {
    if (x->recording) {
        x->config.backend->device->recording_destroy(x->recording);
        x->recording = NULL;
    }
}

/* The recording ends in any case: a stream that records takes no other work. */
static crl_status record(crl_executor *x, crl_executor_step *step) {
    const crl_device *device = x->config.backend->device;
    crl_executor_forget_recording(x);
    CRL_TRY(device->record_begin(x->config.stream));
    const crl_status status = crl_executor_actions(x, step);
    const crl_error first = *crl_error_get();
    const crl_status ended = device->record_end(x->config.stream, &x->recording);
    if (status != CRL_STATUS_OK) {
        crl_error_set(&first);
        return status;
    }
    x->recorded_scale = step->loss_scale;
    return ended;
}

crl_status crl_executor_replay(crl_executor *x, crl_executor_step *step) {
    const crl_executor_turns *turns = step->turns;
    bool go = true;
    CRL_TRY(turns->before_backward(turns->context, &go));
    CRL_ASSERT(go);
    step->turns = NULL; /* are taken here */
    crl_status status = CRL_STATUS_OK;
    if (!x->recording || x->recorded_scale != step->loss_scale) {
        status = record(x, step);
    } else {
        crl_grad_sync_replayed(x->config.sync);
    }
    step->turns = turns;
    CRL_TRY(status);
    CRL_TRY(x->config.backend->device->replay(x->config.stream, x->recording));
    return turns->losses_known(turns->context);
}
