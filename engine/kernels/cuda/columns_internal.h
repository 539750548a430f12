/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Sums down the columns of an (N,C) matrix, for bias and normalisation gradients. Rows are cut into
 * chunks of 128, so that a tall narrow matrix fills the device too; the order of additions follows
 * from N alone:
 *
 *     chunk  thread y adds rows y, y+8, ... in float; the 8 sums are added in order, in double
 *     total  the chunks are added in order, in double
 *
 *     columns: grid ceil(C/(32 kWidth))·ceil(N/128) · block (32,8), kWidth columns a thread;
 *     total: grid ceil(kSums·C/256) · 256
 *     bytes: the matrix once, 16·kSums·C per chunk for the partial sums
 *
 * What is summed is a struct F, called as f(row, column, columns, vector, sum) to add the kWidth
 * elements of a row from `column` on to its kSums sums.
 */
#pragma once

#include "engine/kernels/cuda/device_internal.h"
#include "engine/kernels/cuda/stream_internal.h"

enum { CRL_CUDA_CHUNK = 128, CRL_CUDA_CHUNK_Y = 8 };

static inline size_t crl_cuda_columns_bytes(int sums, int64_t n, int64_t c) {
    return (size_t)(crl_cuda_ceil_div(n, CRL_CUDA_CHUNK) * sums * c) * sizeof(double);
}

template <typename F>
static __global__ void __launch_bounds__(CRL_CUDA_WARP *CRL_CUDA_CHUNK_Y)
    columns_kernel(F f, int64_t n, int64_t c, bool vector, double *partial) {
    constexpr int V = F::kWidth, COLUMNS = CRL_CUDA_WARP * V;
    CRL_SHARED(float, part, F::kSums *CRL_CUDA_CHUNK_Y *COLUMNS);
    const unsigned tiles = (unsigned)((c + COLUMNS - 1) / COLUMNS), chunk = blockIdx.x / tiles;
    const int64_t column = (int64_t)(blockIdx.x % tiles) * COLUMNS + threadIdx.x * V;
    const int64_t first = (int64_t)chunk * CRL_CUDA_CHUNK;
    const int64_t end = crl_cuda_min(first + CRL_CUDA_CHUNK, n);
    float sum[F::kSums][V] = {{0}};
    if (column < c) {
        for (int64_t row = first + threadIdx.y; row < end; row += CRL_CUDA_CHUNK_Y)
            f(row, column, c, vector, sum);
    }
    /* Column `k` of a thread's stands 32 behind that before: no two lanes meet in a bank. */
#pragma unroll
    for (int s = 0; s < F::kSums; s++) {
#pragma unroll
        for (int k = 0; k < V; k++)
            part[((s * CRL_CUDA_CHUNK_Y + threadIdx.y) * V + k) * CRL_CUDA_WARP + threadIdx.x] =
                sum[s][k];
    }
    __syncthreads();
    /* Thread y finishes sums y, y+8, ... of its lane's kSums·V. */
    for (int i = (int)threadIdx.y; i < F::kSums * V; i += CRL_CUDA_CHUNK_Y) {
        const int s = i / V, k = i % V;
        if (column + k >= c)
            continue;
        double total = 0;
        for (int y = 0; y < CRL_CUDA_CHUNK_Y; y++)
            total +=
                (double)part[((s * CRL_CUDA_CHUNK_Y + y) * V + k) * CRL_CUDA_WARP + threadIdx.x];
        partial[((int64_t)chunk * F::kSums + s) * c + column + k] = total;
    }
}

/* y0 (C), and y1 (C) if there are two sums, (+)= the chunks' sums. */
static __global__ void __launch_bounds__(CRL_CUDA_THREADS)
    columns_total_kernel(const double *partial, int64_t chunks, int64_t c, int sums, float *y0,
                         float *y1, bool accumulate) {
    const int64_t i = (int64_t)blockIdx.x * CRL_CUDA_THREADS + threadIdx.x;
    if (i >= sums * c)
        return;
    double total = 0;
    for (int64_t chunk = 0; chunk < chunks; chunk++)
        total += partial[chunk * sums * c + i];
    float *y = i < c ? y0 + i : y1 + (i - c);
    *y = accumulate ? *y + (float)total : (float)total;
}

/* Async on stream; `scratch` has crl_cuda_columns_bytes. DEVICE. */
template <typename F>
static crl_status crl_cuda_columns(crl_stream *stream, const F &f, bool vector, int64_t n,
                                   int64_t c, float *y0, float *y1, bool accumulate,
                                   void *scratch) {
    if (c == 0)
        return CRL_STATUS_OK;
    double *const partial = static_cast<double *>(scratch);
    const int64_t chunks = crl_cuda_ceil_div(n, CRL_CUDA_CHUNK);
    if (chunks > 0) {
        const int64_t tiles = crl_cuda_ceil_div(c, CRL_CUDA_WARP * F::kWidth);
        CRL_LAUNCH(columns_kernel<F>, crl_cuda_grid(tiles * chunks, CRL_CUDA_GRID_X),
                   dim3(CRL_CUDA_WARP, CRL_CUDA_CHUNK_Y), 0, stream->handle, f, n, c, vector,
                   partial);
    }
    const int64_t blocks = crl_cuda_ceil_div(F::kSums * c, CRL_CUDA_THREADS);
    CRL_LAUNCH(columns_total_kernel, crl_cuda_grid(blocks, CRL_CUDA_GRID_X), CRL_CUDA_THREADS, 0,
               stream->handle, partial, chunks, c, (int)F::kSums, y0, y1, accumulate);
    return crl_cuda_launched("column sums");
}
