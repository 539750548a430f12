/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Matrix product with what may be fused to it: bias, activation, the activation's gradient, the
 * bias's gradient. Row-major; sizes fixed at creation. Sums are f32 (TF32 products where the device
 * was asked for them), whatever the type of the matrices.
 */
#pragma once

#include "engine/kernels/eltwise.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct crl_matmul crl_matmul;

/* What is done to the product before it is y. */
typedef enum crl_epilogue {
    CRL_EPILOGUE_NONE = 0,
    CRL_EPILOGUE_ACTIVATION, /* aux (M,N) = p rounded to the table's type, and y = f(aux); a library
                                that does both at once may take f of p itself (cuBLASLt) */
    CRL_EPILOGUE_SLOPE       /* y = p · f'(aux) */
} crl_epilogue;

/* p(M,N) = A(M,K) B(K,N) + bias, A stored as (M,K) or, transposed, (K,M); B as (K,N) or (N,K). */
typedef struct crl_matmul_config {
    int64_t m, n, k;
    bool a_transposed;
    bool b_transposed;
    bool bias;           /* adds bias (N) to every row */
    bool may_accumulate; /* run() may be called with accumulate = true; no epilogue then */
    bool y_is_f32;       /* y is f32 whatever the table's type: gradients of weights */
    crl_epilogue epilogue;
    crl_activation activation; /* of the epilogue */
    bool row_sums;             /* also sums (M) (+)= sum over K of A(M,K): gradients of biases */
} crl_matmul_config;

/* Arrays of one product; those not configured are NULL. */
typedef struct crl_matmul_call {
    const void *a, *b; /* (M,K), (K,N) as configured */
    const void *bias;  /* (N) */
    void *y;           /* (M,N) */
    void *aux;         /* (M,N); ACTIVATION writes it, SLOPE reads it */
    float *sums;       /* (M) */
    bool accumulate;   /* y and sums are added to */
    void *scratch;     /* scratch_bytes, 64-byte aligned; free for others when the work is done */
} crl_matmul_call;

typedef struct crl_matmul_ops {
    /* Creates the primitives. `stream`: the rank's, whose device they are for; NULL on the CPU, and
     * where only sizes are asked for: it cannot run then. DEVICE, NOMEM, INVALID, UNSUPPORTED (no
     * implementation of this configuration). */
    crl_status (*create)(crl_matmul **out, const crl_matmul_config *config, crl_stream *stream);
    void (*destroy)(crl_matmul *matmul);
    size_t (*scratch_bytes)(const crl_matmul *matmul);
    /* On the CPU by several threads at once with own scratch; elsewhere by the stream's thread.
     * INVALID where the device needs arrays at multiples of 16 bytes and one is not (CUDA). */
    crl_status (*run)(const crl_matmul *matmul, crl_stream *stream, const crl_matmul_call *call);
} crl_matmul_ops;

#ifdef __cplusplus
}
#endif
