/* SPDX-License-Identifier: Apache-2.0 */
/* What the files of kernels share on the host: parts of tables that are files of their own, and
 * indices that are refused. */
#pragma once

#include "engine/kernels/cuda/launch_internal.h"
#include "engine/kernels/cuda/tables_internal.h"

/* Of x^2, or of (x - target)^2, over n elements in blocks of CRL_REDUCE_BLOCK: *sum = their sum, or
 * the loss that it is, added to *loss. One of the two is NULL. Async. */
template <typename T>
CRL_NODISCARD crl_status crl_cuda_squares(crl_stream *stream, const T *x, const float *target,
                                          int64_t n, double *sum, crl_loss *loss);

/* The eltwise table's. */
template <typename T>
CRL_NODISCARD crl_status crl_cuda_dropout(crl_stream *stream, const crl_rng *rng, double p,
                                          const void *x, void *y, int64_t samples,
                                          int64_t n_per_sample, bool accumulate);
template <typename T>
CRL_NODISCARD crl_status crl_cuda_swiglu(crl_stream *stream, const void *x, void *y, int64_t n,
                                         int64_t c);
template <typename T>
CRL_NODISCARD crl_status crl_cuda_swiglu_backward(crl_stream *stream, const void *x, const void *dy,
                                                  void *dx, int64_t n, int64_t c, bool accumulate);

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
