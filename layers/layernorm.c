/* SPDX-License-Identifier: Apache-2.0 */
/* Layer normalisation over the last dimension, with learned scale and shift [ba16]. */
#include "layers/infer_internal.h"
#include "layers/norm_internal.h"

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

enum { MEAN = 0, RSTD = 1, STATISTICS = 2 };

static crl_status infer(crl_layer_spec *spec) {
    const crl_norm_config norm = {"layernorm", .bias = true, .statistics = STATISTICS,
                                  .flops = {7, 10, 5}};
    CRL_TRY(crl_infer_begin(spec, "layernorm", 1, 1));
    CRL_TRY(crl_infer_input(spec, "layernorm", 0, spec->compute, 2));
    CRL_TRY(crl_infer_output(spec, "layernorm", spec->compute, spec->input[0].shape));
    spec->input_needs_inputs = spec->weight_needs_inputs = 1u << 0;
    spec->gradient_inputs = 1u << 0;
    return crl_norm_infer(spec, &norm);
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
    .prepare = crl_norm_prepare,
    .forward = forward,
    .backward_input = backward_input,
    .backward_weight = backward_weight,
};
