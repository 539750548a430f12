/* SPDX-License-Identifier: Apache-2.0 */
/* Element-wise operations over n elements. Inputs and output may be the same array. The arithmetic
 * is f32; each result is rounded once to the table's type, an accumulated one after the addition.
 */
#pragma once

#include "engine/base/rng.h"
#include "engine/device/device.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef enum crl_activation {
    CRL_ACTIVATION_RELU = 0,
    CRL_ACTIVATION_GELU_ERF,  /* x/2 (1 + erf(x/sqrt 2)) */
    CRL_ACTIVATION_GELU_TANH, /* x/2 (1 + tanh(sqrt(2/pi)(x + 0.044715 x^3))) */
    CRL_ACTIVATION_COUNT
} crl_activation;

typedef struct crl_eltwise_ops {
    crl_status (*activation)(crl_stream *stream, crl_activation kind, const void *x, void *y,
                             int64_t n);
    /* dx (+)= dy · f'(x) */
    crl_status (*activation_backward)(crl_stream *stream, crl_activation kind, const void *x,
                                      const void *dy, void *dx, int64_t n, bool accumulate);
    /* y = a + b */
    crl_status (*add)(crl_stream *stream, const void *a, const void *b, void *y, int64_t n);
    /* y (+)= x */
    crl_status (*copy)(crl_stream *stream, const void *x, void *y, int64_t n, bool accumulate);
    /* y (+)= keep(i) ? x / (1-p) : 0, keep(i) = crl_rng_uniform(rng of its sample, i) >= p with i
     * the element's index inside its sample; x is (samples, n_per_sample) and sample s of the call
     * uses rng->sample + s. Forward and backward are the same call. p = 0 copies. */
    crl_status (*dropout)(crl_stream *stream, const crl_rng *rng, double p, const void *x, void *y,
                          int64_t samples, int64_t n_per_sample, bool accumulate);
    /* y (N,C) = silu(x[:, :C]) · x[:, C:], silu(u) = u / (1 + e^-u); x is (N,2C), no overlap. */
    crl_status (*swiglu)(crl_stream *stream, const void *x, void *y, int64_t n, int64_t c);
    /* dx (N,2C) (+)= */
    crl_status (*swiglu_backward)(crl_stream *stream, const void *x, const void *dy, void *dx,
                                  int64_t n, int64_t c, bool accumulate);
    /* y (+)= x between f32 and the table's type, no overlap. In the f32 table: copies. */
    crl_status (*narrow)(crl_stream *stream, const float *x, void *y, int64_t n, bool accumulate);
    crl_status (*widen)(crl_stream *stream, const void *x, float *y, int64_t n, bool accumulate);
} crl_eltwise_ops;

#ifdef __cplusplus
}
#endif
