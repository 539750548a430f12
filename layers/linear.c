/* SPDX-License-Identifier: Apache-2.0 */
/*
 * y = x W^T + b over the last dimension; every dimension before it is a row.
 * The input gradient needs no activation at all, the weight gradient only x: this is what makes
 * splitting the backward pass worthwhile [qi23].
 */
#include <math.h>

#include "engine/base/alloc.h"
#include "layers/infer_internal.h"

typedef struct linear_options {
    int64_t out;
    bool bias;
    int init; /* index into init_names */
    double init_scale;
} linear_options;

typedef struct linear_state {
    const crl_matmul_ops *ops;
    crl_matmul *forward, *input, *weight; /* the last two only for training */
} linear_state;

static const char *const init_names[] = {"uniform", "normal", "zeros", NULL};
static const crl_init_kind inits[] = {CRL_INIT_UNIFORM, CRL_INIT_NORMAL, CRL_INIT_ZEROS};

static const crl_option options[] = {
    {.name = "out",
     .help = "size of the output's last dimension",
     .type = &crl_option_int,
     .offset = offsetof(linear_options, out),
     .min = 1,
     .max = INT32_MAX},
    {.name = "bias",
     .value = "true",
     .help = "adds a learned bias",
     .type = &crl_option_bool,
     .offset = offsetof(linear_options, bias)},
    {.name = "init",
     .value = "uniform",
     .help = "initial weight; uniform also draws the bias, the others set it to 0",
     .type = &crl_option_choice,
     .offset = offsetof(linear_options, init),
     .choices = init_names},
    {.name = "init_scale",
     .value = "0",
     .help = "bound of the uniform or deviation of the normal; 0: 1/sqrt(inputs)",
     .type = &crl_option_double,
     .offset = offsetof(linear_options, init_scale),
     .min = 0,
     .max = 1e6},
    {0}};

static crl_status infer(crl_layer_spec *spec) {
    const linear_options *option = spec->options;
    CRL_TRY(crl_infer_begin(spec, "linear", 1, 1));
    CRL_TRY(crl_infer_input(spec, "linear", 0, CRL_DTYPE_F32, 2));
    const int64_t in = crl_infer_last(&spec->input[0]), out = option->out;
    crl_shape y = spec->input[0].shape;
    y.size[y.dimensions - 1] = out;
    CRL_TRY(crl_infer_output(spec, "linear", CRL_DTYPE_F32, y));

    const crl_init_kind init = inits[option->init];
    const double scale = option->init_scale > 0 ? option->init_scale : 1 / sqrt((double)in);
    CRL_TRY(crl_infer_param(spec, "linear",
                            &(crl_param_spec){.name = "weight",
                                              .shape = CRL_SHAPE(out, in),
                                              .decay = true,
                                              .init = init,
                                              .init_scale = scale}));
    if (option->bias) {
        CRL_TRY(crl_infer_param(
            spec, "linear",
            &(crl_param_spec){.name = "bias",
                              .shape = CRL_SHAPE(out),
                              .init = init == CRL_INIT_UNIFORM ? init : CRL_INIT_ZEROS,
                              .init_scale = scale}));
    }
    spec->weight_needs_inputs = 1u << 0;
    spec->gradient_inputs = 1u << 0;

    const double y_elements = crl_infer_elements(&spec->output[0]);
    const double product = 2 * y_elements * (double)in, bias = option->bias ? y_elements : 0;
    spec->cost.flops[CRL_PHASE_FORWARD] = product + bias;
    spec->cost.flops[CRL_PHASE_INPUT] = product;
    spec->cost.flops[CRL_PHASE_WEIGHT] = product + bias;
    crl_infer_bytes(spec, true);
    return CRL_STATUS_OK;
}

static void release(void *memory) {
    linear_state *state = memory;
    if (state == NULL) {
        return;
    }
    state->ops->destroy(state->weight);
    state->ops->destroy(state->input);
    state->ops->destroy(state->forward);
    crl_free(state);
}

static size_t larger(size_t a, size_t b) {
    return a > b ? a : b;
}

