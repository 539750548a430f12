/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The two ways attention is computed on CUDA, between which attention.c chooses when an operation
 * is created: own kernels (attention_flash.cu), which take every type and size, and cuDNN's
 * (attention_cudnn.c).
 */
#pragma once

#include "engine/kernels/attention.h"
#include "engine/tensor/tensor.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Sizes with the type of the arrays; scale is never 0 here. */
typedef struct crl_attention_shape {
    int64_t b, t, heads, d;
    float scale;
    bool causal;
    crl_dtype dtype;
} crl_attention_shape;

/* Forward needs no scratch. */
size_t crl_attention_flash_backward_bytes(const crl_attention_shape *shape);
/* Async on stream. DEVICE. */
CRL_NODISCARD crl_status crl_attention_flash_forward(const crl_attention_shape *shape,
                                                     crl_stream *stream,
                                                     const void *qkv, /* (B,T,3C) */
                                                     void *y,         /* (B,T,C) */
                                                     float *lse);     /* (B,H,T) */
/* dqkv (+)=. Async on stream. DEVICE. */
CRL_NODISCARD crl_status crl_attention_flash_backward(const crl_attention_shape *shape,
                                                      crl_stream *stream,
                                                      const void *qkv,  /* (B,T,3C) */
                                                      const void *y,    /* (B,T,C) */
                                                      const float *lse, /* (B,H,T) */
                                                      const void *dy,   /* (B,T,C) */
                                                      void *dqkv,       /* (B,T,3C) */
                                                      bool accumulate, void *scratch);

typedef struct crl_attention_cudnn crl_attention_cudnn;

/* The scratch of its forward or backward, whatever the device; 0 where it is never asked. */
size_t crl_attention_cudnn_bytes(const crl_attention_shape *shape, bool backward);
/* *out is NULL where cuDNN cannot be used: no library, sizes or a device that it does not take.
 * DEVICE, NOMEM. Blocking: plans are compiled. */
CRL_NODISCARD crl_status crl_attention_cudnn_create(crl_attention_cudnn **out,
                                                    const crl_attention_shape *shape,
                                                    crl_stream *stream);
void crl_attention_cudnn_destroy(crl_attention_cudnn *attention);
/* As crl_attention_ops; `stream` is the one that it was created for. Async. DEVICE. */
CRL_NODISCARD crl_status crl_attention_cudnn_forward(const crl_attention_cudnn *attention,
                                                     crl_stream *stream, const void *qkv, void *y,
                                                     float *lse, void *scratch);
CRL_NODISCARD crl_status crl_attention_cudnn_backward(const crl_attention_cudnn *attention,
                                                      crl_stream *stream, const void *qkv,
                                                      const void *y, const float *lse,
                                                      const void *dy, void *dqkv, void *scratch);

/* "cuDNN" or "own": who computes an operation of CUDA's tables. */
const char *crl_attention_cuda_path(const crl_attention *attention);

#ifdef __cplusplus
}
#endif
