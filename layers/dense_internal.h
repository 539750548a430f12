/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What layers made of matrix products share: y = f(x W^T + b) over rows, its parameters, its three
 * products and what they cost. An instance lies in a layer's state. Knows no layer.
 */
#pragma once

#include "engine/ir/layer.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Indices into the layers' own tables of names: {"uniform", "normal", "zeros"} of initial weights,
 * {"none", "relu", "gelu", "gelu_tanh"} of activations. */
enum { CRL_DENSE_UNIFORM = 0, CRL_DENSE_NORMAL, CRL_DENSE_ZEROS };
enum { CRL_DENSE_NONE = 0, CRL_DENSE_RELU, CRL_DENSE_GELU, CRL_DENSE_GELU_TANH };

typedef struct crl_dense_params {
    const char *type;          /* of the layer, for messages */
    const char *weight, *bias; /* names; bias NULL: none */
    int64_t in, out;
    int init;          /* CRL_DENSE_UNIFORM ...; uniform also draws the bias */
    double init_scale; /* 0: 1/sqrt(in) */
} crl_dense_params;

typedef struct crl_dense_config {
    int64_t rows, in, out;
    bool bias;
    int activation; /* CRL_DENSE_NONE ...: f */
    int slope;      /* CRL_DENSE_NONE ...: dx is also multiplied by its derivative at aux */
} crl_dense_config;

typedef struct crl_dense {
    const crl_matmul_ops *ops;
    crl_matmul *forward, *input, *weight; /* the last two only for training */
} crl_dense;

/* Appends weight (out,in) and bias (out). INVALID. */
CRL_NODISCARD crl_status crl_dense_infer(crl_layer_spec *spec, const crl_dense_params *params);
/* Operations of f and of its derivative per element. */
double crl_dense_activation_flops(int activation);
double crl_dense_slope_flops(int activation);
/* The kernels' name of an activation that is not none. */
crl_activation crl_dense_kind(int activation);
/* `bytes` rounded up to where another part of a scratch may begin. */
size_t crl_dense_part(size_t bytes);

/* Creates the products, those of backward where `env` is for training. `out` is zero before and,
 * when it fails, is left for destroy. As crl_matmul_ops create. */
CRL_NODISCARD crl_status crl_dense_create(crl_dense *out, const crl_layer_env *env,
                                          const crl_dense_config *config);
/* One that is zero is fine. */
void crl_dense_destroy(crl_dense *dense);
/* Scratch of the product of a phase. */
size_t crl_dense_scratch_bytes(const crl_dense *dense, int phase);

/* All async on call->stream, with `scratch` of the phase. y = f(x W^T + b), aux = x W^T + b. */
CRL_NODISCARD crl_status crl_dense_forward(const crl_dense *dense, const crl_layer_call *call,
                                           const void *x, int weight, void *y, void *aux,
                                           void *scratch);
/* dx (+)= dy W, or dx = dy W · f'(aux) where there is a slope. */
CRL_NODISCARD crl_status crl_dense_input(const crl_dense *dense, const crl_layer_call *call,
                                         const void *dy, int weight, void *dx, bool accumulate,
                                         void *aux, void *scratch);
/* dW (+)= dy^T x, db (+)= sum of dy over the rows. */
CRL_NODISCARD crl_status crl_dense_weight(const crl_dense *dense, const crl_layer_call *call,
                                          const void *dy, const void *x, int weight, void *scratch);

#ifdef __cplusplus
}
#endif
