/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Softmax cross-entropy of logits (...,V) and targets (...): a sum over the rows that count, never
 * a mean. A row counts when its sample is no padding and its target is not ignore_index; its weight
 * is the label's weight times its own (an optional third input).
 */
#include <float.h>

#include "engine/base/alloc.h"
#include "layers/infer_internal.h"

typedef struct cross_entropy_options {
    int64_t ignore_index;
    crl_text_list label_weights;
} cross_entropy_options;

typedef struct cross_entropy_state {
    crl_cross_entropy_config config;
    const crl_device *device;
    float *label_weight; /* (V), the device's, or NULL */
} cross_entropy_state;

static const crl_option options[] = {{.name = "ignore_index",
                                      .value = "-100",
                                      .help = "rows with this target do not count",
                                      .type = &crl_option_int,
                                      .offset = offsetof(cross_entropy_options, ignore_index),
                                      .min = INT32_MIN,
                                      .max = INT32_MAX},
                                     {.name = "label_weights",
                                      .value = "",
                                      .help = "weight of each label, e.g. 1,1,0.5; empty: all 1",
                                      .type = &crl_option_list,
                                      .offset = offsetof(cross_entropy_options, label_weights)},
                                     {0}};

enum { LOGITS = 0, TARGETS = 1, ROW_WEIGHT = 2 };
/* Operations per logit, the exponential as about ten. */
enum { FORWARD_FLOPS = 13, INPUT_FLOPS = 13 };

static crl_status parse_weight(float *out, const char *node, const char *text) {
    const crl_option row = {.type = &crl_option_double};
    double weight;
    if (row.type->parse(&row, text, NULL, &weight) != CRL_STATUS_OK || weight < 0 ||
        weight > FLT_MAX) {
        return CRL_FAIL(INVALID,
                        "softmax_cross_entropy %s: label weight '%s', expected a number from 0",
                        node, text);
    }
    *out = (float)weight;
    return CRL_STATUS_OK;
}

static crl_status check_label_weights(const crl_layer_spec *spec) {
    const cross_entropy_options *option = spec->options;
    const int64_t classes = crl_infer_last(&spec->input[LOGITS]);
    const int count = option->label_weights.count;
    if (count != 0 && count != classes) {
        return CRL_FAIL(INVALID, "softmax_cross_entropy %s: %d label weights, expected %lld",
                        spec->node, count, (long long)classes);
    }
    for (int i = 0; i < count; ++i) {
        float weight;
        CRL_TRY(parse_weight(&weight, spec->node, option->label_weights.item[i]));
    }
    return CRL_STATUS_OK;
}

static crl_status infer(crl_layer_spec *spec) {
    CRL_TRY(crl_infer_begin(spec, "softmax_cross_entropy", 2, 3));
    CRL_TRY(crl_infer_input(spec, "softmax_cross_entropy", LOGITS, spec->compute, 2));
    crl_tensor_spec rows = {CRL_DTYPE_I32, spec->input[LOGITS].shape};
    rows.shape.dimensions -= 1;
    CRL_TRY(crl_infer_input_is(spec, "softmax_cross_entropy", TARGETS, &rows));
    spec->input_needs_inputs = 1u << LOGITS | 1u << TARGETS;
    if (spec->inputs == 3) {
        rows.dtype = CRL_DTYPE_F32;
        CRL_TRY(crl_infer_input_is(spec, "softmax_cross_entropy", ROW_WEIGHT, &rows));
        spec->input_needs_inputs |= 1u << ROW_WEIGHT;
    }
    CRL_TRY(check_label_weights(spec));
    CRL_TRY(crl_infer_save(spec, "softmax_cross_entropy", CRL_DTYPE_F32, rows.shape));
    spec->input_needs_saves = 1u << 0;
    spec->gradient_inputs = 1u << LOGITS;
    const double elements = crl_infer_elements(&spec->input[LOGITS]);
    spec->cost.flops[CRL_PHASE_FORWARD] = FORWARD_FLOPS * elements;
    spec->cost.flops[CRL_PHASE_INPUT] = INPUT_FLOPS * elements;
    crl_infer_bytes(spec, false);
    return CRL_STATUS_OK;
}

