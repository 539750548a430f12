/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Two products with an activation between them, all fused [vaswani17] §3.3:
 *
 *     z = x A^T + a      h = f(z)          one product, keeps z and h
 *     y = h B^T + b                        one product
 *     dz = (dy B) f'(z)  dB = dy^T h       dz lives in scratch
 *     dx = dz A          dA = dz^T x
 *
 * The input and the weight gradient need dz alike: apart they make it twice, together once.
 */
#include "engine/base/alloc.h"
#include "layers/dense_internal.h"
#include "layers/infer_internal.h"

typedef struct mlp_options {
    int64_t hidden, out;
    bool bias;
    int activation; /* CRL_DENSE_RELU ... less 1 */
    int init;       /* index into init_names */
    double init_scale;
} mlp_options;

typedef struct mlp_state {
    crl_dense fc, proj;
    size_t slope_bytes; /* of dz, at the beginning of scratch */
} mlp_state;

static const char *const init_names[] = {"uniform", "normal", "zeros", NULL};
static const char *const activation_names[] = {"relu", "gelu", "gelu_tanh", NULL};

static const crl_option options[] = {
    {.name = "hidden",
     .help = "size between the products",
     .type = &crl_option_int,
     .offset = offsetof(mlp_options, hidden),
     .min = 1,
     .max = INT32_MAX},
    {.name = "out",
     .value = "0",
     .help = "size of the output's last dimension; 0: the input's",
     .type = &crl_option_int,
     .offset = offsetof(mlp_options, out),
     .max = INT32_MAX},
    {.name = "bias",
     .value = "true",
     .help = "adds learned biases",
     .type = &crl_option_bool,
     .offset = offsetof(mlp_options, bias)},
    {.name = "activation",
     .value = "gelu",
     .help = "function between the products",
     .type = &crl_option_choice,
     .offset = offsetof(mlp_options, activation),
     .choices = activation_names},
    {.name = "init",
     .value = "uniform",
     .help = "initial weights; uniform also draws the biases, the others set them to 0",
     .type = &crl_option_choice,
     .offset = offsetof(mlp_options, init),
     .choices = init_names},
    {.name = "init_scale",
     .value = "0",
     .help = "bound of the uniform or deviation of the normal; 0: 1/sqrt(inputs)",
     .type = &crl_option_double,
     .offset = offsetof(mlp_options, init_scale),
     .min = 0,
     .max = 1e6},
    {0}};

enum { Z = 0, H = 1 }; /* saves */

static int activation_of(const crl_layer_spec *spec) {
    return ((const mlp_options *)spec->options)->activation + CRL_DENSE_RELU;
}

/* Index of the second product's weight among the parameters. */
static int proj_weight(const crl_layer_spec *spec) {
    return spec->params / 2;
}

static void count_cost(crl_layer_spec *spec) {
    const mlp_options *option = spec->options;
    const double y = crl_infer_elements(&spec->output[0]), z = crl_infer_elements(&spec->save[Z]);
    const double fc = 2 * z * (double)crl_infer_last(&spec->input[0]);
    const double proj = 2 * y * (double)option->hidden, bias = option->bias ? y + z : 0;
    const double slope = proj + z * crl_dense_slope_flops(activation_of(spec));
    const double slope_bytes = 2 * z * (double)crl_dtype_bytes(spec->compute);
    spec->cost.flops[CRL_PHASE_FORWARD] =
        fc + proj + bias + z * crl_dense_activation_flops(activation_of(spec));
    spec->cost.flops[CRL_PHASE_INPUT] = slope + fc;
    spec->cost.flops[CRL_PHASE_WEIGHT] = slope + fc + proj + bias;
    crl_infer_bytes(spec, true);
    spec->cost.bytes[CRL_PHASE_INPUT] += slope_bytes;
    spec->cost.bytes[CRL_PHASE_WEIGHT] +=
        slope_bytes + crl_infer_param_bytes(spec, proj_weight(spec));
}

static crl_status infer_params(crl_layer_spec *spec) {
    const mlp_options *option = spec->options;
    crl_dense_params product = {.type = "mlp",
                                .weight = "fc_weight",
                                .bias = option->bias ? "fc_bias" : NULL,
                                .in = crl_infer_last(&spec->input[0]),
                                .out = option->hidden,
                                .init = option->init,
                                .init_scale = option->init_scale};
    CRL_TRY(crl_dense_infer(spec, &product));
    product.weight = "proj_weight";
    product.bias = option->bias ? "proj_bias" : NULL;
    product.in = option->hidden;
    product.out = crl_infer_last(&spec->output[0]);
    return crl_dense_infer(spec, &product);
}

