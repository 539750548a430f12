/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The kernel around every element-wise operation. An operation is a struct F that is called as
 * f(in, out) with the kIn inputs and kOut outputs of one element; an output may be an input too.
 *
 *     grid ceil(n / 1024) · block 256 · a thread does 4 elements, 16 bytes of every array at a time
 */
#pragma once

#include "engine/kernels/cuda/device_internal.h"
#include "engine/kernels/cuda/stream_internal.h"

typedef struct crl_cuda_arrays {
    float *out[3];
    const float *in[4]; /* NULL: reads as zero */
} crl_cuda_arrays;

template <typename F>
static __global__ void __launch_bounds__(CRL_CUDA_THREADS)
    map_kernel(F f, crl_cuda_arrays arrays, int64_t n, bool vector) {
    const int64_t i = ((int64_t)blockIdx.x * CRL_CUDA_THREADS + threadIdx.x) * CRL_CUDA_VECTOR;
    if (i >= n)
        return;
    float in[F::kIn][CRL_CUDA_VECTOR], out[F::kOut][CRL_CUDA_VECTOR];
#pragma unroll
    for (int a = 0; a < F::kIn; a++) {
        if (arrays.in[a] != nullptr)
            crl_cuda_load(arrays.in[a], i, n, vector, in[a]);
        else
            in[a][0] = in[a][1] = in[a][2] = in[a][3] = 0.0f;
    }
#pragma unroll
    for (int k = 0; k < CRL_CUDA_VECTOR; k++) {
        float x[F::kIn], y[F::kOut];
#pragma unroll
        for (int a = 0; a < F::kIn; a++)
            x[a] = in[a][k];
        f(x, y);
#pragma unroll
        for (int a = 0; a < F::kOut; a++)
            out[a][k] = y[a];
    }
#pragma unroll
    for (int a = 0; a < F::kOut; a++)
        crl_cuda_store(arrays.out[a], i, n, vector, out[a]);
}

/* Async on stream. DEVICE. */
template <typename F>
static crl_status crl_cuda_map(crl_stream *stream, const char *what, const F &f,
                               const crl_cuda_arrays &arrays, int64_t n) {
    if (n == 0)
        return CRL_STATUS_OK;
    uintptr_t all = 0;
    for (int a = 0; a < F::kIn; a++)
        all |= (uintptr_t)arrays.in[a];
    for (int a = 0; a < F::kOut; a++)
        all |= (uintptr_t)arrays.out[a];
    const bool vector = all % (CRL_CUDA_VECTOR * sizeof(float)) == 0;
    const int64_t blocks = crl_cuda_ceil_div(n, CRL_CUDA_THREADS * CRL_CUDA_VECTOR);
    CRL_LAUNCH(map_kernel<F>, crl_cuda_grid(blocks, CRL_CUDA_GRID_X), CRL_CUDA_THREADS, 0,
               stream->handle, f, arrays, n, vector);
    return crl_cuda_launched(what);
}
