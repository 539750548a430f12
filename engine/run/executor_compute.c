/* SPDX-License-Identifier: Apache-2.0 */
/* Computing: what F, B, I and W of a stage and a micro-batch do, node by node. */
#include <inttypes.h>
#include <stdio.h>

#include "engine/base/thread.h"
#include "engine/run/executor_internal.h"
#include "engine/run/loader.h"

/* One compute action under way. */
typedef struct action_call {
    crl_executor *x;
    crl_executor_step *step;
    const crl_local_stage *local;
    const crl_place *value, *save; /* forward's places, or backward's */
    int micro_batch;               /* of this pipeline */
    char *scratch;
} action_call;

static const void *locate_value(const action_call *a, int value) {
    const crl_place place = a->value[value];
    if (place.block == CRL_BLOCK_FIELD) {
        const size_t bytes = a->x->config.plan->graph->value[value].bytes;
        const char *base = crl_fields_at(a->x, a->step, a->x->field_of_value[value]);
        return base + bytes * (size_t)(a->micro_batch - a->x->config.first_own);
    }
    return crl_executor_locate(a->x, a->local, a->micro_batch, place);
}

static crl_layer_call begin_call(const action_call *a, int n) {
    const crl_node *node = &a->x->config.plan->graph->node[n];
    const int64_t batch = node->spec.batch;
    const int global = a->x->config.first_micro_batch + a->micro_batch;
    crl_layer_call call = {.spec = &node->spec,
                           .state = a->x->node_state[n],
                           .kernels = a->x->kernels[n],
                           .stream = a->x->config.stream,
                           .scratch = a->scratch,
                           .loss_scale = a->step->loss_scale,
                           .loss = node->layer->is_loss
                                       ? &a->step->loss[a->micro_batch - a->x->config.first_own]
                                       : NULL};
    call.at = (crl_call_position){a->step->seed,
                                  a->step->step,
                                  node->key,
                                  global * batch,
                                  crl_loader_valid_samples(a->step->samples, batch, global),
                                  a->step->training};
    for (int p = 0; p < node->spec.params; p++) {
        call.w[p] = crl_params_weight_as(a->x->config.params, node->param[p], node->spec.compute);
    }
    for (int s = 0; s < node->spec.saves; s++) {
        const int index = (n - a->local->layout->first) * CRL_LAYER_MAX_SAVED + s;
        call.save[s] = crl_executor_locate(a->x, a->local, a->micro_batch, a->save[index]);
    }
    return call;
}

/* Messages and what waits move on too, between kernels. */
static crl_status progress(crl_executor *x) {
    if (x->watched && x->watched->active) {
        bool done = false;
        CRL_TRY(crl_comm_test(x->comm, x->watched, &done));
    }
    return crl_executor_progress(x);
}

/* Waits for what it times, where work is only queued. */
static crl_status profile(const crl_executor *x, int node, int phase, int64_t begin_ns) {
    if (x->profile_ns) {
        CRL_TRY(crl_device_stream_wait(x->config.backend->device, x->config.stream));
        x->profile_ns[node * CRL_PHASES + phase] += crl_clock_ns() - begin_ns;
    }
    return CRL_STATUS_OK;
}

/* Of both halves at once: shared out by their arithmetic. */
static crl_status profile_both(const crl_executor *x, int node, int64_t begin_ns) {
    if (x->profile_ns) {
        const double *flops = x->config.plan->graph->node[node].spec.cost.flops;
        const double all = flops[CRL_PHASE_INPUT] + flops[CRL_PHASE_WEIGHT];
        const double share = all > 0 ? flops[CRL_PHASE_WEIGHT] / all : 0;
        CRL_TRY(crl_device_stream_wait(x->config.backend->device, x->config.stream));
        const int64_t took_ns = crl_clock_ns() - begin_ns;
        const int64_t weight_ns = (int64_t)(share * (double)took_ns);
        x->profile_ns[node * CRL_PHASES + CRL_PHASE_WEIGHT] += weight_ns;
        x->profile_ns[node * CRL_PHASES + CRL_PHASE_INPUT] += took_ns - weight_ns;
    }
    return CRL_STATUS_OK;
}

/* A kernel knows neither the node nor where in the step its samples stand. */
static crl_status blame_node(const action_call *a, int n, crl_status status) {
    const crl_node *node = &a->x->config.plan->graph->node[n];
    const int64_t first = (a->x->config.first_micro_batch + a->micro_batch) * node->spec.batch;
    crl_error error = *crl_error_get();
    if (status == CRL_STATUS_INVALID) {
        char message[1024];
        snprintf(message, sizeof message, "%.1000s", error.message);
        snprintf(error.message, sizeof error.message,
                 "node %s, samples %" PRId64 " to %" PRId64 " of the step: %s", node->name, first,
                 first + node->spec.batch - 1, message);
        crl_error_set(&error);
    }
    crl_error_add_frame(__FILE__, __LINE__);
    return status;
}

/* For the first time, or again in backward: the same draws, the same bits. Its time is `phase`'s.
 */
static crl_status run_node_forward(const action_call *a, int n, int phase) {
    crl_executor *x = a->x;
    const crl_node *node = &x->config.plan->graph->node[n];
    const int64_t begin_ns = x->profile_ns ? crl_clock_ns() : 0;
    crl_layer_call call = begin_call(a, n);
    for (int i = 0; i < node->spec.inputs; i++) {
        call.x[i] = locate_value(a, node->input[i]);
    }
    for (int o = 0; o < node->spec.outputs; o++) {
        call.y[o] = crl_executor_locate(x, a->local, a->micro_batch, a->value[node->output[o]]);
    }
    const crl_status status = node->layer->forward(&call);
    if (status) {
        return blame_node(a, n, status);
    }
    CRL_TRY(profile(x, n, phase, begin_ns));
    return progress(x);
}

