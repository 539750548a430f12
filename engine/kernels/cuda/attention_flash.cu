/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Attention by tiles of 64 queries × 64 keys with a running softmax [dao22], in float whatever the
 * type (attention_tile_internal.h). Rows are what a block adds up for, columns what it walks over:
 *
 *              rows      walks over              adds up          grid · block 256
 *     forward  queries   keys                    y                (B·H·T/64, D/128)
 *     queries  queries   keys                    dq               same
 *     keys     keys      queries (from its own   dk, dv           same
 *                        on when causal)
 *     delta    (B,T,H), a warp each              sum of y·dy      B·T·H/8
 *
 * Heads wider than 128 channels share their outputs among several blocks that make the same scores.
 * Tiles above the causal diagonal are not visited; the longest walks are started first. Orders of
 * addition follow from sizes alone; nothing is added to by two blocks. Refuses tensor cores: those
 * are cuDNN's (attention_cudnn.c).
 *
 *     flops (of pairs not masked away)   forward 4·D, backward 14·D: scores and dp are made twice
 *     bytes                              q, k, v, dy are read T/64 times, mostly from L2
 *     shared bytes                       34,816; 0 for delta
 */
#include "engine/kernels/cuda/attention_internal.h"
#include "engine/kernels/cuda/attention_tile_internal.h"

