/* SPDX-License-Identifier: Apache-2.0 */
/* Normalisation of the last dimension by the root of its mean square, with a learned scale and no
 * shift [zhang19]. */
#include "layers/infer_internal.h"
#include "layers/norm_internal.h"

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

enum { RSTD = 0, STATISTICS = 1 };

static crl_status infer(crl_layer_spec *spec) {
    const crl_norm_config norm = {"rmsnorm", .statistics = STATISTICS, .flops = {4, 8, 3}};
    CRL_TRY(crl_infer_begin(spec, "rmsnorm", 1, 1));
    CRL_TRY(crl_infer_input(spec, "rmsnorm", 0, spec->compute, 2));
    CRL_TRY(crl_infer_output(spec, "rmsnorm", spec->compute, spec->input[0].shape));
    spec->input_needs_inputs = spec->weight_needs_inputs = 1u << 0;
    spec->gradient_inputs = 1u << 0;
    return crl_norm_infer(spec, &norm);
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
    .prepare = crl_norm_prepare,
    .forward = forward,
    .backward_input = backward_input,
    .backward_weight = backward_weight,
};
