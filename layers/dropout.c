/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Sets elements to zero with probability p and divides the others by 1 - p [srivastava14]; passes
 * everything through when not training. Nothing is kept for backward: the draws are a function of
 * where the sample stands in the training run, and are simply drawn again.
 */
#include "layers/infer_internal.h"

typedef struct dropout_options {
    double p;
} dropout_options;

static const crl_option options[] = {{.name = "p",
                                      .value = "0.1",
                                      .help = "probability of an element to be dropped, below 1",
                                      .type = &crl_option_double,
                                      .offset = offsetof(dropout_options, p),
                                      .min = 0,
                                      .max = 1},
                                     {0}};

enum { FLOPS = 20 /* per element: its share of ten Philox rounds */ };

static crl_status infer(crl_layer_spec *spec) {
    const dropout_options *option = spec->options;
    CRL_TRY(crl_infer_begin(spec, "dropout", 1, 1));
    CRL_TRY(crl_infer_input(spec, "dropout", 0, spec->compute, 1));
    if (!(option->p >= 0 && option->p < 1)) {
        return CRL_FAIL(INVALID, "dropout %s: p is %g, expected at least 0 and below 1", spec->node,
                        option->p);
    }
    CRL_TRY(crl_infer_output(spec, "dropout", spec->compute, spec->input[0].shape));
    spec->gradient_inputs = 1u << 0;
    spec->draws = option->p > 0;
    spec->cost.flops[CRL_PHASE_FORWARD] = FLOPS * crl_infer_elements(&spec->input[0]);
    spec->cost.flops[CRL_PHASE_INPUT] = spec->cost.flops[CRL_PHASE_FORWARD];
    crl_infer_bytes(spec, false);
    return CRL_STATUS_OK;
}

static crl_status drop(const crl_layer_call *call, const void *x, void *y, bool accumulate) {
    const dropout_options *option = call->spec->options;
    const crl_shape *shape = &call->spec->input[0].shape;
    const crl_rng rng = {.seed = call->at.seed,
                         .purpose = CRL_RNG_DROPOUT,
                         .layer = call->at.node,
                         .step = call->at.step,
                         .sample = (uint32_t)call->at.first_sample};
    return call->kernels->eltwise->dropout(
        call->stream, &rng, call->at.training ? option->p : 0, x, y, shape->size[0],
        crl_shape_product(shape, 1, shape->dimensions), accumulate);
}

static crl_status forward(const crl_layer_call *call) {
    return drop(call, call->x[0], call->y[0], false);
}

static crl_status backward_input(const crl_layer_call *call) {
    if (call->dx[0] == NULL) {
        return CRL_STATUS_OK;
    }
    return drop(call, call->dy[0], call->dx[0], call->dx_accumulate[0]);
}

const crl_layer crl_layer_dropout = {
    .name = "dropout",
    .help = "drops random elements while training",
    .options = options,
    .options_bytes = sizeof(dropout_options),
    .cheap = true,
    .infer = infer,
    .forward = forward,
    .backward_input = backward_input,
};
