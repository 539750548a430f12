/* SPDX-License-Identifier: Apache-2.0 */
/* Token embedding plus an optional learned position embedding. */
#pragma once

#include "engine/device/device.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct crl_embedding_ops {
    /* y[b,t] = token[tokens[b,t]] + position[t]. INVALID when a token is not in 0..V-1: at once on
     * the CPU; on others its row is NaN and whoever waits for the stream next is told. */
    crl_status (*forward)(crl_stream *stream, const int32_t *tokens, /* (B,T) */
                          const void *token,                         /* (V,C) */
                          const void *position,                      /* (>=T,C) or NULL */
                          void *y,                                   /* (B,T,C) */
                          int64_t b, int64_t t, int64_t v, int64_t c);
    /* dtoken (+)=, rows added in the order of (b,t); accumulate false zeroes all V rows first.
     * dposition (+)= over its `positions` rows. Either may be NULL. */
    crl_status (*backward)(crl_stream *stream, const int32_t *tokens, /* (B,T) */
                           const void *dy,                            /* (B,T,C) */
                           float *dtoken,                             /* (V,C) or NULL */
                           float *dposition,                          /* (positions,C) or NULL */
                           int64_t b, int64_t t, int64_t v, int64_t c, int64_t positions,
                           bool accumulate);
} crl_embedding_ops;

#ifdef __cplusplus
}
#endif
