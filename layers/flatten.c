/* SPDX-License-Identifier: Apache-2.0 */
/* (B, ...) to (B, product of the rest). A copy: every node owns its output. */
#include "layers/infer_internal.h"

static crl_status infer(crl_layer_spec *spec) {
    CRL_TRY(crl_infer_begin(spec, "flatten", 1, 1));
    CRL_TRY(crl_infer_input(spec, "flatten", 0, spec->compute, 1));
    const crl_shape *x = &spec->input[0].shape;
    CRL_TRY(crl_infer_output(spec, "flatten", spec->compute,
                             CRL_SHAPE(x->size[0], crl_shape_product(x, 1, x->dimensions))));
    spec->gradient_inputs = 1u << 0;
    crl_infer_bytes(spec, false);
    return CRL_STATUS_OK;
}

static crl_status forward(const crl_layer_call *call) {
    return call->kernels->eltwise->copy(call->stream, call->x[0], call->y[0],
                                        crl_shape_elements(&call->spec->input[0].shape), false);
}

static crl_status backward_input(const crl_layer_call *call) {
    if (call->dx[0] == NULL) {
        return CRL_STATUS_OK;
    }
    return call->kernels->eltwise->copy(call->stream, call->dy[0], call->dx[0],
                                        crl_shape_elements(&call->spec->input[0].shape),
                                        call->dx_accumulate[0]);
}

const crl_layer crl_layer_flatten = {
    .name = "flatten",
    .help = "keeps the samples, merges all other dimensions",
    .cheap = true,
    .infer = infer,
    .forward = forward,
    .backward_input = backward_input,
};
