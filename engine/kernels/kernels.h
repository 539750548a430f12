/* SPDX-License-Identifier: Apache-2.0 */
/*
 * All operations of one device, one small table per operation. Layers call through it and so know
 * no device. Rules for every operation and every device:
 *  - async on `stream` (NULL on the CPU: done on return);
 *  - no allocation and no primitive creation outside `create`;
 *  - the result does not depend on the number of threads: work is split into fixed blocks, and
 *    sums are combined in a fixed order;
 *  - `accumulate` false: the output is written, never read; true: the result is added to it;
 *  - outputs never overlap inputs unless the operation says they may.
 *
 * A device has one table per type that activations may have. `void *` arrays are of the table's
 * type, all others are of the type they say; arithmetic is f32 or better in all tables.
 */
#pragma once

#include "engine/kernels/attention.h"
#include "engine/kernels/cross_entropy.h"
#include "engine/kernels/eltwise.h"
#include "engine/kernels/embedding.h"
#include "engine/kernels/layernorm.h"
#include "engine/kernels/matmul.h"
#include "engine/kernels/optimizer.h"
#include "engine/kernels/reduce.h"
#include "engine/tensor/tensor.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct crl_kernels {
    const char *name; /* of the device */
    crl_dtype dtype;  /* F32, BF16 or F16 */
    const crl_matmul_ops *matmul;
    const crl_eltwise_ops *eltwise;
    const crl_layernorm_ops *layernorm;
    const crl_attention_ops *attention;
    const crl_embedding_ops *embedding;
    const crl_cross_entropy_ops *cross_entropy;
    const crl_optimizer_ops *optimizer;
    const crl_reduce_ops *reduce;
} crl_kernels;

/* A device with its tables: what a run chooses by name. */
typedef struct crl_backend {
    const char *name; /* "cpu", "cuda" */
    const char *help;
    const crl_device *device;
    const crl_kernels *f32, *bf16, *f16;
} crl_backend;

extern const crl_backend crl_backend_cpu;
extern const crl_backend crl_backend_cuda; /* only when built with CUDA */

/* The table for a type; NULL: the backend has none. */
const crl_kernels *crl_backend_kernels(const crl_backend *backend, crl_dtype dtype);

/* crl_backend_cpu.f32, for those that need no other. */
extern const crl_kernels crl_kernels_cpu;

/* Threads the calling thread's kernels use from now on. */
void crl_kernels_set_threads(int threads);
/* Primitives created so far by this thread (oneDNN); for the "none after step 1" test. */
int64_t crl_kernels_primitives_created(void);
/* "oneDNN 2.6.3 (OpenMP)" */
void crl_kernels_describe(char *text, size_t text_bytes);

#ifdef __cplusplus
}
#endif