static crl_status prepare(const crl_layer_spec *spec, const crl_layer_env *env, void **out,
                          size_t scratch_bytes[CRL_PHASES]) {
    const int64_t rows = crl_infer_rows(&spec->input[0]);
    const int64_t in = crl_infer_last(&spec->input[0]), size = crl_infer_last(&spec->output[0]);
    const crl_matmul_ops *ops = env->kernels->matmul;
    crl_status status = CRL_STATUS_OK;
    linear_state *state = NULL;
    size_t bytes[CRL_PHASES] = {0};

    CRL_TRY_OUT(crl_alloc(&state, 1, sizeof *state));
    state->ops = ops;
    CRL_TRY_OUT(ops->create(
        &state->forward,
        &(crl_matmul_config){
            .m = rows, .n = size, .k = in, .b_transposed = true, .bias = spec->params == 2},
        env->stream));
    bytes[CRL_PHASE_FORWARD] = ops->scratch_bytes(state->forward);
    if (env->training) {
        CRL_TRY_OUT(
            ops->create(&state->input,
                        &(crl_matmul_config){.m = rows, .n = in, .k = size, .may_accumulate = true},
                        env->stream));
        CRL_TRY_OUT(ops->create(
            &state->weight,
            &(crl_matmul_config){
                .m = size, .n = in, .k = rows, .a_transposed = true, .may_accumulate = true},
            env->stream));
        bytes[CRL_PHASE_INPUT] = ops->scratch_bytes(state->input);
        bytes[CRL_PHASE_WEIGHT] =
            larger(ops->scratch_bytes(state->weight),
                   env->kernels->reduce->column_sum_scratch_bytes(rows, size));
    }
    for (int phase = 0; phase < CRL_PHASES; ++phase) {
        scratch_bytes[phase] = bytes[phase];
    }
    *out = state;
    state = NULL;
out:
    release(state);
    return status;
}

static crl_status forward(const crl_layer_call *call) {
    const linear_state *state = call->state;
    const crl_matmul_call product = {.a = call->x[0],
                                     .b = call->w[0],
                                     .bias = call->spec->params == 2 ? call->w[1] : NULL,
                                     .y = call->y[0],
                                     .scratch = call->scratch};
    return state->ops->run(state->forward, call->stream, &product);
}

/* dx (+)= dy W */
static crl_status backward_input(const crl_layer_call *call) {
    const linear_state *state = call->state;
    if (call->dx[0] == NULL) {
        return CRL_STATUS_OK;
    }
    const crl_matmul_call product = {.a = call->dy[0],
                                     .b = call->w[0],
                                     .y = call->dx[0],
                                     .accumulate = call->dx_accumulate[0],
                                     .scratch = call->scratch};
    return state->ops->run(state->input, call->stream, &product);
}

/* dW (+)= dy^T x, db (+)= sum of dy over the rows */
static crl_status backward_weight(const crl_layer_call *call) {
    const linear_state *state = call->state;
    const crl_matmul_call product = {.a = call->dy[0],
                                     .b = call->x[0],
                                     .y = call->dw[0],
                                     .accumulate = call->dw_accumulate,
                                     .scratch = call->scratch};
    CRL_TRY(state->ops->run(state->weight, call->stream, &product));
    if (call->spec->params < 2) {
        return CRL_STATUS_OK;
    }
    const crl_tensor_spec *y = &call->spec->output[0];
    return call->kernels->reduce->column_sum(call->stream, call->dy[0], call->dw[1],
                                             crl_infer_rows(y), crl_infer_last(y),
                                             call->dw_accumulate, call->scratch);
}

/* Column-parallel: every shard has some of the outputs. */
static crl_status shard(const crl_layer_spec *spec, int shards,
                        int dimension[CRL_LAYER_MAX_PARAMS]) {
    const int64_t out = crl_infer_last(&spec->output[0]);
    if (out % shards != 0) {
        return CRL_FAIL(INVALID, "linear %s: has %lld outputs, expected a multiple of %d shards",
                        spec->node, (long long)out, shards);
    }
    for (int i = 0; i < spec->params; ++i) {
        dimension[i] = 0;
    }
    return CRL_STATUS_OK;
}

const crl_layer crl_layer_linear = {
    .name = "linear",
    .help = "y = x W^T + b over the last dimension",
    .options = options,
    .options_bytes = sizeof(linear_options),
    .infer = infer,
    .prepare = prepare,
    .release = release,
    .forward = forward,
    .backward_input = backward_input,
    .backward_weight = backward_weight,
    .shard = shard,
};
