/* SPDX-License-Identifier: Apache-2.0 */
/* Tiles of element-wise loops: activations, their gradients, sums. Refuses nothing: sizes are the
 * caller's. Inputs may be the output, which is why the tiles say `omp simd` (no element depends on
 * another) instead of `restrict`. */
#include "engine/kernels/cpu/tiles_internal.h"

#include "engine/kernels/cpu/cpu_internal.h"
#include "engine/kernels/cpu/math_internal.h"

static bool adds(const void *context) {
    return ((const crl_tile_options *)context)->accumulate;
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

/* u / (1 + e^-u); far below zero, where e^-u would overflow, the limit of it. */
CRL_INLINE float silu(float u) {
    const float e = crl_exp(-u);
    return crl_by_sign(u, crl_hold(u, 88), u) / (1.0f + e);
}

/* s + u s (1 - s), with 1 - s without the cancellation. */
CRL_INLINE float silu_slope(float u) {
    const float e = crl_exp(-u), s = 1.0f / (1.0f + e);
    return s + crl_hold(u, 88) * s * (e * s);
}

CRL_VECTORISED void crl_swiglu_tile(const void *context, float *const *x, int64_t n) {
    (void)context;
    float *y = x[0];
    const float *gate = x[1], *up = x[2];
#pragma omp simd
    for (int64_t i = 0; i < n; i++)
        y[i] = silu(gate[i]) * up[i];
}

/* Two loops, because one with two results that may be added to is not vectorised. */
CRL_VECTORISED void crl_swiglu_slope_tile(const void *context, float *const *x, int64_t n) {
    float *dgate = x[0], *dup = x[1];
    const float *gate = x[2], *up = x[3], *dy = x[4];
    if (adds(context)) {
#pragma omp simd
        for (int64_t i = 0; i < n; i++) {
            dgate[i] += dy[i] * up[i] * silu_slope(gate[i]);
            dup[i] += dy[i] * silu(gate[i]);
        }
        return;
    }
#pragma omp simd
    for (int64_t i = 0; i < n; i++) {
        dgate[i] = dy[i] * up[i] * silu_slope(gate[i]);
        dup[i] = dy[i] * silu(gate[i]);
    }
}

static const struct {
    crl_map_fn value, slope;
} activations[CRL_ACTIVATION_COUNT] = {
    [CRL_ACTIVATION_RELU] = {relu_tile, relu_slope_tile},
    [CRL_ACTIVATION_GELU_ERF] = {gelu_erf_tile, gelu_erf_slope_tile},
    [CRL_ACTIVATION_GELU_TANH] = {gelu_tanh_tile, gelu_tanh_slope_tile},
};

crl_map_fn crl_activation_tile(crl_activation kind) {
    CRL_ASSERT((int)kind >= 0 && (int)kind < CRL_ACTIVATION_COUNT);
    return activations[kind].value;
}

crl_map_fn crl_activation_slope_tile(crl_activation kind) {
    CRL_ASSERT((int)kind >= 0 && (int)kind < CRL_ACTIVATION_COUNT);
    return activations[kind].slope;
}

CRL_VECTORISED void crl_copy_tile(const void *context, float *const *x, int64_t n) {
    (void)context;
    float *y = x[0];
    const float *a = x[1];
#pragma omp simd
    for (int64_t i = 0; i < n; i++)
        y[i] = a[i];
}

CRL_VECTORISED void crl_add_tile(const void *context, float *const *x, int64_t n) {
    (void)context;
    float *y = x[0];
    const float *a = x[1], *b = x[2];
#pragma omp simd
    for (int64_t i = 0; i < n; i++)
        y[i] = a[i] + b[i];
}
