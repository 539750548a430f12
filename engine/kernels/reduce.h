/* SPDX-License-Identifier: Apache-2.0 */
/* Reductions with a fixed order. Gradients are f32 whatever the table's type. */
#pragma once

#include "engine/device/device.h"

#ifdef __cplusplus
extern "C" {
#endif

enum { CRL_REDUCE_BLOCK = 4096 }; /* elements summed before blocks are combined */

typedef struct crl_reduce_ops {
    /* y += x: the step of every gradient reduction. */
    crl_status (*add)(crl_stream *stream, float *y, const float *x, int64_t n);
    /* *out (device memory) = sum of squares in double: blocks of CRL_REDUCE_BLOCK from the start of
     * the range, block sums added in order. */
    crl_status (*sum_squares)(crl_stream *stream, const float *x, int64_t n, double *out);
    /* y(C) (+)= sum over N of x(N,C), in an order fixed by N and C alone. */
    crl_status (*column_sum)(crl_stream *stream, const void *x, float *y, int64_t n, int64_t c,
                             bool accumulate, void *scratch);
    size_t (*column_sum_scratch_bytes)(int64_t n, int64_t c);
} crl_reduce_ops;

#ifdef __cplusplus
}
#endif
