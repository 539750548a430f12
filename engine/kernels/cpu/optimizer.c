/* SPDX-License-Identifier: Apache-2.0 */
/* AdamW [loshchilov19] and SGD, one pass over memory. Refuses nothing: the settings were checked
 * when they were read. Constants are made in double, the elements are updated in float. */
#include "engine/kernels/cpu/cpu_internal.h"
#include "engine/kernels/cpu/map_internal.h"

#include <math.h>

typedef struct adamw_constants {
    float scale, beta1, one_minus_beta1, beta2, one_minus_beta2;
    float keep;      /* 1 - learning rate · decay */
    float step_size; /* learning rate / (1 - beta1^step) */
    float root;      /* 1 / sqrt(1 - beta2^step) */
    float epsilon;
} adamw_constants;

CRL_VECTORISED static void adamw_tile(const void *context, float *const *x, int64_t n) {
    const adamw_constants c = *(const adamw_constants *)context;
    float *w = x[0], *m = x[1], *v = x[2];
    const float *dw = x[3];
#pragma omp simd
    for (int64_t i = 0; i < n; i++) {
        const float g = dw[i] * c.scale;
        const float m1 = c.beta1 * m[i] + c.one_minus_beta1 * g;
        const float v1 = c.beta2 * v[i] + c.one_minus_beta2 * (g * g);
        m[i] = m1;
        v[i] = v1;
        const float divisor = __builtin_sqrtf(v1) * c.root + c.epsilon;
        w[i] = w[i] * c.keep - c.step_size * (m1 / divisor);
    }
}

static crl_status adamw(crl_dtype type, const crl_adamw_config *config, float *const state[3],
                        const float *dw, void *copy, int64_t n) {
    const double step = (double)config->step;
    const adamw_constants constants = {
        .scale = (float)config->gradient_scale,
        .beta1 = (float)config->beta1,
        .one_minus_beta1 = (float)(1.0 - config->beta1),
        .beta2 = (float)config->beta2,
        .one_minus_beta2 = (float)(1.0 - config->beta2),
        .keep = (float)(1.0 - config->learning_rate * config->weight_decay),
        .step_size = (float)(config->learning_rate / (1.0 - pow(config->beta1, step))),
        .root = (float)(1.0 / sqrt(1.0 - pow(config->beta2, step))),
        .epsilon = (float)config->epsilon,
    };
    crl_map_run(&(crl_map){.tile = adamw_tile,
                           .context = &constants,
                           .arrays = 4,
                           .outputs = 3,
                           .reads = true,
                           .x = {state[0], state[1], state[2], dw},
                           .copy = copy,
                           .copy_type = type},
                n);
    return CRL_STATUS_OK;
}

typedef struct sgd_constants {
    float scale, rate, decay, momentum, one_minus_dampening;
    float look_ahead; /* of the buffer in the update: the momentum with nesterov, else 1 */
    float direct;     /* of the gradient in the update: 1 with nesterov, else 0 */
} sgd_constants;

CRL_VECTORISED static void sgd_tile(const void *context, float *const *x, int64_t n) {
    const sgd_constants c = *(const sgd_constants *)context;
    float *w = x[0];
    const float *dw = x[1];
#pragma omp simd
    for (int64_t i = 0; i < n; i++)
        w[i] -= c.rate * (dw[i] * c.scale + c.decay * w[i]);
}

CRL_VECTORISED static void sgd_momentum_tile(const void *context, float *const *x, int64_t n) {
    const sgd_constants c = *(const sgd_constants *)context;
    float *w = x[0], *momentum = x[1];
    const float *dw = x[2];
#pragma omp simd
    for (int64_t i = 0; i < n; i++) {
        const float g = dw[i] * c.scale + c.decay * w[i];
        const float b = c.momentum * momentum[i] + c.one_minus_dampening * g;
        momentum[i] = b;
        w[i] -= c.rate * (c.direct * g + c.look_ahead * b);
    }
}

static crl_status sgd(crl_dtype type, const crl_sgd_config *config, float *w, const float *dw,
                      float *momentum, void *copy, int64_t n) {
    const bool first = config->step <= 1;
    const sgd_constants constants = {
        .scale = (float)config->gradient_scale,
        .rate = (float)config->learning_rate,
        .decay = (float)config->weight_decay,
        .momentum = first ? 0 : (float)config->momentum,
        .one_minus_dampening = first ? 1 : (float)(1.0 - config->dampening),
        .look_ahead = config->nesterov ? (float)config->momentum : 1,
        .direct = config->nesterov ? 1 : 0,
    };
    const bool remembers = momentum != NULL;
    const crl_map map = {.tile = remembers ? sgd_momentum_tile : sgd_tile,
                         .context = &constants,
                         .arrays = remembers ? 3 : 2,
                         .outputs = remembers ? 2 : 1,
                         .reads = true,
                         .x = {w, remembers ? momentum : dw, remembers ? dw : NULL},
                         .copy = copy,
                         .copy_type = type};
    crl_map_run(&map, n);
    return CRL_STATUS_OK;
}

/* The entries of one table (see CRL_TABLES). */
#define ENTRIES(suffix, TYPE)                                                                      \
    static crl_status adamw_##suffix(crl_stream *stream, const crl_adamw_config *config, float *w, \
                                     const float *dw, float *m, float *v, void *copy, int64_t n) { \
        (void)stream;                                                                              \
        return adamw(TYPE, config, (float *const[3]){w, m, v}, dw, copy, n);                       \
    }                                                                                              \
    static crl_status sgd_##suffix(crl_stream *stream, const crl_sgd_config *config, float *w,     \
                                   const float *dw, float *momentum, void *copy, int64_t n) {      \
        (void)stream;                                                                              \
        return sgd(TYPE, config, w, dw, momentum, copy, n);                                        \
    }                                                                                              \
    const crl_optimizer_ops crl_optimizer_cpu_##suffix = {.adamw = adamw_##suffix,                 \
                                                          .sgd = sgd_##suffix};
CRL_TABLES(ENTRIES)