static void release(void *memory) {
    cross_entropy_state *state = memory;
    if (state == NULL) {
        return;
    }
    if (state->label_weight != NULL) {
        crl_device_free(state->device, state->label_weight);
    }
    crl_free(state);
}

/* The weights of the labels in memory of the device. */
static crl_status copy_weights(float **out, const crl_layer_spec *spec, const crl_layer_env *env) {
    const crl_text_list *given = &((const cross_entropy_options *)spec->options)->label_weights;
    const size_t bytes = (size_t)given->count * sizeof(float);
    crl_status status = CRL_STATUS_OK;
    float *table = NULL, *copy = NULL;
    CRL_TRY_OUT(crl_alloc(&table, (size_t)given->count, sizeof *table));
    for (int i = 0; i < given->count; ++i) {
        CRL_TRY_OUT(parse_weight(&table[i], spec->node, given->item[i]));
    }
    CRL_TRY_OUT(crl_device_alloc(env->device, &copy, bytes));
    CRL_TRY_OUT(crl_device_copy_wait(env->device, env->stream, copy, table, bytes));
    *out = copy;
    copy = NULL;
out:
    if (copy != NULL) {
        crl_device_free(env->device, copy);
    }
    crl_free(table);
    return status;
}

/* No stream on a device that has them: only sizes are asked for. */
static bool will_run(const crl_layer_env *env) {
    return env->stream != NULL || crl_device_is_host(env->device);
}

static crl_status prepare(const crl_layer_spec *spec, const crl_layer_env *env, void **out,
                          size_t scratch_bytes[CRL_PHASES]) {
    const cross_entropy_options *option = spec->options;
    crl_status status = CRL_STATUS_OK;
    cross_entropy_state *state = NULL;
    CRL_TRY_OUT(crl_alloc(&state, 1, sizeof *state));
    state->device = env->device;
    if (option->label_weights.count > 0 && will_run(env)) {
        CRL_TRY_OUT(copy_weights(&state->label_weight, spec, env));
    }
    state->config = (crl_cross_entropy_config){.rows = crl_infer_rows(&spec->input[LOGITS]),
                                               .classes = crl_infer_last(&spec->input[LOGITS]),
                                               .ignore_index = (int32_t)option->ignore_index,
                                               .label_weight = state->label_weight};
    for (int phase = 0; phase < CRL_PHASES; ++phase) {
        scratch_bytes[phase] = 0;
    }
    *out = state;
    state = NULL;
out:
    release(state);
    return status;
}

/* Rows of the samples that are no padding. */
static int64_t valid_rows(const crl_layer_call *call) {
    const crl_shape *targets = &call->spec->input[TARGETS].shape;
    return call->at.valid_samples * crl_shape_product(targets, 1, targets->dimensions);
}

static const float *row_weight(const crl_layer_call *call) {
    return call->spec->inputs == 3 ? call->x[ROW_WEIGHT] : NULL;
}

static crl_status forward(const crl_layer_call *call) {
    const cross_entropy_state *state = call->state;
    return call->kernels->cross_entropy->forward(call->stream, &state->config, call->x[LOGITS],
                                                 call->x[TARGETS], row_weight(call),
                                                 valid_rows(call), call->save[0], call->loss);
}

static crl_status backward_input(const crl_layer_call *call) {
    const cross_entropy_state *state = call->state;
    if (call->dx[LOGITS] == NULL) {
        return CRL_STATUS_OK;
    }
    return call->kernels->cross_entropy->backward(call->stream, &state->config, call->x[LOGITS],
                                                  call->x[TARGETS], row_weight(call),
                                                  valid_rows(call), call->save[0], call->loss_scale,
                                                  call->dx[LOGITS], call->dx_accumulate[LOGITS]);
}

const crl_layer crl_layer_softmax_cross_entropy = {
    .name = "softmax_cross_entropy",
    .help = "loss: minus the log-probability of the targets",
    .options = options,
    .options_bytes = sizeof(cross_entropy_options),
    .is_loss = true,
    .in_place = 1u << LOGITS,
    .f32_inputs = 1u << ROW_WEIGHT,
    .infer = infer,
    .prepare = prepare,
    .release = release,
    .forward = forward,
    .backward_input = backward_input,
};
