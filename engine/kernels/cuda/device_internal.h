/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What kernels share on the device: four floats at a time, and sums over a warp or a block in one
 * fixed order. Which thread holds which element never depends on alignment, so neither do bits.
 */
#pragma once

#include "engine/kernels/cuda/launch_internal.h"

/* May arrays be read 16 bytes at a time, when their rows begin at multiples of `row` elements? */
static inline bool crl_cuda_aligned(int64_t row, const void *a, const void *b, const void *c) {
    const uintptr_t all = (uintptr_t)a | (uintptr_t)b | (uintptr_t)c;
    return row % CRL_CUDA_VECTOR == 0 && all % (CRL_CUDA_VECTOR * sizeof(float)) == 0;
}

/* out = x[i..i+3] of n elements, zero behind the end; `vector`: x + i is 16-byte aligned. */
__device__ inline void crl_cuda_load(const float *x, int64_t i, int64_t n, bool vector,
                                     float out[CRL_CUDA_VECTOR]) {
    if (vector && i + CRL_CUDA_VECTOR <= n) {
        const float4 v = *reinterpret_cast<const float4 *>(x + i);
        out[0] = v.x;
        out[1] = v.y;
        out[2] = v.z;
        out[3] = v.w;
        return;
    }
#pragma unroll
    for (int k = 0; k < CRL_CUDA_VECTOR; k++)
        out[k] = i + k < n ? x[i + k] : 0.0f;
}

/* x[i..i+3] = in, as far as there are elements. */
__device__ inline void crl_cuda_store(float *x, int64_t i, int64_t n, bool vector,
                                      const float in[CRL_CUDA_VECTOR]) {
    if (vector && i + CRL_CUDA_VECTOR <= n) {
        *reinterpret_cast<float4 *>(x + i) = make_float4(in[0], in[1], in[2], in[3]);
        return;
    }
#pragma unroll
    for (int k = 0; k < CRL_CUDA_VECTOR; k++) {
        if (i + k < n)
            x[i + k] = in[k];
    }
}

/* The sum over the 32 lanes, on every lane: pairs 16 apart first, neighbours last. */
template <typename T> __device__ inline T crl_cuda_warp_sum(T v) {
#pragma unroll
    for (int d = CRL_CUDA_WARP / 2; d > 0; d /= 2)
        v += __shfl_xor_sync(~0u, v, d);
    return v;
}

/* The sum over a block of CRL_CUDA_THREADS, on every thread: warps are added in order. */
template <typename T> __device__ inline T crl_cuda_block_sum(T v) {
    CRL_SHARED(T, part, CRL_CUDA_THREADS / CRL_CUDA_WARP);
    v = crl_cuda_warp_sum(v);
    __syncthreads(); /* whoever still reads the parts of the sum before */
    if (threadIdx.x % CRL_CUDA_WARP == 0)
        part[threadIdx.x / CRL_CUDA_WARP] = v;
    __syncthreads();
    T sum = part[0];
#pragma unroll
    for (int w = 1; w < CRL_CUDA_THREADS / CRL_CUDA_WARP; w++)
        sum += part[w];
    return sum;
}
