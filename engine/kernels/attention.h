/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Multi-head self-attention, causal or not, tiled with a running softmax [dao22]: never holds a
 * (T,T) matrix. C = H · D; the packed projection holds q, k, v of all heads side by side, each
 * (H,D).
 */
#pragma once

#include "engine/device/device.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct crl_attention crl_attention;

typedef struct crl_attention_config {
    int64_t b, t, heads, head_channels;
    double scale; /* of q·k; 0: 1/sqrt(head_channels) */
    bool causal;
} crl_attention_config;

typedef struct crl_attention_ops {
    /* `stream`: the rank's, whose device the work is prepared for; NULL on the CPU, and where only
     * sizes are asked for: it cannot run then. */
    crl_status (*create)(crl_attention **out, const crl_attention_config *config,
                         crl_stream *stream);
    void (*destroy)(crl_attention *attention);
    size_t (*forward_scratch_bytes)(const crl_attention *attention);
    size_t (*backward_scratch_bytes)(const crl_attention *attention);
    crl_status (*forward)(const crl_attention *attention, crl_stream *stream,
                          const void *qkv, /* (B,T,3C) */
                          void *y,         /* (B,T,C) */
                          float *lse,      /* (B,H,T) log of the softmax's sum, for backward */
                          void *scratch);
    /* dqkv (+)= */
    crl_status (*backward)(const crl_attention *attention, crl_stream *stream,
                           const void *qkv,             /* (B,T,3C) */
                           const void *y,               /* (B,T,C) */
                           const float *lse,            /* (B,H,T) */
                           const void *dy,              /* (B,T,C) */
                           void *dqkv, bool accumulate, /* (B,T,3C) */
                           void *scratch);
} crl_attention_ops;

#ifdef __cplusplus
}
#endif
