/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the kernels of attention do with a tile of 64 rows × 64 columns: a block of 16 × 16 threads
 * holds it, 4 × 4 of its elements each: thread (ty,tx) the rows ty+16i and the columns tx+16j. A
 * tile of scores is made from 32 channels at a time, staged in shared memory; what weights are
 * multiplied with comes in 64 channels at a time. All arithmetic is float, products are added by
 * fmaf, channel after channel. For attention_flash.cu alone.
 */
#pragma once

#include <math.h>

#include "engine/kernels/cuda/attention_place_internal.h"

namespace {

/* What shared memory is read and written by: 16 bytes. */
using Quad = crl_cuda_pack<float, OWN>;

/* staged[at..] = WIDTH channels of the rows from `channel` on, ROW quads apart. */
template <int WIDTH, int ROW, typename T, typename S>
__device__ void stage(S staged, int at, const Rows<T> &rows, int channel) {
    constexpr int QUADS = WIDTH / OWN;
#pragma unroll
    for (int k = 0; k < TILE * QUADS / CRL_CUDA_THREADS; k++) {
        const int i = k * CRL_CUDA_THREADS + (int)threadIdx.x, row = i / QUADS, c = i % QUADS;
        Quad quad = {{0}};
        if (row < rows.n)
            crl_cuda_load(rows.x + (int64_t)row * rows.stride, channel + c * OWN, rows.d,
                          rows.vector, quad.x);
        staged[at + row * ROW + c] = quad;
    }
}

/* s[i][j] = sum over channels of a[own row i] · b[own column j] */
template <typename T, typename S>
__device__ void scores(S staged, const Rows<T> &a, const Rows<T> &b, float (&s)[OWN][OWN]) {
#pragma unroll
    for (int i = 0; i < OWN * OWN; i++)
        s[i / OWN][i % OWN] = 0;
    for (int channel = 0; channel < a.d; channel += CHUNK) {
        __syncthreads(); /* whoever still reads what was staged before */
        stage<CHUNK, CHUNK_ROW>(staged, 0, a, channel);
        stage<CHUNK, CHUNK_ROW>(staged, TILE * CHUNK_ROW, b, channel);
        __syncthreads();
        const int width = least(CHUNK, a.d - channel);
        for (int k = 0; k * OWN < width && thread_row() < a.n; k++) {
            Quad x[OWN], y[OWN];
#pragma unroll
            for (int i = 0; i < OWN; i++) {
                x[i] = staged[(thread_row() + i * SIDE) * CHUNK_ROW + k];
                y[i] = staged[(TILE + thread_column() + i * SIDE) * CHUNK_ROW + k];
            }
#pragma unroll
            for (int i = 0; i < OWN * OWN * OWN; i++) {
                const int e = i / (OWN * OWN), r = i / OWN % OWN, c = i % OWN;
                s[r][c] = fmaf(x[r].x[e], y[c].x[e], s[r][c]);
            }
        }
    }
}

/* sum[p][i][e] += over columns of weight[own row i][column] · b[column][channel], where channel =
 * first + 64 p + 4 tx + e. A quad of weights is a thread's: columns k, k+16, k+32, k+48. */
template <int P, typename T, typename S>
__device__ void add_weighted(S staged, S weight, const Rows<T> &b, int first,
                             float (&sum)[P][OWN][OWN]) {
#pragma unroll
    for (int p = 0; p < P; p++) {
        __syncthreads(); /* whoever still reads what was staged before, or writes weights */
        if (first + p * PANEL >= b.d)
            continue;
        stage<PANEL, PANEL_ROW>(staged, 0, b, first + p * PANEL);
        __syncthreads();
        for (int k = 0; k < SIDE && k < b.n; k++) {
            Quad w[OWN], x[OWN];
#pragma unroll
            for (int i = 0; i < OWN; i++) {
                w[i] = weight[(thread_row() + i * SIDE) * WEIGHT_ROW + k];
                x[i] = staged[(k + i * SIDE) * PANEL_ROW + thread_column()];
            }
#pragma unroll
            for (int i = 0; i < OWN * OWN * OWN; i++) {
                const int e = i / (OWN * OWN), r = i / OWN % OWN, c = i % OWN;
                sum[p][r][c] = fmaf(w[r].x[e], x[e].x[c], sum[p][r][c]);
            }
        }
    }
}

template <typename S> __device__ void put_weights(S weight, const float (&w)[OWN][OWN]) {
#pragma unroll
    for (int i = 0; i < OWN; i++) {
        Quad quad;
#pragma unroll
        for (int j = 0; j < OWN; j++)
            quad.x[j] = w[i][j];
        weight[(thread_row() + i * SIDE) * WEIGHT_ROW + thread_column()] = quad;
    }
}

/* x[row][first + 64 p + 4 tx + e] (+)= sum[p][i][e] */
template <int P, typename T>
__device__ void store(const Shape &shape, T *x, int stride, int rows, int first,
                      const float (&sum)[P][OWN][OWN], bool accumulate) {
#pragma unroll
    for (int i = 0; i < P * OWN; i++) {
        const int p = i / OWN, row = thread_row() + i % OWN * SIDE;
        const int channel = first + p * PANEL + thread_column() * OWN;
        if (row >= rows || channel >= shape.d)
            continue;
        float out[OWN] = {0};
        if (accumulate)
            crl_cuda_load(x + (int64_t)row * stride, channel, shape.d, shape.vector, out);
#pragma unroll
        for (int e = 0; e < OWN; e++)
            out[e] = accumulate ? out[e] + sum[p][i % OWN][e] : sum[p][i % OWN][e];
        crl_cuda_store(x + (int64_t)row * stride, channel, shape.d, shape.vector, out);
    }
}

__device__ bool visible(const Shape &shape, int query, int key) {
    return query < shape.t && key < shape.t && (!shape.causal || key <= query);
}

/* Over the 16 threads of a row. */
__device__ float row_max(float x) {
#pragma unroll
    for (int d = SIDE / 2; d > 0; d /= 2)
        x = fmaxf(x, __shfl_xor_sync(~0u, x, d));
    return x;
}
__device__ float row_sum(float x) {
#pragma unroll
    for (int d = SIDE / 2; d > 0; d /= 2)
        x += __shfl_xor_sync(~0u, x, d);
    return x;
}

} // namespace
