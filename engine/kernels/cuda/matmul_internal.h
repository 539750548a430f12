/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The parts that a product on CUDA is put together from (matmul.c): one call of cuBLASLt, and own
 * kernels for what the library refuses. All async on stream.
 */
#pragma once

#include "engine/device/cuda_stream.h"
#include "engine/kernels/matmul.h"
#include "engine/tensor/tensor.h"

#ifdef __cplusplus
extern "C" {
#endif

/* What one call of the library is to do of a product. */
typedef struct crl_cuda_lt_config {
    const crl_matmul_config *matmul;
    crl_dtype dtype;
    bool tf32;
    bool epilogue; /* the epilogue too: GELU in its tanh form only */
    bool sums;     /* the row sums too, written in f32; there is no bias and no epilogue then */
} crl_cuda_lt_config;

typedef struct crl_cuda_lt crl_cuda_lt;

enum { CRL_CUDA_LT_ALIGN_BYTES = 16, CRL_CUDA_LT_WORKSPACE_BYTES = 32 << 20 };

/* Prepares the call. *out is NULL when the library has no algorithm for it. Opens the library at
 * the stream's first product: UNSUPPORTED without it. DEVICE, NOMEM. */
CRL_NODISCARD crl_status crl_cuda_lt_create(crl_cuda_lt **out, const crl_cuda_lt_config *config,
                                            crl_stream *stream);
void crl_cuda_lt_destroy(crl_cuda_lt *lt);
/* `call` with the product's result in y; arrays aligned to CRL_CUDA_LT_ALIGN_BYTES; `sums` NULL
 * unless configured; `workspace` of CRL_CUDA_LT_WORKSPACE_BYTES, aligned to 256. By one thread at
 * a time. */
CRL_NODISCARD crl_status crl_cuda_lt_run(const crl_cuda_lt *lt, crl_stream *stream,
                                         const crl_matmul_call *call, float *sums, void *workspace);

/* The product with bias, for any size: y (+)= p. Ignores epilogue and row sums. */
CRL_NODISCARD crl_status crl_cuda_own_product(crl_stream *stream, const crl_matmul_config *config,
                                              crl_dtype dtype, const crl_matmul_call *call);
/* sums (M) (+)= sum over K of A(M,K), stored (M,K). */
CRL_NODISCARD crl_status crl_cuda_own_row_sums(crl_stream *stream, crl_dtype dtype, const void *a,
                                               int64_t m, int64_t k, float *sums, bool accumulate);

#ifdef __cplusplus
}
#endif
