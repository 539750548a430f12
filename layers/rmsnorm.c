/* SPDX-License-Identifier: Apache-2.0 */
/* Normalisation of the last dimension by the root of its mean square, with a learned scale and no
 * shift [zhang19]. */
#include "layers/infer_internal.h"

typedef struct rmsnorm_options {
    double epsilon;
} rmsnorm_options;

static const crl_option options[] = {{.name = "epsilon",
                                      .value = "1e-5",
                                      .help = "added to the mean square",
                                      .type = &crl_option_double,
                                      .offset = offsetof(rmsnorm_options, epsilon),
                                      .min = 1e-12,
                                      .max = 1},
                                     {0}};

enum { RSTD = 0 };
/* Operations per element, counting the passes of the kernels. */
enum { FORWARD_FLOPS = 4, INPUT_FLOPS = 8, WEIGHT_FLOPS = 3 };

static crl_status infer(crl_layer_spec *spec) {
    CRL_TRY(crl_infer_begin(spec, "rmsnorm", 1, 1));
    CRL_TRY(crl_infer_input(spec, "rmsnorm", 0, spec->compute, 2));
    const crl_tensor_spec *x = &spec->input[0];
    CRL_TRY(crl_infer_output(spec, "rmsnorm", spec->compute, x->shape));
    CRL_TRY(crl_infer_param(spec, "rmsnorm",
                            &(crl_param_spec){.name = "weight",
                                              .shape = CRL_SHAPE(crl_infer_last(x)),
                                              .f32 = true,
                                              .init = CRL_INIT_ONES}));
    crl_shape rows = x->shape;
    rows.dimensions -= 1;
    CRL_TRY(crl_infer_save(spec, "rmsnorm", CRL_DTYPE_F32, rows));
    spec->input_needs_inputs = spec->weight_needs_inputs = 1u << 0;
    spec->input_needs_saves = spec->weight_needs_saves = 1u << RSTD;
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
    const rmsnorm_options *option = call->spec->options;
    const crl_tensor_spec *x = &call->spec->input[0];
    return call->kernels->layernorm->rms_forward(call->stream, call->x[0], call->w[0],
                                                 option->epsilon, call->y[0], call->save[RSTD],
                                                 crl_infer_rows(x), crl_infer_last(x));
}

static crl_status backward_input(const crl_layer_call *call) {
    const crl_tensor_spec *x = &call->spec->input[0];
    if (call->dx[0] == NULL) {
        return CRL_STATUS_OK;
    }
    return call->kernels->layernorm->rms_backward_input(
        call->stream, call->x[0], call->dy[0], call->w[0], call->save[RSTD], call->dx[0],
        crl_infer_rows(x), crl_infer_last(x), call->dx_accumulate[0]);
}

static crl_status backward_weight(const crl_layer_call *call) {
    const crl_tensor_spec *x = &call->spec->input[0];
    return call->kernels->layernorm->rms_backward_weight(
        call->stream, call->x[0], call->dy[0], call->save[RSTD], call->dw[0], crl_infer_rows(x),
        crl_infer_last(x), call->dw_accumulate, call->scratch);
}

const crl_layer crl_layer_rmsnorm = {
    .name = "rmsnorm",
    .help = "divides the last dimension by its root mean square, then scales it",
    .options = options,
    .options_bytes = sizeof(rmsnorm_options),
    .cheap = true,
    .infer = infer,
    .prepare = prepare,
    .forward = forward,
    .backward_input = backward_input,
    .backward_weight = backward_weight,
};
