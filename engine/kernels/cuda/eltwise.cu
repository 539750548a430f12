/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Element-wise operations: one kernel, map_internal.h, and a formula each. Numbers: ReLU, add and
 * copy have the CPU's bits; the GELUs go through erfc and exp of CUDA, within a few units in the
 * last place of the CPU's polynomials. No element's bits depend on its place.
 *
 *                         bytes read + written · flops, per element
 *     activation          4 + 4                · 1 (relu), ~20 (gelu)
 *     activation_backward 8 + 4, 12 + 4 adding · 1, ~35
 *     add                 8 + 4                · 1
 *     copy                4 + 4, 8 + 4 adding  · 0, 1
 */
#include "engine/kernels/cuda/map_internal.h"

#include <math.h>

namespace {

struct Relu {
    static __device__ float value(float x) { return x < 0 ? 0 : x; }
    static __device__ float slope(float x, float dy) { return x > 0 ? dy : 0; }
};

struct GeluErf {
    static __device__ float value(float x) { return x * (0.5f * erfcf(-x * 0.707106781f)); }
    static __device__ float slope(float x, float dy) {
        const float density = 0.398942280f * expf(-0.5f * x * x);
        return dy * (0.5f * erfcf(-x * 0.707106781f) + x * density);
    }
};

/* (1 + tanh u)/2 is the logistic function of 2u. */
struct GeluTanh {
    static __device__ float decay(float x) { /* e^(-2u) */
        return expf(-x * (1.59576912f + 0.0713548163f * x * x));
    }
    static __device__ float value(float x) { return x / (1.0f + decay(x)); }
    /* Beyond 10 the slope is 0 or 1 to the last place, but its factors would overflow. */
    static __device__ float slope(float x, float dy) {
        const float held = x > 10.0f ? 10.0f : x < -10.0f ? -10.0f : x;
        const float e = decay(held), gate = 1.0f / (1.0f + e);
        const float du2 = 1.59576912f + 3.0f * 0.0713548163f * held * held;
        return dy * (gate + x * (du2 * (gate * gate * e)));
    }
};

template <typename A> struct Forward {
    enum { kIn = 1, kOut = 1 };
    __device__ void operator()(const float *x, float *y) const { y[0] = A::value(x[0]); }
};

template <typename A> struct Backward { /* x, dy, dx before */
    enum { kIn = 3, kOut = 1 };
    bool accumulate;
    __device__ void operator()(const float *x, float *y) const {
        const float g = A::slope(x[0], x[1]);
        y[0] = accumulate ? x[2] + g : g;
    }
};

struct Add {
    enum { kIn = 2, kOut = 1 };
    __device__ void operator()(const float *x, float *y) const { y[0] = x[0] + x[1]; }
};

template <typename A> crl_status forward(crl_stream *stream, const float *x, float *y, int64_t n) {
    return crl_cuda_map(stream, "activation", Forward<A>(), {{y}, {x}}, n);
}

template <typename A>
crl_status backward(crl_stream *stream, const float *x, const float *dy, float *dx, int64_t n,
                    bool accumulate) {
    return crl_cuda_map(stream, "activation_backward", Backward<A>{accumulate},
                        {{dx}, {x, dy, accumulate ? dx : nullptr}}, n);
}

const struct {
    crl_status (*forward)(crl_stream *, const float *, float *, int64_t);
    crl_status (*backward)(crl_stream *, const float *, const float *, float *, int64_t, bool);
} activations[CRL_ACTIVATION_COUNT] = {
    {forward<Relu>, backward<Relu>},
    {forward<GeluErf>, backward<GeluErf>},
    {forward<GeluTanh>, backward<GeluTanh>},
};

crl_status eltwise_activation(crl_stream *stream, crl_activation kind, const void *x_, void *y_,
                              int64_t n) {
    const float *const x = static_cast<const float *>(x_);
    float *const y = static_cast<float *>(y_);
    CRL_ASSERT((int)kind >= 0 && kind < CRL_ACTIVATION_COUNT);
    return activations[kind].forward(stream, x, y, n);
}

crl_status eltwise_activation_backward(crl_stream *stream, crl_activation kind, const void *x_,
                                       const void *dy_, void *dx_, int64_t n, bool accumulate) {
    const float *const x = static_cast<const float *>(x_);
    const float *const dy = static_cast<const float *>(dy_);
    float *const dx = static_cast<float *>(dx_);
    CRL_ASSERT((int)kind >= 0 && kind < CRL_ACTIVATION_COUNT);
    return activations[kind].backward(stream, x, dy, dx, n, accumulate);
}

crl_status eltwise_add(crl_stream *stream, const void *a_, const void *b_, void *y_, int64_t n) {
    const float *const a = static_cast<const float *>(a_);
    const float *const b = static_cast<const float *>(b_);
    float *const y = static_cast<float *>(y_);
    return crl_cuda_map(stream, "add", Add(), {{y}, {a, b}}, n);
}

crl_status eltwise_copy(crl_stream *stream, const void *x_, void *y_, int64_t n, bool accumulate) {
    const float *const x = static_cast<const float *>(x_);
    float *const y = static_cast<float *>(y_);
    if (accumulate)
        return eltwise_add(stream, y, x, y, n);
    if (x != y && n > 0)
        CRL_CUDA_TRY("copy", cudaMemcpyAsync(y, x, (size_t)n * sizeof *x, cudaMemcpyDeviceToDevice,
                                             stream->handle));
    return CRL_STATUS_OK;
}

} // namespace

extern "C" const crl_eltwise_ops crl_eltwise_cuda = {
    eltwise_activation,
    eltwise_activation_backward,
    eltwise_add,
    eltwise_copy,
    crl_cuda_dropout,
    nullptr, /* swiglu */
    nullptr,
    nullptr, /* narrow */
    nullptr,
};
