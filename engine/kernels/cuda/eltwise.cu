/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Element-wise operations: one kernel, map_internal.h, and a formula each. Numbers: ReLU, add,
 * copy, narrow and widen have the CPU's bits; the GELUs go through erfc and exp of CUDA, within a
 * few units in the last place of the CPU's polynomials. No element's bits depend on its place.
 *
 *                         arrays read + written · flops, per element
 *     activation          1 + 1                 · 1 (relu), ~20 (gelu)
 *     activation_backward 2 + 1, 3 + 1 adding   · 1, ~35
 *     add                 2 + 1                 · 1
 *     copy, narrow, widen 1 + 1, 2 + 1 adding   · 0, 1
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

template <typename T, typename A> struct Forward {
    using In = crl_cuda_arrays<const T>;
    enum { kWidth = crl_cuda_width<T> };
    __device__ void operator()(const float *x, float *y) const { y[0] = A::value(x[0]); }
};

template <typename T, typename A> struct Backward {
    using In = crl_cuda_arrays<const T, const T, const T>; /* x, dy, dx before */
    enum { kWidth = crl_cuda_width<T> };
    bool accumulate;
    __device__ void operator()(const float *x, float *y) const {
        const float g = A::slope(x[0], x[1]);
        y[0] = accumulate ? x[2] + g : g;
    }
};

template <typename T> struct Add {
    using In = crl_cuda_arrays<const T, const T>;
    enum { kWidth = crl_cuda_width<T> };
    __device__ void operator()(const float *x, float *y) const { y[0] = x[0] + x[1]; }
};

template <typename From, typename To> struct Convert {
    using In = crl_cuda_arrays<const From, const To>; /* x, y before */
    enum { kWidth = 8 };
    bool accumulate;
    __device__ void operator()(const float *x, float *y) const {
        y[0] = accumulate ? x[1] + x[0] : x[0];
    }
};

template <typename T, typename A>
crl_status forward(crl_stream *stream, const void *x, void *y, int64_t n) {
    return crl_cuda_map(stream, "activation", Forward<T, A>(), n, {static_cast<const T *>(x)},
                        static_cast<T *>(y));
}

template <typename T, typename A>
crl_status backward(crl_stream *stream, const void *x, const void *dy, void *dx, int64_t n,
                    bool accumulate) {
    T *const out = static_cast<T *>(dx);
    return crl_cuda_map(
        stream, "activation_backward", Backward<T, A>{accumulate}, n,
        {static_cast<const T *>(x), static_cast<const T *>(dy), accumulate ? out : nullptr}, out);
}

struct Activation {
    crl_status (*forward)(crl_stream *, const void *, void *, int64_t);
    crl_status (*backward)(crl_stream *, const void *, const void *, void *, int64_t, bool);
};

template <typename T>
constexpr Activation activations[CRL_ACTIVATION_COUNT] = {
    {forward<T, Relu>, backward<T, Relu>},
    {forward<T, GeluErf>, backward<T, GeluErf>},
    {forward<T, GeluTanh>, backward<T, GeluTanh>},
};

template <typename T>
crl_status eltwise_activation(crl_stream *stream, crl_activation kind, const void *x, void *y,
                              int64_t n) {
    CRL_ASSERT((int)kind >= 0 && kind < CRL_ACTIVATION_COUNT);
    return activations<T>[kind].forward(stream, x, y, n);
}

template <typename T>
crl_status eltwise_activation_backward(crl_stream *stream, crl_activation kind, const void *x,
                                       const void *dy, void *dx, int64_t n, bool accumulate) {
    CRL_ASSERT((int)kind >= 0 && kind < CRL_ACTIVATION_COUNT);
    return activations<T>[kind].backward(stream, x, dy, dx, n, accumulate);
}

template <typename T>
crl_status eltwise_add(crl_stream *stream, const void *a, const void *b, void *y, int64_t n) {
    return crl_cuda_map(stream, "add", Add<T>(), n,
                        {static_cast<const T *>(a), static_cast<const T *>(b)},
                        static_cast<T *>(y));
}

template <typename T>
crl_status eltwise_copy(crl_stream *stream, const void *x, void *y, int64_t n, bool accumulate) {
    if (accumulate)
        return eltwise_add<T>(stream, y, x, y, n);
    if (x != y && n > 0)
        CRL_CUDA_TRY("copy", cudaMemcpyAsync(y, x, (size_t)n * sizeof(T), cudaMemcpyDeviceToDevice,
                                             stream->handle));
    return CRL_STATUS_OK;
}

template <typename From, typename To>
crl_status convert(crl_stream *stream, const From *x, To *y, int64_t n, bool accumulate) {
    return crl_cuda_map(stream, "conversion", Convert<From, To>{accumulate}, n,
                        {x, accumulate ? y : nullptr}, y);
}

template <typename T>
crl_status eltwise_narrow(crl_stream *stream, const float *x, void *y, int64_t n, bool accumulate) {
    if constexpr (sizeof(T) == sizeof(float))
        return eltwise_copy<float>(stream, x, y, n, accumulate);
    else
        return convert(stream, x, static_cast<T *>(y), n, accumulate);
}

template <typename T>
crl_status eltwise_widen(crl_stream *stream, const void *x, float *y, int64_t n, bool accumulate) {
    if constexpr (sizeof(T) == sizeof(float))
        return eltwise_copy<float>(stream, x, y, n, accumulate);
    else
        return convert(stream, static_cast<const T *>(x), y, n, accumulate);
}

template <typename T>
crl_status eltwise_dropout(crl_stream *stream, const crl_rng *rng, double p, const void *x, void *y,
                           int64_t samples, int64_t n_per_sample, bool accumulate) {
    if (p == 0)
        return eltwise_copy<T>(stream, x, y, samples * n_per_sample, accumulate);
    return crl_cuda_dropout<T>(stream, rng, p, x, y, samples, n_per_sample, accumulate);
}

template <typename T>
constexpr crl_eltwise_ops ops = {
    eltwise_activation<T>,
    eltwise_activation_backward<T>,
    eltwise_add<T>,
    eltwise_copy<T>,
    eltwise_dropout<T>,
    crl_cuda_swiglu<T>,
    crl_cuda_swiglu_backward<T>,
    eltwise_narrow<T>,
    eltwise_widen<T>,
};

} // namespace

extern "C" {
const crl_eltwise_ops crl_eltwise_cuda_f32 = ops<float>;
const crl_eltwise_ops crl_eltwise_cuda_bf16 = ops<__nv_bfloat16>;
const crl_eltwise_ops crl_eltwise_cuda_f16 = ops<__half>;
}
