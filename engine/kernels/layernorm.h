/* SPDX-License-Identifier: Apache-2.0 */
/* Layer normalisation over the last dimension [ba16]. N rows of C channels. */
#pragma once

#include "engine/device/device.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct crl_layernorm_ops {
    /* y = (x - mean) · rstd · w + b */
    crl_status (*forward)(crl_stream *stream, const float *x, /* (N,C) */
                          const float *w, const float *b,     /* (C) */
                          double epsilon, float *y,           /* (N,C) */
                          float *mean, float *rstd,           /* (N) */
                          int64_t n, int64_t c);
    /* dx (+)= */
    crl_status (*backward_input)(crl_stream *stream, const float *x, const float *dy, /* (N,C) */
                                 const float *w,                                      /* (C) */
                                 const float *mean, const float *rstd,                /* (N) */
                                 float *dx,                                           /* (N,C) */
                                 int64_t n, int64_t c, bool accumulate);
    /* dw (+)= sum_n dy·xhat, db (+)= sum_n dy */
    crl_status (*backward_weight)(crl_stream *stream, const float *x, const float *dy, /* (N,C) */
                                  const float *mean, const float *rstd,                /* (N) */
                                  float *dw, float *db,                                /* (C) */
                                  int64_t n, int64_t c, bool accumulate, void *scratch);
    size_t (*scratch_bytes)(int64_t n, int64_t c); /* of backward_weight */
} crl_layernorm_ops;

#ifdef __cplusplus
}
#endif
