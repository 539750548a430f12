/* SPDX-License-Identifier: Apache-2.0 */
/* A stream's insides. Scratch belongs to the stream, since its work is done in order: no two
 * operations use it at once. */
#pragma once

#include "engine/kernels/cuda/cuda.h"
#include "engine/kernels/cuda/launch_internal.h"

/* The first index that an operation met and could not use. */
typedef struct crl_cuda_refusal {
    unsigned long long first; /* place << 32 | the index met there; CRL_CUDA_NONE */
    long long limit, width;   /* expected 0..limit-1; places in a row of the index array */
} crl_cuda_refusal;

#define CRL_CUDA_NONE (~0ull)

/* What the host learns when it waits. */
typedef struct crl_cuda_result {
    crl_cuda_refusal token, target;
} crl_cuda_result;

enum { CRL_CUDA_PARTIALS = 1 << 16 }; /* doubles of scratch */

struct crl_stream {
    cudaStream_t handle;
    crl_cuda_result *device, *host; /* the latter in pinned memory */
    double *partials;               /* CRL_CUDA_PARTIALS, on the device */
};

/* Copies *stream->device to *stream->host, waits, and reports refusals. DEVICE, INVALID. */
CRL_NODISCARD crl_status crl_cuda_collect(crl_stream *stream);

/* Of x^2, or of (x - target)^2, over n elements in blocks of CRL_REDUCE_BLOCK: *sum = their sum, or
 * the loss that it is, added to *loss. One of the two is NULL. Async. */
CRL_NODISCARD crl_status crl_cuda_squares(crl_stream *stream, const float *x, const float *target,
                                          int64_t n, double *sum, crl_loss *loss);

/* Notes an index that is not in 0..limit-1; of several the first place stays. */
__device__ inline void crl_cuda_refuse(crl_cuda_refusal *refusal, int64_t place, int32_t index,
                                       int64_t limit, int64_t width) {
    const unsigned long long key = (unsigned long long)place << 32 | (uint32_t)index;
    const unsigned long long before = atomicMin(&refusal->first, key);
    if (key < before) { /* all threads of a launch write the same here */
        refusal->limit = limit;
        refusal->width = width;
    }
}

extern "C" {
/* The eltwise table's dropout, which lives in a file of its own. */
crl_status crl_cuda_dropout(crl_stream *stream, const crl_rng *rng, double p, const void *x,
                            void *y, int64_t samples, int64_t n_per_sample, bool accumulate);

extern const crl_eltwise_ops crl_eltwise_cuda;
extern const crl_layernorm_ops crl_layernorm_cuda;
extern const crl_embedding_ops crl_embedding_cuda;
extern const crl_cross_entropy_ops crl_cross_entropy_cuda;
extern const crl_optimizer_ops crl_optimizer_cuda;
extern const crl_reduce_ops crl_reduce_cuda;
}
