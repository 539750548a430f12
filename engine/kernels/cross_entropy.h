/* SPDX-License-Identifier: Apache-2.0 */
/* Losses. Sums, never means: the one division by the global weight is the optimizer's. */
#pragma once

#include "engine/device/device.h"

#ifdef __cplusplus
extern "C" {
#endif

/* What a loss adds up over the rows (or elements) of one micro-batch. */
typedef struct crl_loss {
    double sum;     /* of weight · loss */
    double weight;  /* of the rows that count; the divisor of the mean */
    double correct; /* rows whose largest logit is the target (0 for mse) */
    double rows;    /* rows that count; the divisor of the accuracy */
} crl_loss;

typedef struct crl_cross_entropy_config {
    int64_t rows, classes;     /* N, V */
    int32_t ignore_index;      /* a row with this target does not count */
    const float *label_weight; /* (V) weight of a row by its target, device memory; NULL: 1 */
} crl_cross_entropy_config;

typedef struct crl_cross_entropy_ops {
    /* Softmax cross-entropy of the first `valid_rows` rows; the others do not count. `lse` (N) is
     * written, *loss is added to. INVALID when a counted target is not in 0..V-1: at once on the
     * CPU, by whoever waits for the stream next on others. */
    crl_status (*forward)(crl_stream *stream, const crl_cross_entropy_config *config,
                          const void *logits,             /* (N,V) */
                          const int32_t *targets,         /* (N) */
                          const float *row_weight,        /* (N) or NULL: 1 */
                          int64_t valid_rows, float *lse, /* (N) */
                          crl_loss *loss);                /* device memory */
    /* dlogits (+)= scale · weight · (softmax - onehot); zero in rows that do not count. dlogits may
     * be logits when not accumulating. `scale`: of the loss, a power of two. */
    crl_status (*backward)(crl_stream *stream, const crl_cross_entropy_config *config,
                           const void *logits, const int32_t *targets, const float *row_weight,
                           int64_t valid_rows, const float *lse, float scale, void *dlogits,
                           bool accumulate);
    /* Sum of (x - target)^2 over n elements, added to *loss; weight n. Fixed blocks, in double. */
    crl_status (*mse_forward)(crl_stream *stream, const void *x, const float *target, int64_t n,
                              crl_loss *loss);
    /* dx (+)= scale · 2 (x - target) for the first `valid`, 0 for the rest up to n */
    crl_status (*mse_backward)(crl_stream *stream, const void *x, const float *target,
                               int64_t valid, int64_t n, float scale, void *dx, bool accumulate);
} crl_cross_entropy_ops;

#ifdef __cplusplus
}
#endif
