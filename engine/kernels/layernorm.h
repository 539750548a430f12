/* SPDX-License-Identifier: Apache-2.0 */
/* Normalisation over the last dimension, N rows of C channels: by mean and deviation [ba16], or by
 * the root of the mean square [zhang19]. Statistics, weights and their gradients are f32. */
#pragma once

#include "engine/device/device.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct crl_layernorm_ops {
    /* y = (x - mean) · rstd · w + b */
    crl_status (*forward)(crl_stream *stream, const void *x, /* (N,C) */
                          const float *w, const float *b,    /* (C) */
                          double epsilon, void *y,           /* (N,C) */
                          float *mean, float *rstd,          /* (N) */
                          int64_t n, int64_t c);
    /* dx (+)= */
    crl_status (*backward_input)(crl_stream *stream, const void *x, const void *dy, /* (N,C) */
                                 const float *w,                                    /* (C) */
                                 const float *mean, const float *rstd,              /* (N) */
                                 void *dx,                                          /* (N,C) */
                                 int64_t n, int64_t c, bool accumulate);
    /* dw (+)= sum_n dy·xhat, db (+)= sum_n dy */
    crl_status (*backward_weight)(crl_stream *stream, const void *x, const void *dy, /* (N,C) */
                                  const float *mean, const float *rstd,              /* (N) */
                                  float *dw, float *db,                              /* (C) */
                                  int64_t n, int64_t c, bool accumulate, void *scratch);
    /* sum = a + b, rounded to the table's type, then forward of that in the same pass. */
    crl_status (*add_forward)(crl_stream *stream, const void *a, const void *b, /* (N,C) */
                              void *sum,                                        /* (N,C) */
                              const float *w, const float *bias,                /* (C) */
                              double epsilon, void *y,                          /* (N,C) */
                              float *mean, float *rstd,                         /* (N) */
                              int64_t n, int64_t c);
    /* y = x · rstd · w, rstd = 1 / sqrt(mean of x^2 + epsilon) */
    crl_status (*rms_forward)(crl_stream *stream, const void *x, const float *w, double epsilon,
                              void *y, float *rstd, int64_t n, int64_t c);
    /* dx (+)= */
    crl_status (*rms_backward_input)(crl_stream *stream, const void *x, const void *dy,
                                     const float *w, const float *rstd, void *dx, int64_t n,
                                     int64_t c, bool accumulate);
    /* dw (+)= sum_n dy·x·rstd */
    crl_status (*rms_backward_weight)(crl_stream *stream, const void *x, const void *dy,
                                      const float *rstd, float *dw, int64_t n, int64_t c,
                                      bool accumulate, void *scratch);
    size_t (*scratch_bytes)(int64_t n, int64_t c); /* of either backward_weight */
} crl_layernorm_ops;

#ifdef __cplusplus
}
#endif
