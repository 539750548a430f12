/* SPDX-License-Identifier: Apache-2.0 */
/* Gated linear unit: (..., 2C) to (..., C), the first half through silu(u) = u / (1 + e^-u), times
 * the second [shazeer20]. */
#include "layers/infer_internal.h"

/* Operations per element of the output, the exponential as about ten. */
enum { FORWARD_FLOPS = 14, INPUT_FLOPS = 20 };

static crl_status infer(crl_layer_spec *spec) {
    CRL_TRY(crl_infer_begin(spec, "swiglu", 1, 1));
    CRL_TRY(crl_infer_input(spec, "swiglu", 0, spec->compute, 2));
    crl_shape y = spec->input[0].shape;
    const int64_t both = crl_infer_last(&spec->input[0]);
    if (both % 2 != 0) {
        return CRL_FAIL(INVALID,
                        "swiglu %s: input last dimension is %lld, expected a multiple of 2",
                        spec->node, (long long)both);
    }
    y.size[y.dimensions - 1] = both / 2;
    CRL_TRY(crl_infer_output(spec, "swiglu", spec->compute, y));
    spec->input_needs_inputs = 1u << 0;
    spec->gradient_inputs = 1u << 0;
    const double elements = crl_infer_elements(&spec->output[0]);
    spec->cost.flops[CRL_PHASE_FORWARD] = FORWARD_FLOPS * elements;
    spec->cost.flops[CRL_PHASE_INPUT] = INPUT_FLOPS * elements;
    crl_infer_bytes(spec, false);
    return CRL_STATUS_OK;
}

static crl_status forward(const crl_layer_call *call) {
    const crl_tensor_spec *y = &call->spec->output[0];
    return call->kernels->eltwise->swiglu(call->stream, call->x[0], call->y[0], crl_infer_rows(y),
                                          crl_infer_last(y));
}

static crl_status backward_input(const crl_layer_call *call) {
    const crl_tensor_spec *y = &call->spec->output[0];
    if (call->dx[0] == NULL) {
        return CRL_STATUS_OK;
    }
    return call->kernels->eltwise->swiglu_backward(call->stream, call->x[0], call->dy[0],
                                                   call->dx[0], crl_infer_rows(y),
                                                   crl_infer_last(y), call->dx_accumulate[0]);
}

const crl_layer crl_layer_swiglu = {
    .name = "swiglu",
    .help = "halves the last dimension: silu of the first half times the second",
    .cheap = true,
    .infer = infer,
    .forward = forward,
    .backward_input = backward_input,
};
