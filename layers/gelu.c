/* SPDX-License-Identifier: Apache-2.0 */
/* Gaussian error linear unit [hendrycks16], exact or with the tanh approximation of GPT-2. */
#include "layers/infer_internal.h"

typedef struct gelu_options {
    int approximation; /* index into approximation_names */
} gelu_options;

static const char *const approximation_names[] = {"erf", "tanh", NULL};
static const crl_activation kinds[] = {CRL_ACTIVATION_GELU_ERF, CRL_ACTIVATION_GELU_TANH};

static const crl_option options[] = {{.name = "approximation",
                                      .value = "erf",
                                      .help = "erf: exact; tanh: as GPT-2",
                                      .type = &crl_option_choice,
                                      .offset = offsetof(gelu_options, approximation),
                                      .choices = approximation_names},
                                     {0}};

/* Operations per element, the transcendental counted as about ten. */
enum { FORWARD_FLOPS = 18, INPUT_FLOPS = 30 };

static crl_status infer(crl_layer_spec *spec) {
    CRL_TRY(crl_infer_begin(spec, "gelu", 1, 1));
    CRL_TRY(crl_infer_input(spec, "gelu", 0, spec->compute, 1));
    CRL_TRY(crl_infer_output(spec, "gelu", spec->compute, spec->input[0].shape));
    spec->input_needs_inputs = 1u << 0;
    spec->gradient_inputs = 1u << 0;
    const double elements = crl_infer_elements(&spec->input[0]);
    spec->cost.flops[CRL_PHASE_FORWARD] = FORWARD_FLOPS * elements;
    spec->cost.flops[CRL_PHASE_INPUT] = INPUT_FLOPS * elements;
    crl_infer_bytes(spec, false);
    return CRL_STATUS_OK;
}

static crl_activation kind_of(const crl_layer_call *call) {
    const gelu_options *option = call->spec->options;
    return kinds[option->approximation];
}

static crl_status forward(const crl_layer_call *call) {
    return call->kernels->eltwise->activation(call->stream, kind_of(call), call->x[0], call->y[0],
                                              crl_shape_elements(&call->spec->input[0].shape));
}

static crl_status backward_input(const crl_layer_call *call) {
    if (call->dx[0] == NULL) {
        return CRL_STATUS_OK;
    }
    return call->kernels->eltwise->activation_backward(
        call->stream, kind_of(call), call->x[0], call->dy[0], call->dx[0],
        crl_shape_elements(&call->spec->input[0].shape), call->dx_accumulate[0]);
}

const crl_layer crl_layer_gelu = {
    .name = "gelu",
    .help = "x times the normal distribution function of x",
    .options = options,
    .options_bytes = sizeof(gelu_options),
    .cheap = true,
    .infer = infer,
    .forward = forward,
    .backward_input = backward_input,
};
