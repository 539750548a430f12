/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Squared error of x and a target of the same shape: a sum over the elements of the samples that
 * are no padding, never a mean. The target has no gradient.
 */
#include "layers/infer_internal.h"

enum { FLOPS = 3 };

static crl_status infer(crl_layer_spec *spec) {
    CRL_TRY(crl_infer_begin(spec, "mse", 2, 2));
    CRL_TRY(crl_infer_input(spec, "mse", 0, spec->compute, 1));
    const crl_tensor_spec target = {CRL_DTYPE_F32, spec->input[0].shape};
    CRL_TRY(crl_infer_input_is(spec, "mse", 1, &target));
    spec->input_needs_inputs = 1u << 0 | 1u << 1;
    spec->gradient_inputs = 1u << 0;
    spec->cost.flops[CRL_PHASE_FORWARD] = FLOPS * crl_infer_elements(&spec->input[0]);
    spec->cost.flops[CRL_PHASE_INPUT] = spec->cost.flops[CRL_PHASE_FORWARD];
    crl_infer_bytes(spec, false);
    return CRL_STATUS_OK;
}

static int64_t valid_elements(const crl_layer_call *call) {
    const crl_shape *x = &call->spec->input[0].shape;
    return call->at.valid_samples * crl_shape_product(x, 1, x->dimensions);
}

static crl_status forward(const crl_layer_call *call) {
    return call->kernels->cross_entropy->mse_forward(call->stream, call->x[0], call->x[1],
                                                     valid_elements(call), call->loss);
}

static crl_status backward_input(const crl_layer_call *call) {
    if (call->dx[0] == NULL) {
        return CRL_STATUS_OK;
    }
    return call->kernels->cross_entropy->mse_backward(
        call->stream, call->x[0], call->x[1], valid_elements(call),
        crl_shape_elements(&call->spec->input[0].shape), call->loss_scale, call->dx[0],
        call->dx_accumulate[0]);
}

const crl_layer crl_layer_mse = {
    .name = "mse",
    .help = "loss: squared difference of two tensors",
    .is_loss = true,
    .f32_inputs = 1u << 1,
    .infer = infer,
    .forward = forward,
    .backward_input = backward_input,
};
