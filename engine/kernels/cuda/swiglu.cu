/* SPDX-License-Identifier: Apache-2.0 */
/*
 * SwiGLU [shazeer20]: y = silu(u) · g of the halves u and g of a row. Nothing is kept for backward
 * but x. Numbers: CUDA's exp, one rounding to what is stored; no element's bits depend on its
 * place.
 *
 *     forward   grid (N, ceil(C/(256 width))) · block up to 256 · arrays of (N,C) read + written
 *               2 + 1 · ~12 flops per element of y
 *     backward  same · 3 + 2, 5 + 2 adding · ~20
 */
#include "engine/kernels/cuda/device_internal.h"
#include "engine/kernels/cuda/stream_internal.h"

#include <math.h>

namespace {

/* Below -88 e^-u overflows: the limit is held there. NaN stays. */
__device__ float held(float u) {
    return u < -88.0f ? -88.0f : u;
}

__device__ float silu(float u) {
    return held(u) / (1.0f + expf(-u));
}

/* s + u s (1 - s), with 1 - s without the cancellation; beyond 88 the slope is 0 or 1. */
__device__ float silu_slope(float u) {
    const float h = u > 88.0f ? 88.0f : held(u);
    const float e = expf(-h), s = 1.0f / (1.0f + e);
    return s + h * s * (e * s);
}

template <typename T>
__global__ void __launch_bounds__(CRL_CUDA_THREADS)
    forward_kernel(const T *x, T *y, int64_t c, bool vector) {
    constexpr int V = crl_cuda_width<T>;
    const int64_t row = blockIdx.x;
    const int64_t j = ((int64_t)blockIdx.y * blockDim.x + threadIdx.x) * V;
    if (j >= c)
        return;
    float u[V], g[V];
    crl_cuda_load(x + row * 2 * c, j, c, vector, u);
    crl_cuda_load(x + row * 2 * c + c, j, c, vector, g);
#pragma unroll
    for (int k = 0; k < V; k++)
        u[k] = silu(u[k]) * g[k];
    crl_cuda_store(y + row * c, j, c, vector, u);
}

template <typename T>
__global__ void __launch_bounds__(CRL_CUDA_THREADS)
    backward_kernel(const T *x, const T *dy, T *dx, int64_t c, bool vector, bool accumulate) {
    constexpr int V = crl_cuda_width<T>;
    const int64_t row = blockIdx.x;
    const int64_t j = ((int64_t)blockIdx.y * blockDim.x + threadIdx.x) * V;
    if (j >= c)
        return;
    T *const du_row = dx + row * 2 * c, *const dg_row = du_row + c;
    float u[V], g[V], d[V], du[V] = {0}, dg[V] = {0};
    crl_cuda_load(x + row * 2 * c, j, c, vector, u);
    crl_cuda_load(x + row * 2 * c + c, j, c, vector, g);
    crl_cuda_load(dy + row * c, j, c, vector, d);
    if (accumulate) {
        crl_cuda_load(du_row, j, c, vector, du);
        crl_cuda_load(dg_row, j, c, vector, dg);
    }
#pragma unroll
    for (int k = 0; k < V; k++) {
        const float to_u = d[k] * g[k] * silu_slope(u[k]), to_g = d[k] * silu(u[k]);
        du[k] = accumulate ? du[k] + to_u : to_u;
        dg[k] = accumulate ? dg[k] + to_g : to_g;
    }
    crl_cuda_store(du_row, j, c, vector, du);
    crl_cuda_store(dg_row, j, c, vector, dg);
}

template <typename T> dim3 grid_of(int64_t n, int64_t c, unsigned threads) {
    const int64_t tiles = crl_cuda_ceil_div(c, (int64_t)threads * crl_cuda_width<T>);
    return dim3(crl_cuda_grid(n, CRL_CUDA_GRID_X), crl_cuda_grid(tiles, CRL_CUDA_GRID_Y));
}

} // namespace

template <typename T>
crl_status crl_cuda_swiglu(crl_stream *stream, const void *x_, void *y_, int64_t n, int64_t c) {
    const T *const x = static_cast<const T *>(x_);
    T *const y = static_cast<T *>(y_);
    if (n * c == 0)
        return CRL_STATUS_OK;
    const unsigned threads = crl_cuda_row_threads(c, crl_cuda_width<T>);
    CRL_LAUNCH(forward_kernel<T>, grid_of<T>(n, c, threads), threads, 0, stream->handle, x, y, c,
               crl_cuda_aligned<crl_cuda_width<T>>(c, x, y));
    return crl_cuda_launched("swiglu");
}

template <typename T>
crl_status crl_cuda_swiglu_backward(crl_stream *stream, const void *x_, const void *dy_, void *dx_,
                                    int64_t n, int64_t c, bool accumulate) {
    const T *const x = static_cast<const T *>(x_), *const dy = static_cast<const T *>(dy_);
    T *const dx = static_cast<T *>(dx_);
    if (n * c == 0)
        return CRL_STATUS_OK;
    const unsigned threads = crl_cuda_row_threads(c, crl_cuda_width<T>);
    CRL_LAUNCH(backward_kernel<T>, grid_of<T>(n, c, threads), threads, 0, stream->handle, x, dy, dx,
               c, crl_cuda_aligned<crl_cuda_width<T>>(c, x, dy, dx), accumulate);
    return crl_cuda_launched("swiglu backward");
}

#define INSTANCES(T)                                                                               \
    template crl_status crl_cuda_swiglu<T>(crl_stream *, const void *, void *, int64_t, int64_t);  \
    template crl_status crl_cuda_swiglu_backward<T>(crl_stream *, const void *, const void *,      \
                                                    void *, int64_t, int64_t, bool)
INSTANCES(float);
INSTANCES(__nv_bfloat16);
INSTANCES(__half);
