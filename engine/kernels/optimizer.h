/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Optimizer updates, one fused pass over a flat range. `gradient_scale` turns the summed gradient
 * into the one used: clip / global weight. Elements do not depend on each other, so any split of a
 * range gives the same bits. `copy`: the new weights once more, rounded to the table's type, for
 * the layers that compute in it; NULL: not wanted (always so in the f32 table).
 */
#pragma once

#include "engine/device/device.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct crl_adamw_config {
    double learning_rate, beta1, beta2, epsilon, weight_decay; /* decoupled [loshchilov19] */
    int64_t step;                                              /* from 1: bias correction */
    double gradient_scale;
} crl_adamw_config;

typedef struct crl_sgd_config {
    double learning_rate, momentum, dampening, weight_decay; /* decay added to the gradient */
    bool nesterov;
    int64_t step; /* from 1; the first step sets the momentum buffer to the gradient */
    double gradient_scale;
} crl_sgd_config;

typedef struct crl_optimizer_ops {
    crl_status (*adamw)(crl_stream *stream, const crl_adamw_config *config, float *w,
                        const float *dw, float *m, float *v, void *copy, int64_t n);
    /* `momentum` NULL when config->momentum is 0 */
    crl_status (*sgd)(crl_stream *stream, const crl_sgd_config *config, float *w, const float *dw,
                      float *momentum, void *copy, int64_t n);
} crl_optimizer_ops;

#ifdef __cplusplus
}
#endif
