/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A CUDA stream's insides, for what is queued on it: kernels, products, messages. It owns the small
 * scratch of reductions (its work is done in order, so no two operations use it at once), the
 * refusals that kernels note, and the handles that libraries want one of per rank. Only files of
 * CUDA include this.
 */
#pragma once

#ifdef __cplusplus
#include <cuda_runtime.h>
#else
#include <cuda_runtime_api.h>
#endif

#include "engine/device/device.h"

#ifdef __cplusplus
extern "C" {
#endif

/* The first index that an operation met and could not use. */
typedef struct crl_cuda_refusal {
    unsigned long long first; /* place << 32 | the index met there; CRL_CUDA_NONE */
    long long limit, width;   /* expected 0..limit-1; places in a row of the index array */
} crl_cuda_refusal;

#define CRL_CUDA_NONE (~0ull)

/* What the host learns when it waits. */
typedef struct crl_cuda_refusals {
    crl_cuda_refusal token, target;
} crl_cuda_refusals;

/* Something that lives as long as the stream: a library's handle. */
typedef struct crl_cuda_context {
    const void *key;
    void *pointer;
    void (*destroy)(void *pointer);
} crl_cuda_context;

enum { CRL_CUDA_PARTIALS = 1 << 16, CRL_CUDA_CONTEXTS = 8 };

struct crl_stream {
    cudaStream_t handle;
    int device;                   /* CUDA's number of it in this process */
    bool tf32;                    /* what allow_tf32 said last */
    crl_cuda_refusals *refusals;  /* on the device */
    crl_cuda_refusals *collected; /* in pinned memory: as of the last wait */
    double *partials;             /* CRL_CUDA_PARTIALS, on the device */
    crl_cuda_context contexts[CRL_CUDA_CONTEXTS];
};

/* What hangs on the stream under `key`, the address of any constant; NULL: nothing yet. Lends. */
void *crl_cuda_context_get(const crl_stream *stream, const void *key);
/* Hangs `pointer` there; the stream calls `destroy` before its own end, the last hung first. */
void crl_cuda_context_set(crl_stream *stream, const void *key, void *pointer,
                          void (*destroy)(void *pointer));

/* Records "cuda: <what>: <the runtime's words>" as DEVICE, or NOMEM when memory is exhausted, and
 * forgets the runtime's own note of it. Returns the code. */
crl_status crl_cuda_failed(const char *what, cudaError_t error, const char *file, int line);

/* Passes a CUDA error on. */
#define CRL_CUDA_TRY(what, call)                                                                   \
    do {                                                                                           \
        const cudaError_t crl_cuda_error_ = (call);                                                \
        if (crl_cuda_error_ != cudaSuccess)                                                        \
            return crl_cuda_failed((what), crl_cuda_error_, __FILE__, __LINE__);                   \
    } while (0)

#ifdef __cplusplus
}
#endif