static crl_status infer(crl_layer_spec *spec) {
    const mlp_options *option = spec->options;
    CRL_TRY(crl_infer_begin(spec, "mlp", 1, 1));
    CRL_TRY(crl_infer_input(spec, "mlp", 0, spec->compute, 2));
    crl_shape shape = spec->input[0].shape;
    int64_t *last = &shape.size[shape.dimensions - 1];
    *last = option->out > 0 ? option->out : *last;
    CRL_TRY(crl_infer_output(spec, "mlp", spec->compute, shape));
    *last = option->hidden;
    CRL_TRY(crl_infer_save(spec, "mlp", spec->compute, shape));
    CRL_TRY(crl_infer_save(spec, "mlp", spec->compute, shape));
    CRL_TRY(infer_params(spec));
    spec->input_needs_saves = 1u << Z;
    spec->weight_needs_inputs = 1u << 0;
    spec->weight_needs_saves = 1u << Z | 1u << H;
    spec->gradient_inputs = 1u << 0;
    count_cost(spec);
    return CRL_STATUS_OK;
}

static void release(void *memory) {
    mlp_state *state = memory;
    if (state != NULL) {
        crl_dense_destroy(&state->proj);
        crl_dense_destroy(&state->fc);
        crl_free(state);
    }
}

static size_t larger(size_t a, size_t b) {
    return a > b ? a : b;
}

static crl_status create_products(mlp_state *state, const crl_layer_spec *spec,
                                  const crl_layer_env *env) {
    const mlp_options *option = spec->options;
    crl_dense_config config = {.rows = crl_infer_rows(&spec->input[0]),
                               .in = crl_infer_last(&spec->input[0]),
                               .out = option->hidden,
                               .bias = option->bias,
                               .activation = activation_of(spec)};
    CRL_TRY(crl_dense_create(&state->fc, env, &config));
    config.in = option->hidden;
    config.out = crl_infer_last(&spec->output[0]);
    config.slope = config.activation;
    config.activation = CRL_DENSE_NONE;
    return crl_dense_create(&state->proj, env, &config);
}

static crl_status prepare(const crl_layer_spec *spec, const crl_layer_env *env, void **out,
                          size_t scratch_bytes[CRL_PHASES]) {
    crl_status status = CRL_STATUS_OK;
    mlp_state *state = NULL;
    CRL_TRY_OUT(crl_alloc(&state, 1, sizeof *state));
    CRL_TRY_OUT(create_products(state, spec, env));
    if (env->training) {
        state->slope_bytes = crl_dense_part((size_t)crl_infer_elements(&spec->save[Z]) *
                                            crl_dtype_bytes(spec->compute));
    }
    size_t bytes[CRL_PHASES];
    for (int phase = 0; phase < CRL_PHASES; ++phase) {
        bytes[phase] = larger(crl_dense_scratch_bytes(&state->fc, phase),
                              crl_dense_scratch_bytes(&state->proj, phase));
    }
    /* dz is made by the product of the input gradient in both phases. */
    bytes[CRL_PHASE_WEIGHT] =
        larger(bytes[CRL_PHASE_WEIGHT], crl_dense_scratch_bytes(&state->proj, CRL_PHASE_INPUT));
    scratch_bytes[CRL_PHASE_FORWARD] = bytes[CRL_PHASE_FORWARD];
    scratch_bytes[CRL_PHASE_INPUT] = state->slope_bytes + bytes[CRL_PHASE_INPUT];
    scratch_bytes[CRL_PHASE_WEIGHT] = state->slope_bytes + bytes[CRL_PHASE_WEIGHT];
    *out = state;
    state = NULL;
out:
    release(state);
    return status;
}

static crl_status forward(const crl_layer_call *call) {
    const mlp_state *state = call->state;
    CRL_TRY(crl_dense_forward(&state->fc, call, call->x[0], 0, call->save[H], call->save[Z],
                              call->scratch));
    return crl_dense_forward(&state->proj, call, call->save[H], proj_weight(call->spec), call->y[0],
                             NULL, call->scratch);
}

static crl_status add_gradients(const crl_layer_call *call, bool input, bool weight) {
    const mlp_state *state = call->state;
    const int proj = proj_weight(call->spec);
    char *scratch = (char *)call->scratch + state->slope_bytes;
    void *dz = call->scratch;
    input = input && call->dx[0] != NULL;
    if (!input && !weight) {
        return CRL_STATUS_OK;
    }
    CRL_TRY(
        crl_dense_input(&state->proj, call, call->dy[0], proj, dz, false, call->save[Z], scratch));
    if (input) {
        CRL_TRY(crl_dense_input(&state->fc, call, dz, 0, call->dx[0], call->dx_accumulate[0], NULL,
                                scratch));
    }
    if (weight) {
        CRL_TRY(crl_dense_weight(&state->fc, call, dz, call->x[0], 0, scratch));
        CRL_TRY(crl_dense_weight(&state->proj, call, call->dy[0], call->save[H], proj, scratch));
    }
    return CRL_STATUS_OK;
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

const crl_layer crl_layer_mlp = {
    .name = "mlp",
    .help = "two products with an activation between them",
    .options = options,
    .options_bytes = sizeof(mlp_options),
    .infer = infer,
    .prepare = prepare,
    .release = release,
    .forward = forward,
    .backward_input = backward_input,
    .backward_weight = backward_weight,
    .backward = backward,
};
