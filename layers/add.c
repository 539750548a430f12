/* SPDX-License-Identifier: Apache-2.0 */
/* Sum of two tensors of one shape: the residual connection. Refuses to broadcast. */
#include "layers/infer_internal.h"

static crl_status infer(crl_layer_spec *spec) {
    CRL_TRY(crl_infer_begin(spec, "add", 2, 2));
    CRL_TRY(crl_infer_input(spec, "add", 0, spec->compute, 1));
    CRL_TRY(crl_infer_input_is(spec, "add", 1, &spec->input[0]));
    CRL_TRY(crl_infer_output(spec, "add", spec->compute, spec->input[0].shape));
    spec->gradient_inputs = 1u << 0 | 1u << 1;
    spec->cost.flops[CRL_PHASE_FORWARD] = crl_infer_elements(&spec->input[0]);
    crl_infer_bytes(spec, false);
    return CRL_STATUS_OK;
}

static crl_status forward(const crl_layer_call *call) {
    return call->kernels->eltwise->add(call->stream, call->x[0], call->x[1], call->y[0],
                                       crl_shape_elements(&call->spec->output[0].shape));
}

static crl_status backward_input(const crl_layer_call *call) {
    for (int i = 0; i < 2; ++i) {
        if (call->dx[i] != NULL) {
            CRL_TRY(call->kernels->eltwise->copy(call->stream, call->dy[0], call->dx[i],
                                                 crl_shape_elements(&call->spec->output[0].shape),
                                                 call->dx_accumulate[i]));
        }
    }
    return CRL_STATUS_OK;
}

const crl_layer crl_layer_add = {
    .name = "add",
    .help = "sum of two tensors of one shape",
    .cheap = true,
    .infer = infer,
    .forward = forward,
    .backward_input = backward_input,
};
