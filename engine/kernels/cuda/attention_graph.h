/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Attention as graphs of cuDNN, and what they are asked for. Pure of devices: the target says for
 * which one, so a test can ask about devices that are not there.
 */
#pragma once

#include "engine/kernels/cuda/attention_internal.h"
#include "engine/kernels/cuda/cudnn_graph.h"

#ifdef __cplusplus
extern "C" {
#endif

/* The arrays that run() is given, by uid. */
enum {
    CRL_ATTENTION_Q = 1,
    CRL_ATTENTION_K,
    CRL_ATTENTION_V,
    CRL_ATTENTION_Y,
    CRL_ATTENTION_LSE,
    CRL_ATTENTION_SCALE,  /* value */
    CRL_ATTENTION_MASKED, /* value: -infinity; only of causal graphs */
    CRL_ATTENTION_DY,
    CRL_ATTENTION_DQ,
    CRL_ATTENTION_DK,
    CRL_ATTENTION_DV,
    CRL_ATTENTION_DELTA, /* (B,H,T) f32, scratch of the backward graph */
    CRL_ATTENTION_ONE    /* value: 1 */
};

/* May cuDNN be asked? bf16 and f16, more than one token, head sizes that are multiples of 8 up to
 * 256, at most 8 GiB of workspace for a sample. Not whether it will take it. */
bool crl_attention_graph_takes(const crl_attention_shape *shape);
/* Samples that one run does: the largest divisor of B whose workspace is small enough; others
 * follow in further runs. */
int64_t crl_attention_graph_samples(const crl_attention_shape *shape);
/* The most workspace that a plan may take, for so many samples. Forward: 1 MiB. Backward, which
 * keeps dS in the array's type: 2 · B·H · (T up to a multiple of 128)^2 and 1 MiB. Measured of
 * cuDNN 9.19 (the test prints it). */
size_t crl_attention_graph_workspace_bytes(const crl_attention_shape *shape, bool backward);
/* A plan for shape->b samples. UNSUPPORTED: cuDNN has none. NOMEM, DEVICE. */
CRL_NODISCARD crl_status crl_attention_graph_forward(crl_cudnn_plan **out,
                                                     const crl_attention_shape *shape,
                                                     const crl_cudnn_target *target);
CRL_NODISCARD crl_status crl_attention_graph_backward(crl_cudnn_plan **out,
                                                      const crl_attention_shape *shape,
                                                      const crl_cudnn_target *target);

#ifdef __cplusplus
}
#endif
