/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What kernels share on the device: the three types of element, 16 bytes of them at a time, and
 * sums over a warp or a block in one fixed order. Kernels compute in float and round what they
 * store, to nearest even. Which thread holds which element never depends on alignment, so neither
 * do bits.
 */
#pragma once

#include "engine/kernels/cuda/launch_internal.h"

#include <cuda_bf16.h>
#include <cuda_fp16.h>

/* Elements of 16 bytes, which are a thread's: 4 or 8. */
template <typename T> constexpr int crl_cuda_width = 16 / (int)sizeof(T);

__device__ inline float crl_cuda_float(float x) {
    return x;
}
__device__ inline float crl_cuda_float(__nv_bfloat16 x) {
    return __bfloat162float(x);
}
__device__ inline float crl_cuda_float(__half x) {
    return __half2float(x);
}

__device__ inline void crl_cuda_round(float x, float *y) {
    *y = x;
}
__device__ inline void crl_cuda_round(float x, __nv_bfloat16 *y) {
    *y = __float2bfloat16_rn(x);
}
__device__ inline void crl_cuda_round(float x, __half *y) {
    *y = __float2half_rn(x);
}

/* What x is once it has been stored as T. */
template <typename T> __device__ inline float crl_cuda_rounded(float x) {
    T y;
    crl_cuda_round(x, &y);
    return crl_cuda_float(y);
}

/* N elements that are read or written at once, at most 16 bytes. */
template <typename T, int N> struct alignas(N * sizeof(T)) crl_cuda_pack { T x[N]; };

/* Elements of one access when V of them are wanted. */
template <typename T, int V>
constexpr int crl_cuda_part = V < crl_cuda_width<T> ? V : crl_cuda_width<T>;

/* May arrays be read V elements at a time, when their rows begin at multiples of `row` elements? */
template <int V, typename... T> inline bool crl_cuda_aligned(int64_t row, const T *...x) {
    return row % V == 0 && (... && ((uintptr_t)x % (crl_cuda_part<T, V> * sizeof(T)) == 0));
}

/* out = x[i..i+V-1] of n elements, zero behind the end; `vector`: x + i is aligned. */
template <int V, typename T>
__device__ inline void crl_cuda_load(const T *x, int64_t i, int64_t n, bool vector,
                                     float (&out)[V]) {
    constexpr int PART = crl_cuda_part<T, V>;
    if (vector && i + V <= n) {
#pragma unroll
        for (int p = 0; p < V; p += PART) {
            const crl_cuda_pack<T, PART> pack =
                *reinterpret_cast<const crl_cuda_pack<T, PART> *>(x + i + p);
#pragma unroll
            for (int k = 0; k < PART; k++)
                out[p + k] = crl_cuda_float(pack.x[k]);
        }
        return;
    }
#pragma unroll
    for (int k = 0; k < V; k++)
        out[k] = i + k < n ? crl_cuda_float(x[i + k]) : 0.0f;
}

/* x[i..i+V-1] = in, as far as there are elements. */
template <int V, typename T>
__device__ inline void crl_cuda_store(T *x, int64_t i, int64_t n, bool vector,
                                      const float (&in)[V]) {
    constexpr int PART = crl_cuda_part<T, V>;
    if (vector && i + V <= n) {
#pragma unroll
        for (int p = 0; p < V; p += PART) {
            crl_cuda_pack<T, PART> pack;
#pragma unroll
            for (int k = 0; k < PART; k++)
                crl_cuda_round(in[p + k], &pack.x[k]);
            *reinterpret_cast<crl_cuda_pack<T, PART> *>(x + i + p) = pack;
        }
        return;
    }
#pragma unroll
    for (int k = 0; k < V; k++) {
        if (i + k < n)
            crl_cuda_round(in[k], x + i + k);
    }
}

/* The sum over the 32 lanes, on every lane: pairs 16 apart first, neighbours last. */
template <typename T> __device__ inline T crl_cuda_warp_sum(T v) {
#pragma unroll
    for (int d = CRL_CUDA_WARP / 2; d > 0; d /= 2)
        v += __shfl_xor_sync(~0u, v, d);
    return v;
}

/* The sum over a block of whole warps, at most CRL_CUDA_THREADS, on every thread: warps are added
 * in order. */
template <typename T> __device__ inline T crl_cuda_block_sum(T v) {
    CRL_SHARED(T, part, CRL_CUDA_THREADS / CRL_CUDA_WARP);
    v = crl_cuda_warp_sum(v);
    __syncthreads(); /* whoever still reads the parts of the sum before */
    if (threadIdx.x % CRL_CUDA_WARP == 0)
        part[threadIdx.x / CRL_CUDA_WARP] = v;
    __syncthreads();
    const int warps = (int)blockDim.x / CRL_CUDA_WARP;
    T sum = part[0];
    for (int w = 1; w < warps; w++)
        sum += part[w];
    return sum;
}
