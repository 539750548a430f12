/* SPDX-License-Identifier: Apache-2.0 */
/* y = gain · x with one learned number, e.g. at the end of a residual branch [bachlechner20]. */
#include "engine/base/alloc.h"
#include "layers/infer_internal.h"

typedef struct scale_options {
    int init; /* index into inits */
} scale_options;

static const char *const init_names[] = {"ones", "zeros", NULL};
static const crl_init_kind inits[] = {CRL_INIT_ONES, CRL_INIT_ZEROS};

static const crl_option options[] = {{.name = "init",
                                      .value = "ones",
                                      .help = "initial gain",
                                      .type = &crl_option_choice,
                                      .offset = offsetof(scale_options, init),
                                      .choices = init_names},
                                     {0}};

typedef struct scale_state {
    const crl_matmul_ops *ops;
    crl_matmul *times, *dot; /* (n,1) x (1,1) and (1,n) x (n,1) */
} scale_state;

static crl_status infer(crl_layer_spec *spec) {
    const scale_options *option = spec->options;
    CRL_TRY(crl_infer_begin(spec, "scale", 1, 1));
    CRL_TRY(crl_infer_input(spec, "scale", 0, spec->compute, 1));
    CRL_TRY(crl_infer_output(spec, "scale", spec->compute, spec->input[0].shape));
    CRL_TRY(crl_infer_param(
        spec, "scale",
        &(crl_param_spec){.name = "gain", .shape = CRL_SHAPE(1), .init = inits[option->init]}));
    spec->weight_needs_inputs = 1u << 0; /* dgain needs x; dx needs nothing but the gain */
    spec->gradient_inputs = 1u << 0;
    const double elements = crl_infer_elements(&spec->input[0]);
    spec->cost.flops[CRL_PHASE_FORWARD] = spec->cost.flops[CRL_PHASE_INPUT] = elements;
    spec->cost.flops[CRL_PHASE_WEIGHT] = 2 * elements;
    crl_infer_bytes(spec, true);
    return CRL_STATUS_OK;
}

static void release(void *memory) {
    scale_state *state = memory;
    if (state != NULL) {
        state->ops->destroy(state->dot);
        state->ops->destroy(state->times);
        crl_free(state);
    }
}

static crl_status prepare(const crl_layer_spec *spec, const crl_layer_env *env, void **out,
                          size_t scratch_bytes[CRL_PHASES]) {
    const int64_t n = crl_shape_elements(&spec->input[0].shape);
    crl_status status = CRL_STATUS_OK;
    scale_state *state = NULL;
    CRL_TRY_OUT(crl_alloc(&state, 1, sizeof *state));
    state->ops = env->kernels->matmul;
    CRL_TRY_OUT(state->ops->create(
        &state->times, &(crl_matmul_config){.m = n, .n = 1, .k = 1, .may_accumulate = true},
        env->stream));
    CRL_TRY_OUT(state->ops->create(
        &state->dot,
        &(crl_matmul_config){.m = 1, .n = 1, .k = n, .may_accumulate = true, .y_is_f32 = true},
        env->stream));
    scratch_bytes[CRL_PHASE_FORWARD] = state->ops->scratch_bytes(state->times);
    scratch_bytes[CRL_PHASE_INPUT] = state->ops->scratch_bytes(state->times);
    scratch_bytes[CRL_PHASE_WEIGHT] = state->ops->scratch_bytes(state->dot);
    *out = state;
    state = NULL;
out:
    release(state);
    return status;
}

static crl_status forward(const crl_layer_call *call) {
    const scale_state *state = call->state;
    const crl_matmul_call product = {
        .a = call->x[0], .b = call->w[0], .y = call->y[0], .scratch = call->scratch};
    return state->ops->run(state->times, call->stream, &product);
}

static crl_status backward_input(const crl_layer_call *call) {
    const scale_state *state = call->state;
    if (call->dx[0] == NULL) {
        return CRL_STATUS_OK;
    }
    const crl_matmul_call product = {.a = call->dy[0],
                                     .b = call->w[0],
                                     .y = call->dx[0],
                                     .accumulate = call->dx_accumulate[0],
                                     .scratch = call->scratch};
    return state->ops->run(state->times, call->stream, &product);
}

static crl_status backward_weight(const crl_layer_call *call) {
    const scale_state *state = call->state;
    const crl_matmul_call product = {.a = call->dy[0],
                                     .b = call->x[0],
                                     .y = call->dw[0],
                                     .accumulate = call->dw_accumulate,
                                     .scratch = call->scratch};
    return state->ops->run(state->dot, call->stream, &product);
}

const crl_layer crl_layer_scale = {
    .name = "scale",
    .help = "y = gain x, with one learned number",
    .options = options,
    .options_bytes = sizeof(scale_options),
    .cheap = true,
    .infer = infer,
    .prepare = prepare,
    .release = release,
    .forward = forward,
    .backward_input = backward_input,
    .backward_weight = backward_weight,
};
