/* SPDX-License-Identifier: Apache-2.0 */
/* Element-wise operations. Refuses nothing: sizes are the caller's. Inputs may be the output, which
 * is why the tiles say `omp simd` (no element depends on another) instead of `restrict`. */
#include "engine/kernels/cpu/cpu_internal.h"
#include "engine/kernels/cpu/map_internal.h"
#include "engine/kernels/cpu/math_internal.h"

typedef struct tile_options {
    bool accumulate;
} tile_options;

static bool adds(const void *context) {
    return ((const tile_options *)context)->accumulate;
}

CRL_INLINE float gelu_erf(float x) {
    const float tail = crl_normal_tail(__builtin_fabsf(x) * 0.707106781f, crl_exp(-0.5f * x * x));
    return x * crl_by_sign(x, tail, 1.0f - tail);
}

CRL_INLINE float gelu_erf_slope(float x) {
    const float e = crl_exp(-0.5f * x * x);
    const float tail = crl_normal_tail(__builtin_fabsf(x) * 0.707106781f, e);
    return crl_by_sign(x, tail, 1.0f - tail) + x * 0.398942280f * e;
}

/* (1 + tanh u)/2 is the logistic function of 2u. */
enum { GELU_TANH_TERMS = 2 };
static const float gelu_tanh_term[GELU_TANH_TERMS] = {1.59576912f, 0.0713548163f};

/* e^(-2u) */
CRL_INLINE float gelu_tanh_exp(float x) {
    return crl_exp(-x * (gelu_tanh_term[0] + gelu_tanh_term[1] * x * x));
}

CRL_INLINE float gelu_tanh(float x) {
    return x / (1.0f + gelu_tanh_exp(x));
}

/* Beyond 10 the slope is 0 or 1 to the last place, but its factors would overflow; gate · gate · e
 * is gate (1 - gate) without the cancellation. */
CRL_INLINE float gelu_tanh_slope(float x) {
    const float held = crl_hold(x, 10);
    const float e = gelu_tanh_exp(held);
    const float gate = 1.0f / (1.0f + e);
    const float du2 = gelu_tanh_term[0] + 3.0f * gelu_tanh_term[1] * held * held;
    return gate + x * (du2 * (gate * gate * e));
}

CRL_VECTORISED static void relu_tile(const void *context, float *const *x, int64_t n) {
    (void)context;
    float *y = x[0];
    const float *a = x[1];
#pragma omp simd
    for (int64_t i = 0; i < n; i++)
        y[i] = a[i] < 0 ? 0 : a[i];
}

CRL_VECTORISED static void gelu_erf_tile(const void *context, float *const *x, int64_t n) {
    (void)context;
    float *y = x[0];
    const float *a = x[1];
#pragma omp simd
    for (int64_t i = 0; i < n; i++)
        y[i] = gelu_erf(a[i]);
}

CRL_VECTORISED static void gelu_tanh_tile(const void *context, float *const *x, int64_t n) {
    (void)context;
    float *y = x[0];
    const float *a = x[1];
#pragma omp simd
    for (int64_t i = 0; i < n; i++)
        y[i] = gelu_tanh(a[i]);
}

CRL_VECTORISED static void relu_slope_tile(const void *context, float *const *x, int64_t n) {
    const bool accumulate = adds(context);
    float *dx = x[0];
    const float *a = x[1], *dy = x[2];
#pragma omp simd
    for (int64_t i = 0; i < n; i++) {
        const float g = a[i] > 0 ? dy[i] : 0;
        dx[i] = accumulate ? dx[i] + g : g;
    }
}

CRL_VECTORISED static void gelu_erf_slope_tile(const void *context, float *const *x, int64_t n) {
    const bool accumulate = adds(context);
    float *dx = x[0];
    const float *a = x[1], *dy = x[2];
#pragma omp simd
    for (int64_t i = 0; i < n; i++) {
        const float g = dy[i] * gelu_erf_slope(a[i]);
        dx[i] = accumulate ? dx[i] + g : g;
    }
}

