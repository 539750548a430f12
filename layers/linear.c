/* SPDX-License-Identifier: Apache-2.0 */
/*
 * y = f(x W^T + b) over the last dimension; every dimension before it is a row. Without f the input
 * gradient needs no activation at all, the weight gradient only x: this is what makes splitting the
 * backward pass worthwhile [qi23]. With f (fused to the product) both need the sum before it.
 */
#include "engine/base/alloc.h"
#include "layers/dense_internal.h"
#include "layers/infer_internal.h"

typedef struct linear_options {
    int64_t out;
    bool bias;
    int activation; /* index into activation_names */
    int init;       /* index into init_names */
    double init_scale;
} linear_options;

typedef struct linear_state {
    crl_dense dense;
    size_t slope_bytes; /* of the gradient of the sum before f, at the beginning of scratch */
} linear_state;

static const char *const init_names[] = {"uniform", "normal", "zeros", NULL};
static const char *const activation_names[] = {"none", "relu", "gelu", "gelu_tanh", NULL};

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
    {.name = "activation",
     .value = "none",
     .help = "function of the result, in the same pass",
     .type = &crl_option_choice,
     .offset = offsetof(linear_options, activation),
     .choices = activation_names},
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

static void count_cost(crl_layer_spec *spec) {
    const linear_options *option = spec->options;
    const double y = crl_infer_elements(&spec->output[0]), bias = option->bias ? y : 0;
    const double product = 2 * y * (double)crl_infer_last(&spec->input[0]);
    const double slope = y * crl_dense_slope_flops(option->activation);
    spec->cost.flops[CRL_PHASE_FORWARD] =
        product + bias + y * crl_dense_activation_flops(option->activation);
    spec->cost.flops[CRL_PHASE_INPUT] = product + slope;
    spec->cost.flops[CRL_PHASE_WEIGHT] = product + bias + slope;
    crl_infer_bytes(spec, true);
    if (option->activation != CRL_DENSE_NONE) { /* written once more, and read */
        const double bytes = 2 * y * (double)crl_dtype_bytes(spec->compute);
        spec->cost.bytes[CRL_PHASE_INPUT] += bytes;
        spec->cost.bytes[CRL_PHASE_WEIGHT] += bytes;
    }
}

static crl_status infer(crl_layer_spec *spec) {
    const linear_options *option = spec->options;
    CRL_TRY(crl_infer_begin(spec, "linear", 1, 1));
    CRL_TRY(crl_infer_input(spec, "linear", 0, spec->compute, 2));
    const int64_t in = crl_infer_last(&spec->input[0]);
    crl_shape y = spec->input[0].shape;
    y.size[y.dimensions - 1] = option->out;
    CRL_TRY(crl_infer_output(spec, "linear", spec->compute, y));
    CRL_TRY(crl_dense_infer(spec, &(crl_dense_params){.type = "linear",
                                                      .weight = "weight",
                                                      .bias = option->bias ? "bias" : NULL,
                                                      .in = in,
                                                      .out = option->out,
                                                      .init = option->init,
                                                      .init_scale = option->init_scale}));
    spec->weight_needs_inputs = 1u << 0;
    spec->gradient_inputs = 1u << 0;
    if (option->activation != CRL_DENSE_NONE) {
        CRL_TRY(crl_infer_save(spec, "linear", spec->compute, y));
        spec->input_needs_saves = spec->weight_needs_saves = 1u << 0;
    }
    count_cost(spec);
    return CRL_STATUS_OK;
}

static void release(void *memory) {
    linear_state *state = memory;
    if (state != NULL) {
        crl_dense_destroy(&state->dense);
        crl_free(state);
    }
}

static crl_status prepare(const crl_layer_spec *spec, const crl_layer_env *env, void **out,
                          size_t scratch_bytes[CRL_PHASES]) {
    const linear_options *option = spec->options;
    crl_status status = CRL_STATUS_OK;
    linear_state *state = NULL;
    CRL_TRY_OUT(crl_alloc(&state, 1, sizeof *state));
    CRL_TRY_OUT(crl_dense_create(&state->dense, env,
                                 &(crl_dense_config){.rows = crl_infer_rows(&spec->input[0]),
                                                     .in = crl_infer_last(&spec->input[0]),
                                                     .out = option->out,
                                                     .bias = option->bias,
                                                     .activation = option->activation}));
    if (env->training && option->activation != CRL_DENSE_NONE) {
        state->slope_bytes = crl_dense_part((size_t)crl_infer_elements(&spec->output[0]) *
                                            crl_dtype_bytes(spec->compute));
    }
    for (int phase = 0; phase < CRL_PHASES; ++phase) {
        scratch_bytes[phase] = crl_dense_scratch_bytes(&state->dense, phase) +
                               (phase == CRL_PHASE_FORWARD ? 0 : state->slope_bytes);
    }
    *out = state;
    state = NULL;
out:
    release(state);
    return status;
}

static crl_status forward(const crl_layer_call *call) {
    const linear_state *state = call->state;
    return crl_dense_forward(&state->dense, call, call->x[0], 0, call->y[0],
                             call->spec->saves > 0 ? call->save[0] : NULL, call->scratch);
}

/* The gradient of the sum before f: dy itself, or dy · f' made in scratch. */
static crl_status find_slope(const crl_layer_call *call, const void **out) {
    const linear_options *option = call->spec->options;
    *out = call->dy[0];
    if (option->activation == CRL_DENSE_NONE) {
        return CRL_STATUS_OK;
    }
    *out = call->scratch;
    return call->kernels->eltwise->activation_backward(
        call->stream, crl_dense_kind(option->activation), call->save[0], call->dy[0], call->scratch,
        crl_shape_elements(&call->spec->output[0].shape), false);
}

static crl_status add_gradients(const crl_layer_call *call, bool input, bool weight) {
    const linear_state *state = call->state;
    char *scratch = (char *)call->scratch + state->slope_bytes;
    const void *dz;
    input = input && call->dx[0] != NULL;
    if (!input && !weight) {
        return CRL_STATUS_OK;
    }
    CRL_TRY(find_slope(call, &dz));
    if (input) {
        CRL_TRY(crl_dense_input(&state->dense, call, dz, 0, call->dx[0], call->dx_accumulate[0],
                                NULL, scratch));
    }
    return weight ? crl_dense_weight(&state->dense, call, dz, call->x[0], 0, scratch)
                  : CRL_STATUS_OK;
}

static crl_status backward_input(const crl_layer_call *call) {
    return add_gradients(call, true, false);
}

static crl_status backward_weight(const crl_layer_call *call) {
    return add_gradients(call, false, true);
}

static crl_status backward(const crl_layer_call *call) {
    return add_gradients(call, true, true);
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
    .help = "y = f(x W^T + b) over the last dimension",
    .options = options,
    .options_bytes = sizeof(linear_options),
    .infer = infer,
    .prepare = prepare,
    .release = release,
    .forward = forward,
    .backward_input = backward_input,
    .backward_weight = backward_weight,
    .backward = backward,
    .shard = shard,
};
