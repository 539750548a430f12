/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Between f32 and the type it computes in: f32 becomes that type, that type becomes f32. Put where
 * types meet when the graph is built; describing one is allowed. Gradients go the other way.
 */
#include "layers/infer_internal.h"

static crl_status infer(crl_layer_spec *spec) {
    CRL_TRY(crl_infer_begin(spec, "cast", 1, 1));
    const crl_tensor_spec *x = &spec->input[0];
    const bool narrows = x->dtype == CRL_DTYPE_F32;
    CRL_TRY(crl_infer_input(spec, "cast", 0, narrows ? CRL_DTYPE_F32 : spec->compute, 1));
    CRL_TRY(crl_infer_output(spec, "cast", narrows ? spec->compute : CRL_DTYPE_F32, x->shape));
    spec->gradient_inputs = 1u << 0;
    crl_infer_bytes(spec, false);
    return CRL_STATUS_OK;
}

static crl_status convert(const crl_layer_call *call, bool narrows, const void *x, void *y,
                          bool accumulate) {
    const crl_eltwise_ops *ops = call->kernels->eltwise;
    const int64_t n = crl_shape_elements(&call->spec->input[0].shape);
    return narrows ? ops->narrow(call->stream, x, y, n, accumulate)
                   : ops->widen(call->stream, x, y, n, accumulate);
}

static crl_status forward(const crl_layer_call *call) {
    return convert(call, call->spec->input[0].dtype == CRL_DTYPE_F32, call->x[0], call->y[0],
                   false);
}

static crl_status backward_input(const crl_layer_call *call) {
    if (call->dx[0] == NULL) {
        return CRL_STATUS_OK;
    }
    return convert(call, call->spec->input[0].dtype != CRL_DTYPE_F32, call->dy[0], call->dx[0],
                   call->dx_accumulate[0]);
}

const crl_layer crl_layer_cast = {
    .name = "cast",
    .help = "between f32 and the type that is computed in",
    .as_is = 1u << 0,
    .cheap = true,
    .infer = infer,
    .forward = forward,
    .backward_input = backward_input,
};