CRL_VECTORISED static void gelu_tanh_slope_tile(const void *context, float *const *x, int64_t n) {
    const bool accumulate = adds(context);
    float *dx = x[0];
    const float *a = x[1], *dy = x[2];
#pragma omp simd
    for (int64_t i = 0; i < n; i++) {
        const float g = dy[i] * gelu_tanh_slope(a[i]);
        dx[i] = accumulate ? dx[i] + g : g;
    }
}

static const struct {
    crl_map_fn forward, backward;
} activations[CRL_ACTIVATION_COUNT] = {
    [CRL_ACTIVATION_RELU] = {relu_tile, relu_slope_tile},
    [CRL_ACTIVATION_GELU_ERF] = {gelu_erf_tile, gelu_erf_slope_tile},
    [CRL_ACTIVATION_GELU_TANH] = {gelu_tanh_tile, gelu_tanh_slope_tile},
};

static crl_status eltwise_activation(crl_stream *stream, crl_activation kind, const void *x_,
                                     void *y_, int64_t n) {
    const float *x = x_;
    float *y = y_;
    (void)stream;
    CRL_ASSERT((int)kind >= 0 && (int)kind < CRL_ACTIVATION_COUNT);
    crl_map_run(
        &(crl_map){.tile = activations[kind].forward, .arrays = 2, .outputs = 1, .x = {y, x}}, n);
    return CRL_STATUS_OK;
}

static crl_status eltwise_activation_backward(crl_stream *stream, crl_activation kind,
                                              const void *x_, const void *dy_, void *dx_, int64_t n,
                                              bool accumulate) {
    const float *x = x_;
    const float *dy = dy_;
    float *dx = dx_;
    (void)stream;
    CRL_ASSERT((int)kind >= 0 && (int)kind < CRL_ACTIVATION_COUNT);
    const tile_options options = {.accumulate = accumulate};
    crl_map_run(&(crl_map){.tile = activations[kind].backward,
                           .context = &options,
                           .arrays = 3,
                           .outputs = 1,
                           .x = {dx, x, dy}},
                n);
    return CRL_STATUS_OK;
}

CRL_VECTORISED static void add_tile(const void *context, float *const *x, int64_t n) {
    (void)context;
    float *y = x[0];
    const float *a = x[1], *b = x[2];
#pragma omp simd
    for (int64_t i = 0; i < n; i++)
        y[i] = a[i] + b[i];
}

static crl_status eltwise_add(crl_stream *stream, const void *a_, const void *b_, void *y_,
                              int64_t n) {
    const float *a = a_;
    const float *b = b_;
    float *y = y_;
    (void)stream;
    crl_map_run(&(crl_map){.tile = add_tile, .arrays = 3, .outputs = 1, .x = {y, a, b}}, n);
    return CRL_STATUS_OK;
}

CRL_VECTORISED static void copy_tile(const void *context, float *const *x, int64_t n) {
    (void)context;
    float *y = x[0];
    const float *a = x[1];
#pragma omp simd
    for (int64_t i = 0; i < n; i++)
        y[i] = a[i];
}

static crl_status eltwise_copy(crl_stream *stream, const void *x_, void *y_, int64_t n,
                               bool accumulate) {
    const float *x = x_;
    float *y = y_;
    if (accumulate)
        return eltwise_add(stream, y, x, y, n);
    if (x != y)
        crl_map_run(&(crl_map){.tile = copy_tile, .arrays = 2, .outputs = 1, .x = {y, x}}, n);
    return CRL_STATUS_OK;
}

const crl_eltwise_ops crl_eltwise_cpu = {
    .activation = eltwise_activation,
    .activation_backward = eltwise_activation_backward,
    .add = eltwise_add,
    .copy = eltwise_copy,
    .dropout = crl_dropout_run,
};
