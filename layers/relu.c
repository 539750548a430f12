/* SPDX-License-Identifier: Apache-2.0 */
/*
 * max(x, 0). Its derivative is read off the output, which the next layer keeps anyway, so that the
 * input need not be kept.
 */
#include "layers/infer_internal.h"

static crl_status infer(crl_layer_spec *spec) {
    CRL_TRY(crl_infer_begin(spec, "relu", 1, 1));
    CRL_TRY(crl_infer_input(spec, "relu", 0, spec->compute, 1));
    CRL_TRY(crl_infer_output(spec, "relu", spec->compute, spec->input[0].shape));
    spec->input_needs_outputs = 1u << 0;
    spec->gradient_inputs = 1u << 0;
    const double elements = crl_infer_elements(&spec->input[0]);
    spec->cost.flops[CRL_PHASE_FORWARD] = elements;
    spec->cost.flops[CRL_PHASE_INPUT] = elements;
    crl_infer_bytes(spec, false);
    return CRL_STATUS_OK;
}

static crl_status forward(const crl_layer_call *call) {
    return call->kernels->eltwise->activation(call->stream, CRL_ACTIVATION_RELU, call->x[0],
                                              call->y[0],
                                              crl_shape_elements(&call->spec->input[0].shape));
}

static crl_status backward_input(const crl_layer_call *call) {
    if (call->dx[0] == NULL) {
        return CRL_STATUS_OK;
    }
    return call->kernels->eltwise->activation_backward(
        call->stream, CRL_ACTIVATION_RELU, call->y[0], call->dy[0], call->dx[0],
        crl_shape_elements(&call->spec->input[0].shape), call->dx_accumulate[0]);
}

const crl_layer crl_layer_relu = {
    .name = "relu",
    .help = "max(x, 0)",
    .cheap = true,
    .infer = infer,
    .forward = forward,
    .backward_input = backward_input,
};
