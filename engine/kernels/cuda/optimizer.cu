/* SPDX-License-Identifier: Apache-2.0 */
/*
 * AdamW [loshchilov19] and SGD, one pass over memory through map_internal.h. Constants are made in
 * double, the elements are updated in float, in the operations written here and no fused ones (the
 * folder is compiled with -fmad=false): any split of a range gives the same bits.
 *
 *     adamw         16 + 12 bytes per element · 16 flops (a root and two divisions among them)
 *     sgd            8 +  4                   · 5
 *     sgd, momentum 12 +  8                   · 11
 *     copy           0 +  2                   · 0
 */
#include "engine/kernels/cuda/map_internal.h"

#include <math.h>

namespace {

struct AdamW { /* -> w, m, v, copy */
    using In = crl_cuda_arrays<const float, const float, const float, const float>; /* w m v dw */
    enum { kWidth = 4 };
    float scale, beta1, one_minus_beta1, beta2, one_minus_beta2;
    float keep;      /* 1 - learning rate · decay */
    float step_size; /* learning rate / (1 - beta1^step) */
    float root;      /* 1 / sqrt(1 - beta2^step) */
    float epsilon;
    __device__ void operator()(const float *x, float *y) const {
        const float g = x[3] * scale;
        const float m = beta1 * x[1] + one_minus_beta1 * g;
        const float v = beta2 * x[2] + one_minus_beta2 * (g * g);
        const float divisor = sqrtf(v) * root + epsilon;
        y[0] = x[0] * keep - step_size * (m / divisor);
        y[1] = m;
        y[2] = v;
        y[3] = y[0];
    }
};

template <typename T>
crl_status optimizer_adamw(crl_stream *stream, const crl_adamw_config *config, float *w,
                           const float *dw, float *m, float *v, void *copy, int64_t n) {
    const double step = (double)config->step;
    const AdamW update = {
        (float)config->gradient_scale,
        (float)config->beta1,
        (float)(1.0 - config->beta1),
        (float)config->beta2,
        (float)(1.0 - config->beta2),
        (float)(1.0 - config->learning_rate * config->weight_decay),
        (float)(config->learning_rate / (1.0 - pow(config->beta1, step))),
        (float)(1.0 / sqrt(1.0 - pow(config->beta2, step))),
        (float)config->epsilon,
    };
    return crl_cuda_map(stream, "adamw", update, n, {w, m, v, dw}, w, m, v, static_cast<T *>(copy));
}

struct Sgd {                                              /* -> w, copy */
    using In = crl_cuda_arrays<const float, const float>; /* w, dw */
    enum { kWidth = 4 };
    float scale, rate, decay;
    __device__ void operator()(const float *x, float *y) const {
        y[0] = x[0] - rate * (x[1] * scale + decay * x[0]);
        y[1] = y[0];
    }
};

struct SgdMomentum {                                                   /* -> w, momentum, copy */
    using In = crl_cuda_arrays<const float, const float, const float>; /* w, momentum, dw */
    enum { kWidth = 4 };
    float scale, rate, decay, momentum, one_minus_dampening;
    float look_ahead; /* of the buffer in the update: the momentum with nesterov, else 1 */
    float direct;     /* of the gradient in the update: 1 with nesterov, else 0 */
    __device__ void operator()(const float *x, float *y) const {
        const float g = x[2] * scale + decay * x[0];
        const float b = momentum * x[1] + one_minus_dampening * g;
        y[0] = x[0] - rate * (direct * g + look_ahead * b);
        y[1] = b;
        y[2] = y[0];
    }
};

template <typename T>
crl_status optimizer_sgd(crl_stream *stream, const crl_sgd_config *config, float *w,
                         const float *dw, float *momentum, void *copy, int64_t n) {
    const bool first = config->step <= 1;
    const float scale = (float)config->gradient_scale, rate = (float)config->learning_rate;
    const float decay = (float)config->weight_decay;
    if (momentum == nullptr)
        return crl_cuda_map(stream, "sgd", Sgd{scale, rate, decay}, n, {w, dw}, w,
                            static_cast<T *>(copy));
    const SgdMomentum update = {
        scale,
        rate,
        decay,
        first ? 0.0f : (float)config->momentum,
        first ? 1.0f : (float)(1.0 - config->dampening),
        config->nesterov ? (float)config->momentum : 1.0f,
        config->nesterov ? 1.0f : 0.0f,
    };
    return crl_cuda_map(stream, "sgd", update, n, {w, momentum, dw}, w, momentum,
                        static_cast<T *>(copy));
}

template <typename T> constexpr crl_optimizer_ops ops = {optimizer_adamw<T>, optimizer_sgd<T>};

} // namespace

extern "C" {
const crl_optimizer_ops crl_optimizer_cuda_f32 = ops<float>;
const crl_optimizer_ops crl_optimizer_cuda_bf16 = ops<__nv_bfloat16>;
const crl_optimizer_ops crl_optimizer_cuda_f16 = ops<__half>;
}
