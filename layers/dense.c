/* SPDX-License-Identifier: Apache-2.0 */
/*
 * y = f(x W^T + b) and its gradients as products with fused bias, activation, slope and sums.
 * `weight` in the calls is the index of W among the layer's parameters; its bias comes after it.
 */
#include "layers/dense_internal.h"

#include <math.h>

#include "layers/infer_internal.h"

enum { PART_BYTES = 256 };

crl_status crl_dense_infer(crl_layer_spec *spec, const crl_dense_params *params) {
    static const crl_init_kind inits[] = {CRL_INIT_UNIFORM, CRL_INIT_NORMAL, CRL_INIT_ZEROS};
    const crl_init_kind init = inits[params->init];
    const double scale = params->init_scale > 0 ? params->init_scale : 1 / sqrt((double)params->in);
    CRL_TRY(crl_infer_param(spec, params->type,
                            &(crl_param_spec){.name = params->weight,
                                              .shape = CRL_SHAPE(params->out, params->in),
                                              .decay = true,
                                              .init = init,
                                              .init_scale = scale}));
    if (params->bias == NULL) {
        return CRL_STATUS_OK;
    }
    return crl_infer_param(
        spec, params->type,
        &(crl_param_spec){.name = params->bias,
                          .shape = CRL_SHAPE(params->out),
                          .init = init == CRL_INIT_UNIFORM ? init : CRL_INIT_ZEROS,
                          .init_scale = scale});
}

double crl_dense_activation_flops(int activation) {
    static const double flops[] = {0, 1, 18, 18}; /* the transcendental as about ten */
    return flops[activation];
}

double crl_dense_slope_flops(int activation) {
    static const double flops[] = {0, 1, 30, 30};
    return flops[activation];
}

crl_activation crl_dense_kind(int activation) {
    static const crl_activation kinds[] = {CRL_ACTIVATION_RELU, CRL_ACTIVATION_RELU,
                                           CRL_ACTIVATION_GELU_ERF, CRL_ACTIVATION_GELU_TANH};
    return kinds[activation];
}

size_t crl_dense_part(size_t bytes) {
    return (bytes + PART_BYTES - 1) / PART_BYTES * PART_BYTES;
}

crl_status crl_dense_create(crl_dense *out, const crl_layer_env *env,
                            const crl_dense_config *config) {
    const crl_matmul_ops *ops = env->kernels->matmul;
    const bool acts = config->activation != CRL_DENSE_NONE;
    const bool slopes = config->slope != CRL_DENSE_NONE;
    out->ops = ops;
    CRL_TRY(ops->create(
        &out->forward,
        &(crl_matmul_config){.m = config->rows,
                             .n = config->out,
                             .k = config->in,
                             .b_transposed = true,
                             .bias = config->bias,
                             .epilogue = acts ? CRL_EPILOGUE_ACTIVATION : CRL_EPILOGUE_NONE,
                             .activation = crl_dense_kind(config->activation)},
        env->stream));
    if (!env->training) {
        return CRL_STATUS_OK;
    }
    CRL_TRY(ops->create(
        &out->input,
        &(crl_matmul_config){.m = config->rows,
                             .n = config->in,
                             .k = config->out,
                             .may_accumulate = !slopes,
                             .epilogue = slopes ? CRL_EPILOGUE_SLOPE : CRL_EPILOGUE_NONE,
                             .activation = crl_dense_kind(config->slope)},
        env->stream));
    return ops->create(&out->weight,
                       &(crl_matmul_config){.m = config->out,
                                            .n = config->in,
                                            .k = config->rows,
                                            .a_transposed = true,
                                            .may_accumulate = true,
                                            .y_is_f32 = true,
                                            .row_sums = config->bias},
                       env->stream);
}

void crl_dense_destroy(crl_dense *dense) {
    if (dense->ops != NULL) {
        dense->ops->destroy(dense->weight);
        dense->ops->destroy(dense->input);
        dense->ops->destroy(dense->forward);
    }
}

size_t crl_dense_scratch_bytes(const crl_dense *dense, int phase) {
    const crl_matmul *product = phase == CRL_PHASE_FORWARD ? dense->forward
                                : phase == CRL_PHASE_INPUT ? dense->input
                                                           : dense->weight;
    return product != NULL ? dense->ops->scratch_bytes(product) : 0;
}

/* Does parameter `weight` have a bias after it? */
static bool has_bias(const crl_layer_call *call, int weight) {
    return weight + 1 < call->spec->params && call->spec->param[weight + 1].shape.dimensions == 1;
}

crl_status crl_dense_forward(const crl_dense *dense, const crl_layer_call *call, const void *x,
                             int weight, void *y, void *aux, void *scratch) {
    const crl_matmul_call product = {.a = x,
                                     .b = call->w[weight],
                                     .bias = has_bias(call, weight) ? call->w[weight + 1] : NULL,
                                     .y = y,
                                     .aux = aux,
                                     .scratch = scratch};
    return dense->ops->run(dense->forward, call->stream, &product);
}

crl_status crl_dense_input(const crl_dense *dense, const crl_layer_call *call, const void *dy,
                           int weight, void *dx, bool accumulate, void *aux, void *scratch) {
    const crl_matmul_call product = {.a = dy,
                                     .b = call->w[weight],
                                     .y = dx,
                                     .aux = aux,
                                     .accumulate = accumulate,
                                     .scratch = scratch};
    return dense->ops->run(dense->input, call->stream, &product);
}

crl_status crl_dense_weight(const crl_dense *dense, const crl_layer_call *call, const void *dy,
                            const void *x, int weight, void *scratch) {
    const crl_matmul_call product = {.a = dy,
                                     .b = x,
                                     .y = call->dw[weight],
                                     .sums = has_bias(call, weight) ? call->dw[weight + 1] : NULL,
                                     .accumulate = call->dw_accumulate,
                                     .scratch = scratch};
    return dense->ops->run(dense->weight, call->stream, &product);
}