namespace {

/* The running softmax of a thread's rows. */
struct Softmax {
    float largest[OWN], sum[OWN]; /* of scaled scores; of e^(score - largest) of its own columns */
};

/* s becomes e^(score - largest), zero where masked; what was summed up so far, `y`, is scaled to
 * the new largest. Every row that is there sees a key of every tile that is visited. */
template <int P>
__device__ void softmax_tile(const Shape &shape, int query0, int key0, Softmax *softmax,
                             float (&s)[OWN][OWN], float (&y)[P][OWN][OWN]) {
#pragma unroll
    for (int i = 0; i < OWN; i++) {
        /* Rows that are not there see what the last one sees. */
        const int query = least(query0 + thread_row() + i * SIDE, shape.t - 1);
        float largest = -INFINITY;
#pragma unroll
        for (int j = 0; j < OWN; j++) {
            const int key = key0 + thread_column() + j * SIDE;
            s[i][j] = visible(shape, query, key) ? s[i][j] * shape.scale : -INFINITY;
            largest = fmaxf(largest, s[i][j]);
        }
        largest = fmaxf(softmax->largest[i], row_max(largest));
        const float factor = expf(softmax->largest[i] - largest);
        softmax->largest[i] = largest;
        softmax->sum[i] *= factor;
#pragma unroll
        for (int j = 0; j < OWN; j++) {
            s[i][j] = expf(s[i][j] - largest);
            softmax->sum[i] += s[i][j];
        }
#pragma unroll
        for (int k = 0; k < P * OWN; k++)
            y[k / OWN][i][k % OWN] *= factor;
    }
}

template <typename K>
__global__ void __launch_bounds__(CRL_CUDA_THREADS)
    forward_kernel(Shape shape, const typename K::T *qkv, typename K::T *y, float *lse) {
    constexpr int P = K::kPanels;
    CRL_SHARED(Quad, staged, STAGED);
    CRL_SHARED(Quad, weight, TILE * WEIGHT_ROW);
    const Place at = place_of(shape, true);
    const int first = (int)blockIdx.y * P * PANEL;
    const int end = shape.causal ? at.tile + 1 : shape.tiles;
    const auto q = packed_rows(shape, at, qkv, at.tile, 0);
    float s[OWN][OWN], out[P][OWN][OWN] = {{{0}}};
    Softmax softmax;
#pragma unroll
    for (int i = 0; i < OWN; i++) {
        softmax.largest[i] = -INFINITY;
        softmax.sum[i] = 0;
    }
    for (int j = 0; j < end; j++) {
        scores(staged, q, packed_rows(shape, at, qkv, j, 1), s);
        softmax_tile(shape, at.tile * TILE, j * TILE, &softmax, s, out);
        put_weights(weight, s);
        add_weighted(staged, weight, packed_rows(shape, at, qkv, j, 2), first, out);
    }
#pragma unroll
    for (int i = 0; i < OWN; i++) {
        const float sum = row_sum(softmax.sum[i]), factor = 1.0f / sum;
        const int row = thread_row() + i * SIDE;
#pragma unroll
        for (int k = 0; k < P * OWN; k++)
            out[k / OWN][i][k % OWN] *= factor;
        if (thread_column() == 0 && blockIdx.y == 0 && row < q.n)
            lse[(int64_t)at.head * shape.t + at.tile * TILE + row] =
                (float)((double)softmax.largest[i] + log((double)sum));
    }
    store(shape, y + output_at(shape, at, at.tile), shape.c, q.n, first, out, false);
}

/* delta (B,H,T) = sum over D of y·dy */
template <typename T>
__global__ void __launch_bounds__(CRL_CUDA_THREADS)
    delta_kernel(Shape shape, const T *y, const T *dy, float *delta) {
    const int lane = (int)threadIdx.x % CRL_CUDA_WARP;
    const int64_t i = ((int64_t)blockIdx.x * CRL_CUDA_THREADS + threadIdx.x) / CRL_CUDA_WARP;
    if (i >= (int64_t)shape.all_heads * shape.t)
        return;
    const int64_t head = i % shape.heads, row = i / shape.heads;
    float sum = 0;
    for (int64_t k = lane; k < shape.d; k += CRL_CUDA_WARP)
        sum = fmaf(crl_cuda_float(y[i * shape.d + k]), crl_cuda_float(dy[i * shape.d + k]), sum);
    sum = crl_cuda_warp_sum(sum);
    if (lane == 0)
        delta[(row / shape.t * shape.heads + head) * shape.t + row % shape.t] = sum;
}

/* p = e^(scale s - lse) and ds = p (dp - delta) scale of one pair, zero where masked */
__device__ void gradient(const Shape &shape, bool seen, float lse, float delta, float *p,
                         float *ds) {
    const float weight = seen ? expf(fmaf(*p, shape.scale, -lse)) : 0.0f;
    *ds = seen ? weight * (*ds - delta) * shape.scale : 0.0f;
    *p = weight;
}

template <typename K>
__global__ void __launch_bounds__(CRL_CUDA_THREADS)
    keys_kernel(Shape shape, const typename K::T *qkv, const float *lse, const float *delta,
                const typename K::T *dy, typename K::T *dqkv, bool accumulate) {
    constexpr int P = K::kPanels;
    CRL_SHARED(Quad, staged, STAGED);
    CRL_SHARED(Quad, weight, TILE * WEIGHT_ROW);
    const Place at = place_of(shape, false);
    const int first = (int)blockIdx.y * P * PANEL;
    const auto k = packed_rows(shape, at, qkv, at.tile, 1);
    const auto v = packed_rows(shape, at, qkv, at.tile, 2);
    float p[OWN][OWN], ds[OWN][OWN], dk[P][OWN][OWN] = {{{0}}}, dv[P][OWN][OWN] = {{{0}}};
    for (int i = shape.causal ? at.tile : 0; i < shape.tiles; i++) {
        const auto q = packed_rows(shape, at, qkv, i, 0);
        const auto dy_rows = output_rows(shape, at, dy, i);
        scores(staged, k, q, p);
        scores(staged, v, dy_rows, ds);
#pragma unroll
        for (int c = 0; c < OWN; c++) {
            const int query = i * TILE + thread_column() + c * SIDE;
            const int64_t place = (int64_t)at.head * shape.t + least(query, shape.t - 1);
            const float query_lse = lse[place], query_delta = delta[place];
#pragma unroll
            for (int r = 0; r < OWN; r++) {
                const int key = at.tile * TILE + thread_row() + r * SIDE;
                gradient(shape, visible(shape, query, key), query_lse, query_delta, &p[r][c],
                         &ds[r][c]);
            }
        }
        put_weights(weight, p);
        add_weighted(staged, weight, dy_rows, first, dv);
        __syncwarp(); /* a row of weights is read by the warp that writes it */
        put_weights(weight, ds);
        add_weighted(staged, weight, q, first, dk);
    }
    store(shape, dqkv + packed_at(shape, at, at.tile, 1), 3 * shape.c, k.n, first, dk, accumulate);
    store(shape, dqkv + packed_at(shape, at, at.tile, 2), 3 * shape.c, k.n, first, dv, accumulate);
}

template <typename K>
__global__ void __launch_bounds__(CRL_CUDA_THREADS)
    queries_kernel(Shape shape, const typename K::T *qkv, const float *lse, const float *delta,
                   const typename K::T *dy, typename K::T *dqkv, bool accumulate) {
    constexpr int P = K::kPanels;
    CRL_SHARED(Quad, staged, STAGED);
    CRL_SHARED(Quad, weight, TILE * WEIGHT_ROW);
    const Place at = place_of(shape, true);
    const int first = (int)blockIdx.y * P * PANEL;
    const int end = shape.causal ? at.tile + 1 : shape.tiles;
    const auto q = packed_rows(shape, at, qkv, at.tile, 0);
    const auto dy_rows = output_rows(shape, at, dy, at.tile);
    float p[OWN][OWN], ds[OWN][OWN], dq[P][OWN][OWN] = {{{0}}};
    float row_lse[OWN], row_delta[OWN];
#pragma unroll
    for (int r = 0; r < OWN; r++) {
        const int query = at.tile * TILE + thread_row() + r * SIDE;
        const int64_t place = (int64_t)at.head * shape.t + least(query, shape.t - 1);
        row_lse[r] = lse[place];
        row_delta[r] = delta[place];
    }
    for (int j = 0; j < end; j++) {
        const auto k = packed_rows(shape, at, qkv, j, 1);
        scores(staged, q, k, p);
        scores(staged, dy_rows, packed_rows(shape, at, qkv, j, 2), ds);
#pragma unroll
        for (int i = 0; i < OWN * OWN; i++) {
            const int r = i / OWN, c = i % OWN;
            const int query = at.tile * TILE + thread_row() + r * SIDE;
            const int key = j * TILE + thread_column() + c * SIDE;
            gradient(shape, visible(shape, query, key), row_lse[r], row_delta[r], &p[r][c],
                     &ds[r][c]);
        }
        put_weights(weight, ds);
        add_weighted(staged, weight, k, first, dq);
    }
    store(shape, dqkv + packed_at(shape, at, at.tile, 0), 3 * shape.c, q.n, first, dq, accumulate);
}

template <typename... T> Shape shape_of(const crl_attention_shape *from, const T *...arrays) {
    return {(int)from->t,
            (int)from->heads,
            (int)from->d,
            (int)(from->heads * from->d),
            (int)crl_cuda_ceil_div(from->t, TILE),
            (int)(from->b * from->heads),
            from->scale,
            from->causal,
            crl_cuda_aligned<4>(from->d, arrays...)};
}

template <typename K> dim3 grid_of(const Shape &shape) {
    return dim3(crl_cuda_grid((int64_t)shape.all_heads * shape.tiles, CRL_CUDA_GRID_X),
                crl_cuda_grid(crl_cuda_ceil_div(shape.d, K::kPanels * PANEL), CRL_CUDA_GRID_Y));
}

template <typename K>
crl_status forward(const crl_attention_shape *from, crl_stream *stream, const void *qkv_, void *y_,
                   float *lse) {
    using T = typename K::T;
    const T *const qkv = static_cast<const T *>(qkv_);
    T *const y = static_cast<T *>(y_);
    const Shape shape = shape_of(from, qkv, y);
    CRL_LAUNCH(forward_kernel<K>, grid_of<K>(shape), CRL_CUDA_THREADS, 0, stream->handle, shape,
               qkv, y, lse);
    return crl_cuda_launched("attention forward");
}

template <typename K>
crl_status backward(const crl_attention_shape *from, crl_stream *stream, const void *qkv_,
                    const void *y_, const float *lse, const void *dy_, void *dqkv_, bool accumulate,
                    void *scratch) {
    using T = typename K::T;
    const T *const qkv = static_cast<const T *>(qkv_), *const y = static_cast<const T *>(y_);
    const T *const dy = static_cast<const T *>(dy_);
    T *const dqkv = static_cast<T *>(dqkv_);
    float *const delta = static_cast<float *>(scratch);
    const Shape shape = shape_of(from, qkv, dy, dqkv);
    const int64_t warps = CRL_CUDA_THREADS / CRL_CUDA_WARP;
    const int64_t blocks = crl_cuda_ceil_div((int64_t)shape.all_heads * shape.t, warps);
    CRL_LAUNCH(delta_kernel<T>, crl_cuda_grid(blocks, CRL_CUDA_GRID_X), CRL_CUDA_THREADS, 0,
               stream->handle, shape, y, dy, delta);
    CRL_LAUNCH(keys_kernel<K>, grid_of<K>(shape), CRL_CUDA_THREADS, 0, stream->handle, shape, qkv,
               lse, delta, dy, dqkv, accumulate);
    CRL_LAUNCH(queries_kernel<K>, grid_of<K>(shape), CRL_CUDA_THREADS, 0, stream->handle, shape,
               qkv, lse, delta, dy, dqkv, accumulate);
    return crl_cuda_launched("attention backward");
}

/* Calls f(Narrow or Wide of the element's type). */
template <typename F> crl_status with_kind(const crl_attention_shape *shape, F f) {
    const bool wide = shape->d > PANEL;
    switch (shape->dtype) {
    case CRL_DTYPE_BF16:
        return wide ? f(Wide<__nv_bfloat16>()) : f(Narrow<__nv_bfloat16>());
    case CRL_DTYPE_F16:
        return wide ? f(Wide<__half>()) : f(Narrow<__half>());
    default:
        return wide ? f(Wide<float>()) : f(Narrow<float>());
    }
}

} // namespace

extern "C" size_t crl_attention_flash_backward_bytes(const crl_attention_shape *shape) {
    return (size_t)(shape->b * shape->heads * shape->t) * sizeof(float);
}

extern "C" crl_status crl_attention_flash_forward(const crl_attention_shape *shape,
                                                  crl_stream *stream, const void *qkv, void *y,
                                                  float *lse) {
    return with_kind(
        shape, [&](auto kind) { return forward<decltype(kind)>(shape, stream, qkv, y, lse); });
}

extern "C" crl_status crl_attention_flash_backward(const crl_attention_shape *shape,
                                                   crl_stream *stream, const void *qkv,
                                                   const void *y, const float *lse, const void *dy,
                                                   void *dqkv, bool accumulate, void *scratch) {
    return with_kind(shape, [&](auto kind) {
        return backward<decltype(kind)>(shape, stream, qkv, y, lse, dy, dqkv, accumulate, scratch);
    });
}
