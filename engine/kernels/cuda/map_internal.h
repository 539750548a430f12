/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The kernel around every element-wise operation. An operation is a struct F with the types of its
 * inputs, In, that is called as f(in, out) with the floats of one element; an output may be an
 * input too. Outputs are arguments of their own: the emulation takes them for written.
 *
 *     grid ceil(n / (256 kWidth)) · block 256 · a thread does kWidth elements, up to 16 bytes of an
 *     array at a time
 */
#pragma once

#include "engine/kernels/cuda/device_internal.h"
#include "engine/kernels/cuda/stream_internal.h"

/* Arrays, each of its own type: NULL reads as zero. */
template <typename... T> struct crl_cuda_arrays;
template <typename T> struct crl_cuda_arrays<T> {
    enum { kCount = 1 };
    T *first;
};
template <typename T, typename... R> struct crl_cuda_arrays<T, R...> {
    enum { kCount = 1 + sizeof...(R) };
    T *first;
    crl_cuda_arrays<R...> rest;
};

template <int V, typename... T> inline bool crl_cuda_all_aligned(const crl_cuda_arrays<T...> &all) {
    if constexpr (sizeof...(T) > 1)
        return crl_cuda_aligned<V>(V, all.first) && crl_cuda_all_aligned<V>(all.rest);
    else
        return crl_cuda_aligned<V>(V, all.first);
}

template <int V, typename... T>
__device__ inline void crl_cuda_load_all(const crl_cuda_arrays<T...> &all, int64_t i, int64_t n,
                                         bool vector, float (*out)[V]) {
    if (all.first != nullptr) {
        crl_cuda_load(all.first, i, n, vector, *out);
    } else {
#pragma unroll
        for (int k = 0; k < V; k++)
            (*out)[k] = 0.0f;
    }
    if constexpr (sizeof...(T) > 1)
        crl_cuda_load_all(all.rest, i, n, vector, out + 1);
}

/* NULL is not written. */
template <int V, typename T>
__device__ inline void crl_cuda_store_some(T *x, int64_t i, int64_t n, bool vector,
                                           const float (&in)[V]) {
    if (x != nullptr)
        crl_cuda_store(x, i, n, vector, in);
}

template <typename F, typename... O>
static __global__ void __launch_bounds__(CRL_CUDA_THREADS)
    map_kernel(F f, typename F::In inputs, int64_t n, bool vector, O *...outputs) {
    constexpr int V = F::kWidth, INPUTS = F::In::kCount, OUTPUTS = sizeof...(O);
    const int64_t i = ((int64_t)blockIdx.x * CRL_CUDA_THREADS + threadIdx.x) * V;
    if (i >= n)
        return;
    float in[INPUTS][V], out[OUTPUTS][V];
    crl_cuda_load_all(inputs, i, n, vector, in);
#pragma unroll
    for (int k = 0; k < V; k++) {
        float x[INPUTS], y[OUTPUTS];
#pragma unroll
        for (int a = 0; a < INPUTS; a++)
            x[a] = in[a][k];
        f(x, y);
#pragma unroll
        for (int a = 0; a < OUTPUTS; a++)
            out[a][k] = y[a];
    }
    int at = 0;
    (..., crl_cuda_store_some(outputs, i, n, vector, out[at++]));
}

/* outputs = f(inputs), n elements. Async on stream. DEVICE. */
template <typename F, typename... O>
static crl_status crl_cuda_map(crl_stream *stream, const char *what, const F &f, int64_t n,
                               const typename F::In &inputs, O *...outputs) {
    constexpr int V = F::kWidth;
    const auto map = map_kernel<F, O...>;
    if (n == 0)
        return CRL_STATUS_OK;
    const bool vector = crl_cuda_all_aligned<V>(inputs) && crl_cuda_aligned<V>(V, outputs...);
    const int64_t blocks = crl_cuda_ceil_div(n, CRL_CUDA_THREADS * V);
    CRL_LAUNCH(map, crl_cuda_grid(blocks, CRL_CUDA_GRID_X), CRL_CUDA_THREADS, 0, stream->handle, f,
               inputs, n, vector, outputs...);
    return crl_cuda_launched(what);
}