static crl_status run_forward(action_call *a) {
    const crl_stage_layout *layout = a->local->layout;
    a->value = layout->value;
    a->save = layout->save;
    a->scratch = a->x->workspace + layout->forward_bytes;
    for (int n = layout->first; n < layout->last; n++) {
        if (!a->x->config.plan->graph->node[n].layer->is_input) {
            CRL_TRY(run_node_forward(a, n, CRL_PHASE_FORWARD));
        }
    }
    return CRL_STATUS_OK;
}

/* Fills in what backward of node n reads and writes; returns whether any dx is wanted. */
static bool begin_backward(const action_call *a, int n, crl_layer_call *call) {
    const crl_executor *x = a->x;
    const crl_stage_layout *layout = a->local->layout;
    const crl_node *node = &x->config.plan->graph->node[n];
    const uint32_t inputs = node->spec.input_needs_inputs | node->spec.weight_needs_inputs;
    const uint32_t outputs = node->spec.input_needs_outputs | node->spec.weight_needs_outputs;
    bool wanted = false;
    for (int i = 0; i < node->spec.inputs; i++) {
        const int value = node->input[i];
        call->x[i] = inputs >> i & 1u ? locate_value(a, value) : NULL;
        if (crl_graph_slot_has_gradient(x->config.plan->graph, n, i)) {
            call->dx[i] = crl_executor_locate(x, a->local, a->micro_batch, layout->gradient[value]);
            call->dx_accumulate[i] =
                layout->accumulate[(n - layout->first) * CRL_LAYER_MAX_INPUTS + i];
            wanted = true;
        }
    }
    for (int o = 0; o < node->spec.outputs; o++) {
        const int value = node->output[o];
        call->y[o] = outputs >> o & 1u
                         ? crl_executor_locate(x, a->local, a->micro_batch, a->value[value])
                         : NULL;
        call->dy[o] = crl_executor_locate(x, a->local, a->micro_batch, layout->gradient[value]);
    }
    return wanted;
}

static void begin_weight(const action_call *a, int n, crl_layer_call *call) {
    const int m = a->x->config.first_micro_batch + a->micro_batch;
    for (int p = 0; p < call->spec->params; p++) {
        call->dw[p] = crl_grad_sync_target(a->x->config.sync, n, p, m, &call->dw_accumulate);
    }
}

static crl_status run_node_backward(action_call *a, int n, bool input, bool weight) {
    crl_executor *x = a->x;
    const crl_node *node = &x->config.plan->graph->node[n];
    crl_layer_call call = begin_call(a, n);
    const bool wanted = begin_backward(a, n, &call);
    const int64_t begin_ns = x->profile_ns ? crl_clock_ns() : 0;
    input = input && wanted;
    weight = weight && node->spec.params > 0;
    if (weight) {
        begin_weight(a, n, &call);
    }
    if (input && weight && node->layer->backward) {
        CRL_TRY(node->layer->backward(&call));
        CRL_TRY(profile_both(x, n, begin_ns));
    } else {
        if (input) {
            CRL_TRY(node->layer->backward_input(&call));
            CRL_TRY(profile(x, n, CRL_PHASE_INPUT, begin_ns));
        }
        if (weight) {
            const int64_t weight_ns = x->profile_ns ? crl_clock_ns() : 0;
            CRL_TRY(node->layer->backward_weight(&call));
            CRL_TRY(profile(x, n, CRL_PHASE_WEIGHT, weight_ns));
        }
    }
    if (weight) {
        CRL_TRY(
            crl_grad_sync_done(x->config.sync, n, x->config.first_micro_batch + a->micro_batch));
    }
    return progress(x);
}

/* Makes the lost results of nodes [first, last) again. */
static crl_status recompute(const action_call *a, int first, int last) {
    for (int n = first; n < last; n++) {
        if (a->local->layout->recompute->again[n]) {
            CRL_TRY(run_node_forward(a, n, CRL_PHASE_INPUT));
        }
    }
    return CRL_STATUS_OK;
}

/* Block by block, from the last to the first; a W after its I finds what that has made again. */
static crl_status run_backward(action_call *a, bool input, bool weight) {
    const crl_stage_layout *layout = a->local->layout;
    a->value = layout->backward_value;
    a->save = layout->backward_save;
    a->scratch = a->x->workspace + layout->backward_bytes;
    for (int n = layout->last - 1; n >= layout->first; n--) {
        const bool ends_block =
            n + 1 == layout->last || layout->recompute->block[n + 1] != layout->recompute->block[n];
        if (input && ends_block) {
            CRL_TRY(recompute(a, layout->recompute->block[n], n + 1));
        }
        if (!a->x->config.plan->graph->node[n].layer->is_input) {
            CRL_TRY(run_node_backward(a, n, input, weight));
        }
    }
    return CRL_STATUS_OK;
}

crl_status crl_executor_compute(crl_executor *x, crl_executor_step *step,
                                const crl_action *action) {
    action_call a = {.x = x,
                     .step = step,
                     .local = &x->local[x->local_of_stage[action->stage]],
                     .micro_batch = action->micro_batch};
    const int64_t begin_ns = crl_clock_ns();
    switch (action->kind) {
    case CRL_ACTION_FORWARD:
        CRL_TRY(run_forward(&a));
        break;
    case CRL_ACTION_BACKWARD:
        CRL_TRY(run_backward(&a, true, true));
        break;
    case CRL_ACTION_INPUT:
        CRL_TRY(run_backward(&a, true, false));
        break;
    default:
        CRL_TRY(run_backward(&a, false, true));
        break;
    }
    step->busy_ns += crl_clock_ns() - begin_ns;
    return CRL_STATUS_OK;
}
