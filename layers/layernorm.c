/* SPDX-License-Identifier: Apache-2.0 */
/* Layer normalisation over the last dimension, with learned scale and shift [ba16]. */
#include "layers/infer_internal.h"

typedef struct layernorm_options {
    double epsilon;
} layernorm_options;

static const crl_option options[] = {{.name = "epsilon",
                                      .value = "1e-5",
                                      .help = "added to the variance",
                                      .type = &crl_option_double,
                                      .offset = offsetof(layernorm_options, epsilon),
                                      .min = 1e-12,
                                      .max = 1},
                                     {0}};

enum { MEAN = 0, RSTD = 1, BOTH_SAVES = 1 << MEAN | 1 << RSTD };
/* Operations per element, counting the passes of the kernels. */
enum { FORWARD_FLOPS = 7, INPUT_FLOPS = 10, WEIGHT_FLOPS = 5 };

static crl_status infer(crl_layer_spec *spec) {
    CRL_TRY(crl_infer_begin(spec, "layernorm", 1, 1));
    CRL_TRY(crl_infer_input(spec, "layernorm", 0, spec->compute, 2));
    const crl_tensor_spec *x = &spec->input[0];
    const crl_shape channels = CRL_SHAPE(crl_infer_last(x));
    CRL_TRY(crl_infer_output(spec, "layernorm", spec->compute, x->shape));
    CRL_TRY(crl_infer_param(
        spec, "layernorm",
        &(crl_param_spec){
            .name = "weight", .shape = channels, .f32 = true, .init = CRL_INIT_ONES}));
    CRL_TRY(crl_infer_param(
        spec, "layernorm",
        &(crl_param_spec){.name = "bias", .shape = channels, .f32 = true, .init = CRL_INIT_ZEROS}));
    crl_shape rows = x->shape;
    rows.dimensions -= 1;
    CRL_TRY(crl_infer_save(spec, "layernorm", CRL_DTYPE_F32, rows));
    CRL_TRY(crl_infer_save(spec, "layernorm", CRL_DTYPE_F32, rows));
    spec->input_needs_inputs = spec->weight_needs_inputs = 1u << 0;
    spec->input_needs_saves = spec->weight_needs_saves = BOTH_SAVES;
    spec->gradient_inputs = 1u << 0;
    const double elements = crl_infer_elements(x);
    spec->cost.flops[CRL_PHASE_FORWARD] = FORWARD_FLOPS * elements;
    spec->cost.flops[CRL_PHASE_INPUT] = INPUT_FLOPS * elements;
    spec->cost.flops[CRL_PHASE_WEIGHT] = WEIGHT_FLOPS * elements;
    crl_infer_bytes(spec, true);
    return CRL_STATUS_OK;
}

static crl_status prepare(const crl_layer_spec *spec, const crl_layer_env *env, void **state,
                          size_t scratch_bytes[CRL_PHASES]) {
    const crl_tensor_spec *x = &spec->input[0];
    *state = NULL;
    scratch_bytes[CRL_PHASE_FORWARD] = scratch_bytes[CRL_PHASE_INPUT] = 0;
    scratch_bytes[CRL_PHASE_WEIGHT] =
        env->training ? env->kernels->layernorm->scratch_bytes(crl_infer_rows(x), crl_infer_last(x))
                      : 0;
    return CRL_STATUS_OK;
}

static crl_status forward(const crl_layer_call *call) {
    const layernorm_options *option = call->spec->options;
    const crl_tensor_spec *x = &call->spec->input[0];
    return call->kernels->layernorm->forward(
        call->stream, call->x[0], call->w[0], call->w[1], option->epsilon, call->y[0],
        call->save[MEAN], call->save[RSTD], crl_infer_rows(x), crl_infer_last(x));
}

static crl_status backward_input(const crl_layer_call *call) {
    const crl_tensor_spec *x = &call->spec->input[0];
    if (call->dx[0] == NULL) {
        return CRL_STATUS_OK;
    }
    return call->kernels->layernorm->backward_input(
        call->stream, call->x[0], call->dy[0], call->w[0], call->save[MEAN], call->save[RSTD],
        call->dx[0], crl_infer_rows(x), crl_infer_last(x), call->dx_accumulate[0]);
}

static crl_status backward_weight(const crl_layer_call *call) {
    const crl_tensor_spec *x = &call->spec->input[0];
    return call->kernels->layernorm->backward_weight(
        call->stream, call->x[0], call->dy[0], call->save[MEAN], call->save[RSTD], call->dw[0],
        call->dw[1], crl_infer_rows(x), crl_infer_last(x), call->dw_accumulate, call->scratch);
}

const crl_layer crl_layer_layernorm = {
    .name = "layernorm",
    .help = "normalises the last dimension, then scales and shifts it",
    .options = options,
    .options_bytes = sizeof(layernorm_options),
    .cheap = true,
    .infer = infer,
    .prepare = prepare,
    .forward = forward,
    .backward_input = backward_input,
    .backward_weight = backward_weight,
};
