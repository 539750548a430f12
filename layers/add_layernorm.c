/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The residual connection and the normalisation after it in one pass [ba16]: output 0 is a + b,
 * output 1 its layer normalisation. Both gradients meet at the sum, which both inputs get:
 *
 *     a ──┐         ┌── sum ─────> the residual stream goes on
 *         + ──sum───┤
 *     b ──┘         └── norm ────> the branch
 */
#include "layers/infer_internal.h"
#include "layers/norm_internal.h"

typedef struct add_layernorm_options {
    double epsilon;
} add_layernorm_options;

static const crl_option options[] = {{.name = "epsilon",
                                      .value = "1e-5",
                                      .help = "added to the variance",
                                      .type = &crl_option_double,
                                      .offset = offsetof(add_layernorm_options, epsilon),
                                      .min = 1e-12,
                                      .max = 1},
                                     {0}};

enum { SUM = 0, NORM = 1, INPUTS = 2 };
enum { MEAN = 0, RSTD = 1, STATISTICS = 2 };

static crl_status infer(crl_layer_spec *spec) {
    const crl_norm_config norm = {"add_layernorm", .bias = true, .statistics = STATISTICS,
                                  .flops = {8, 11, 5}};
    CRL_TRY(crl_infer_begin(spec, "add_layernorm", INPUTS, INPUTS));
    CRL_TRY(crl_infer_input(spec, "add_layernorm", 0, spec->compute, 2));
    CRL_TRY(crl_infer_input_is(spec, "add_layernorm", 1, &spec->input[0]));
    const crl_shape shape = spec->input[0].shape;
    CRL_TRY(crl_infer_output(spec, "add_layernorm", spec->compute, shape));
    CRL_TRY(crl_infer_output(spec, "add_layernorm", spec->compute, shape));
    spec->input_needs_outputs = spec->weight_needs_outputs = 1u << SUM;
    spec->gradient_inputs = 1u << 0 | 1u << 1;
    return crl_norm_infer(spec, &norm);
}

static crl_status prepare(const crl_layer_spec *spec, const crl_layer_env *env, void **state,
                          size_t scratch_bytes[CRL_PHASES]) {
    const double elements = crl_infer_elements(&spec->input[0]);
    CRL_TRY(crl_norm_prepare(spec, env, state, scratch_bytes));
    scratch_bytes[CRL_PHASE_INPUT] =
        env->training ? (size_t)elements * crl_dtype_bytes(spec->compute) : 0;
    return CRL_STATUS_OK;
}

static crl_status forward(const crl_layer_call *call) {
    const add_layernorm_options *option = call->spec->options;
    const crl_tensor_spec *x = &call->spec->input[0];
    return call->kernels->layernorm->add_forward(
        call->stream, call->x[0], call->x[1], call->y[SUM], call->w[0], call->w[1], option->epsilon,
        call->y[NORM], call->save[MEAN], call->save[RSTD], crl_infer_rows(x), crl_infer_last(x));
}

/* out = gradient of the sum, from both outputs; one without a gradient gives none. */
static crl_status find_gradient(const crl_layer_call *call, void *out) {
    const crl_tensor_spec *x = &call->spec->input[0];
    if (call->dy[SUM] != NULL) {
        CRL_TRY(call->kernels->eltwise->copy(call->stream, call->dy[SUM], out,
                                             crl_shape_elements(&x->shape), false));
    }
    if (call->dy[NORM] == NULL) {
        return CRL_STATUS_OK;
    }
    return call->kernels->layernorm->backward_input(
        call->stream, call->y[SUM], call->dy[NORM], call->w[0], call->save[MEAN], call->save[RSTD],
        out, crl_infer_rows(x), crl_infer_last(x), call->dy[SUM] != NULL);
}

/* The gradient is made in a dx that is only written, where there is one, and added to the other:
 * its bits are the same wherever it is made. A sum of one tensor with itself has one dx for both.
 */
static crl_status backward_input(const crl_layer_call *call) {
    const int64_t n = crl_shape_elements(&call->spec->input[0].shape);
    void *gradient = call->scratch;
    bool wanted = false;
    for (int i = INPUTS - 1; i >= 0; --i) {
        wanted = wanted || call->dx[i] != NULL;
        if (call->dx[i] != NULL && !call->dx_accumulate[i] && call->dx[0] != call->dx[1]) {
            gradient = call->dx[i];
        }
    }
    if (!wanted) {
        return CRL_STATUS_OK;
    }
    CRL_TRY(find_gradient(call, gradient));
    for (int i = 0; i < INPUTS; ++i) {
        if (call->dx[i] != NULL && call->dx[i] != gradient) {
            CRL_TRY(call->kernels->eltwise->copy(call->stream, gradient, call->dx[i], n,
                                                 call->dx_accumulate[i]));
        }
    }
    return CRL_STATUS_OK;
}

static crl_status backward_weight(const crl_layer_call *call) {
    const crl_tensor_spec *x = &call->spec->input[0];
    if (call->dy[NORM] == NULL) {
        return CRL_FAIL(UNSUPPORTED, "add_layernorm %s: output 1 has no gradient, expected one",
                        call->spec->node);
    }
    return call->kernels->layernorm->backward_weight(
        call->stream, call->y[SUM], call->dy[NORM], call->save[MEAN], call->save[RSTD], call->dw[0],
        call->dw[1], crl_infer_rows(x), crl_infer_last(x), call->dw_accumulate, call->scratch);
}

const crl_layer crl_layer_add_layernorm = {
    .name = "add_layernorm",
    .help = "sum of two tensors, and its layer normalisation as output 1",
    .options = options,
    .options_bytes = sizeof(add_layernorm_options),
    .cheap = true,
    .infer = infer,
    .prepare = prepare,
    .forward = forward,
    .backward_input = backward_input,
    .backward_weight = backward_weight,
};
