/* SPDX-License-Identifier: Apache-2.0 */
/*
 * All operations of one device, one small table per operation. Layers call through it and so know no
 * device. Rules for every operation and every device:
 *  - async on `stream` (NULL on the CPU: done on return);
 *  - no allocation and no primitive creation outside `create`;
 *  - the result does not depend on the number of threads: work is split into fixed blocks, and
 *    sums are combined in a fixed order;
 *  - `accumulate` false: the output is written, never read; true: the result is added to it;
 *  - outputs never overlap inputs unless the operation says they may.
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

#ifdef __cplusplus
extern "C" {
#endif

typedef struct crl_kernels {
    const char *name; /* of the device */
    const crl_matmul_ops *matmul;
    const crl_eltwise_ops *eltwise;
    const crl_layernorm_ops *layernorm;
    const crl_attention_ops *attention;
    const crl_embedding_ops *embedding;
    const crl_cross_entropy_ops *cross_entropy;
    const crl_optimizer_ops *optimizer;
    const crl_reduce_ops *reduce;
} crl_kernels;

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
