/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Token and position embedding; forward and backward have the CPU's bits. The gradient of the token
 * table needs no atomic addition: the block of a token's first place adds the rows of all its
 * places, in the order of (b,t), and the blocks of later places do nothing. Refuses a token outside
 * the vocabulary by a row of NaN, and says so when the stream is waited for.
 *
 *     forward         grid N = B·T · block up to 256 · per element of y 2 reads, 1 written, 1 flop
 *                     (1, 1 and 0 without positions)
 *     token backward  grid (N, ceil(C/(256 width))) · block 256 · an element of dy, 8 bytes per row
 *                     touched, 1 flop; blocks look through all tokens: N²/2 reads from cache; a
 *                     token that fills the batch makes one block long
 *     position        grid (T, ceil(C/(256 width))) · block 256 · an element of dy, 1 flop
 */
#include "engine/kernels/cuda/device_internal.h"
#include "engine/kernels/cuda/stream_internal.h"

namespace {

enum { WARPS = CRL_CUDA_THREADS / CRL_CUDA_WARP };

struct Table {
    int64_t v, c;
    bool vector;
};

template <typename T>
__global__ void __launch_bounds__(CRL_CUDA_THREADS)
    forward_kernel(const int32_t *tokens, const T *token, const T *position, T *y, int64_t t,
                   Table table, crl_cuda_refusal *refusal) {
    constexpr int V = crl_cuda_width<T>;
    const int64_t i = blockIdx.x, c = table.c;
    const int32_t index = tokens[i];
    const bool good = index >= 0 && index < table.v;
    if (!good && threadIdx.x == 0)
        crl_cuda_refuse(refusal, i, index, table.v, t);
    for (int64_t j = threadIdx.x * V; j < c; j += blockDim.x * V) {
        float value[V], shift[V];
        if (good)
            crl_cuda_load(token + index * c, j, c, table.vector, value);
        if (position != nullptr)
            crl_cuda_load(position + i % t * c, j, c, table.vector, shift);
#pragma unroll
        for (int k = 0; k < V; k++) {
            if (!good)
                value[k] = __int_as_float(0x7fc00000); /* NaN */
            else if (position != nullptr)
                value[k] += shift[k];
        }
        crl_cuda_store(y + i * c, j, c, table.vector, value);
    }
}

/* Is this token at an earlier place too? The same answer on every thread. */
__device__ bool is_earlier(const int32_t *tokens, int64_t i) {
    for (int64_t first = 0; first < i; first += blockDim.x) {
        const int64_t j = first + threadIdx.x;
        if (__syncthreads_or(j < i && tokens[j] == tokens[i]))
            return true;
    }
    return false;
}

template <typename T, int V>
__device__ void add_row(const T *row, int64_t j, const Table &table, float (&sum)[V]) {
    float value[V];
    crl_cuda_load(row, j, table.c, table.vector, value);
#pragma unroll
    for (int k = 0; k < V; k++)
        sum[k] += value[k];
}

template <typename T>
__global__ void __launch_bounds__(CRL_CUDA_THREADS)
    token_backward_kernel(const int32_t *tokens, const T *dy, float *dtoken, int64_t n,
                          Table table) {
    constexpr int V = crl_cuda_width<T>;
    CRL_SHARED(unsigned, match, WARPS); /* one bit per place */
    const int64_t i = blockIdx.x, c = table.c, threads = blockDim.x;
    const int32_t index = tokens[i];
    if (index < 0 || index >= table.v || is_earlier(tokens, i))
        return;
    const int64_t j = ((int64_t)blockIdx.y * threads + threadIdx.x) * V;
    float sum[V];
    crl_cuda_load(dtoken + index * c, j, c, table.vector, sum);
    for (int64_t first = i / threads * threads; first < n; first += threads) {
        const int64_t place = first + threadIdx.x;
        const unsigned bits = __ballot_sync(~0u, place < n && tokens[place] == index);
        __syncthreads(); /* the bits before have been read */
        if (threadIdx.x % CRL_CUDA_WARP == 0)
            match[threadIdx.x / CRL_CUDA_WARP] = bits;
        __syncthreads();
        for (int warp = 0; warp < (int)threads / CRL_CUDA_WARP; warp++) {
            for (unsigned left = match[warp]; left != 0; left &= left - 1)
                add_row(dy + (first + warp * CRL_CUDA_WARP + __ffs((int)left) - 1) * c, j, table,
                        sum);
        }
    }
    crl_cuda_store(dtoken + index * c, j, c, table.vector, sum);
}

template <typename T>
__global__ void __launch_bounds__(CRL_CUDA_THREADS)
    position_backward_kernel(const T *dy, float *dposition, int64_t b, int64_t t, Table table) {
    constexpr int V = crl_cuda_width<T>;
    const int64_t i = blockIdx.x, c = table.c;
    const int64_t j = ((int64_t)blockIdx.y * blockDim.x + threadIdx.x) * V;
    float sum[V];
    crl_cuda_load(dposition + i * c, j, c, table.vector, sum);
    for (int64_t s = 0; s < b; s++)
        add_row(dy + (s * t + i) * c, j, table, sum);
    crl_cuda_store(dposition + i * c, j, c, table.vector, sum);
}

template <typename T>
crl_status embedding_forward(crl_stream *stream, const int32_t *tokens, const void *token_,
                             const void *position_, void *y_, int64_t b, int64_t t, int64_t v,
                             int64_t c) {
    constexpr int V = crl_cuda_width<T>;
    const T *const token = static_cast<const T *>(token_);
    const T *const position = static_cast<const T *>(position_);
    T *const y = static_cast<T *>(y_);
    if (b * t * c == 0)
        return CRL_STATUS_OK;
    const Table table = {v, c, crl_cuda_aligned<V>(c, token, position, y)};
    CRL_LAUNCH(forward_kernel<T>, crl_cuda_grid(b * t, CRL_CUDA_GRID_X), crl_cuda_row_threads(c, V),
               0, stream->handle, tokens, token, position, y, t, table, &stream->refusals->token);
    return crl_cuda_launched("embedding forward");
}

crl_status zero(crl_stream *stream, float *y, int64_t n) {
    CRL_CUDA_TRY("embedding backward",
                 cudaMemsetAsync(y, 0, (size_t)n * sizeof *y, stream->handle));
    return CRL_STATUS_OK;
}

template <typename T>
crl_status embedding_backward(crl_stream *stream, const int32_t *tokens, const void *dy_,
                              float *dtoken, float *dposition, int64_t b, int64_t t, int64_t v,
                              int64_t c, int64_t positions, bool accumulate) {
    constexpr int V = crl_cuda_width<T>;
    const T *const dy = static_cast<const T *>(dy_);
    const Table table = {v, c,
                         crl_cuda_aligned<V>(c, dy) && crl_cuda_aligned<V>(c, dtoken, dposition)};
    const bool empty = b * t * c == 0;
    const unsigned threads = CRL_CUDA_THREADS; /* not fewer in narrow rows: all search the tokens */
    const int64_t tiles = crl_cuda_ceil_div(c, (int64_t)threads * V);
    const unsigned grid_y = empty ? 0 : crl_cuda_grid(tiles, CRL_CUDA_GRID_Y);
    if (dtoken != nullptr) {
        if (!accumulate)
            CRL_TRY(zero(stream, dtoken, v * c));
        if (!empty)
            CRL_LAUNCH(token_backward_kernel<T>,
                       dim3(crl_cuda_grid(b * t, CRL_CUDA_GRID_X), grid_y), threads, 0,
                       stream->handle, tokens, dy, dtoken, b * t, table);
    }
    if (dposition != nullptr) {
        if (!accumulate)
            CRL_TRY(zero(stream, dposition, positions * c));
        if (!empty)
            CRL_LAUNCH(position_backward_kernel<T>, dim3(crl_cuda_grid(t, CRL_CUDA_GRID_X), grid_y),
                       threads, 0, stream->handle, dy, dposition, b, t, table);
    }
    return crl_cuda_launched("embedding backward");
}

template <typename T>
constexpr crl_embedding_ops ops = {embedding_forward<T>, embedding_backward<T>};

} // namespace

extern "C" {
const crl_embedding_ops crl_embedding_cuda_f32 = ops<float>;
const crl_embedding_ops crl_embedding_cuda_bf16 = ops<__nv_bfloat16>;
const crl_embedding_ops crl_embedding_cuda_f16 = ops<__half>;
}
