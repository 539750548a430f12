/* SPDX-License-Identifier: Apache-2.0 */
/* Matrix product with a fused bias. Row-major; sizes fixed at creation. */
#pragma once

#include "engine/device/device.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct crl_matmul crl_matmul;

/* y(M,N) = A(M,K) B(K,N), A stored as (M,K) or, transposed, (K,M); B as (K,N) or (N,K). */
typedef struct crl_matmul_config {
    int64_t m, n, k;
    bool a_transposed;
    bool b_transposed;
    bool bias;           /* adds bias (N) to every row */
    bool may_accumulate; /* run() may be called with accumulate = true */
} crl_matmul_config;

typedef struct crl_matmul_ops {
    /* Creates the primitives. DEVICE, NOMEM, INVALID. */
    crl_status (*create)(crl_matmul **out, const crl_matmul_config *config);
    void (*destroy)(crl_matmul *matmul);
    size_t (*scratch_bytes)(const crl_matmul *matmul);
    /* `bias` NULL unless configured; `scratch` has scratch_bytes, 64-byte aligned, and is free for
     * others when the work is done. May be run by several threads at once with own scratch. */
    crl_status (*run)(const crl_matmul *matmul, crl_stream *stream, const float *a, const float *b,
                      const float *bias, float *y, bool accumulate, void *scratch);
} crl_matmul_ops;

#ifdef __cplusplus
}
#endif
