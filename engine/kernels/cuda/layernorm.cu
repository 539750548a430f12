/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Normalisation of rows [ba16], [zhang19], a block per row; the row is read again from cache, not
 * from memory. The root mean square is the same kernels with a mean of 0 and no shift, the residual
 * sum an array more. Numbers: float sums of a thread's groups of `width`, then over the block in
 * fixed order; weight gradients through columns_internal.h. A row's bits do not depend on others.
 *
 *                      arrays of (N,C) read + written    · flops per element
 *     forward          1 + 1, 2 + 2 with a residual sum  · 8, 9; 5 by the mean square
 *     backward_input   2 + 1, 3 + 1 adding               · 16; 11
 *     backward_weight  2, columns_internal.h             · 5; 3
 *     grid N · block up to 256, as many as the row has groups
 */
#include "engine/kernels/cuda/columns_internal.h"

namespace {

/* What forward reads. */
template <typename T> struct Norm {
    const T *x, *residual; /* residual NULL: none */
    const float *w, *b;    /* b NULL: no shift */
    double epsilon;
    int64_t c;
    bool vector;
};

/* Calls f(channel, values) for this thread's groups of a row, in order. */
template <typename T, typename F>
__device__ void each_group(const T *row, int64_t c, bool vector, F f) {
    constexpr int V = crl_cuda_width<T>;
    for (int64_t j = threadIdx.x * V; j < c; j += blockDim.x * V) {
        float x[V];
        crl_cuda_load(row, j, c, vector, x);
        f(j, x);
    }
}

/* sum = x + residual of this thread's groups, which it alone reads again. */
template <typename T> __device__ void add_residual(const Norm<T> &a, int64_t first, T *sum) {
    constexpr int V = crl_cuda_width<T>;
    each_group(a.x + first, a.c, a.vector, [&](int64_t j, float(&x)[V]) {
        float more[V];
        crl_cuda_load(a.residual + first, j, a.c, a.vector, more);
#pragma unroll
        for (int k = 0; k < V; k++)
            x[k] += more[k];
        crl_cuda_store(sum + first, j, a.c, a.vector, x);
    });
}

/* The rows are x, or with a residual their sum, which is stored; mean NULL: it is taken as 0. */
template <typename T>
__global__ void __launch_bounds__(CRL_CUDA_THREADS)
    forward_kernel(Norm<T> a, T *sum_rows, T *y, float *mean, float *rstd) {
    constexpr int V = crl_cuda_width<T>;
    const int64_t i = blockIdx.x, c = a.c, first = i * c;
    if (a.residual != nullptr)
        add_residual(a, first, sum_rows);
    const T *const row = (a.residual != nullptr ? sum_rows : a.x) + first;
    float m = 0;
    if (mean != nullptr) {
        float sum = 0;
        each_group(row, c, a.vector, [&](int64_t j, const float(&v)[V]) {
#pragma unroll
            for (int k = 0; k < V; k++)
                sum += j + k < c ? v[k] : 0.0f;
        });
        m = crl_cuda_block_sum(sum) / (float)c;
    }
    float squares = 0;
    each_group(row, c, a.vector, [&](int64_t j, const float(&v)[V]) {
#pragma unroll
        for (int k = 0; k < V; k++)
            squares += j + k < c ? (v[k] - m) * (v[k] - m) : 0.0f;
    });
    const float variance = crl_cuda_block_sum(squares) / (float)c;
    const float r = (float)(1.0 / sqrt((double)variance + a.epsilon));
    each_group(row, c, a.vector, [&](int64_t j, float(&v)[V]) {
        float scale[V], shift[V] = {0};
        crl_cuda_load(a.w, j, c, a.vector, scale);
        if (a.b != nullptr)
            crl_cuda_load(a.b, j, c, a.vector, shift);
#pragma unroll
        for (int k = 0; k < V; k++)
            v[k] = (v[k] - m) * r * scale[k] + shift[k];
        crl_cuda_store(y + first, j, c, a.vector, v);
    });
    if (threadIdx.x == 0) {
        rstd[i] = r;
        if (mean != nullptr)
            mean[i] = m;
    }
}

/* What backward_input reads; mean NULL: 0, and without a gradient of its own. */
template <typename T> struct Slope {
    const T *x, *dy;
    const float *w, *mean, *rstd;
    int64_t c;
    bool vector, accumulate;
};

template <typename T>
__global__ void __launch_bounds__(CRL_CUDA_THREADS) backward_input_kernel(Slope<T> a, T *gradient) {
    constexpr int V = crl_cuda_width<T>;
    const int64_t i = blockIdx.x, c = a.c;
    const float m = a.mean != nullptr ? a.mean[i] : 0.0f, r = a.rstd[i];
    const T *const x = a.x + i * c;
    T *const dx = gradient + i * c;
    float sum_g = 0, sum_gx = 0;
    each_group(a.dy + i * c, c, a.vector, [&](int64_t j, const float(&dv)[V]) {
        float v[V], scale[V];
        crl_cuda_load(x, j, c, a.vector, v);
        crl_cuda_load(a.w, j, c, a.vector, scale);
#pragma unroll
        for (int k = 0; k < V; k++) {
            const float g = dv[k] * scale[k]; /* 0 behind the end, as dv is */
            sum_g += g;
            sum_gx += g * ((v[k] - m) * r);
        }
    });
    const float mean_g = a.mean != nullptr ? crl_cuda_block_sum(sum_g) / (float)c : 0.0f;
    const float mean_gx = crl_cuda_block_sum(sum_gx) / (float)c;
    each_group(a.dy + i * c, c, a.vector, [&](int64_t j, float(&dv)[V]) {
        float v[V], scale[V], before[V] = {0};
        crl_cuda_load(x, j, c, a.vector, v);
        crl_cuda_load(a.w, j, c, a.vector, scale);
        if (a.accumulate)
            crl_cuda_load(dx, j, c, a.vector, before);
#pragma unroll
        for (int k = 0; k < V; k++) {
            const float xhat = (v[k] - m) * r;
            const float g = r * (dv[k] * scale[k] - mean_g - xhat * mean_gx);
            dv[k] = a.accumulate ? before[k] + g : g;
        }
        crl_cuda_store(dx, j, c, a.vector, dv);
    });
}

template <typename T>
crl_status forward(crl_stream *stream, Norm<T> a, T *sum, T *y, float *mean, float *rstd,
                   int64_t n) {
    constexpr int V = crl_cuda_width<T>;
    if (n * a.c == 0)
        return CRL_STATUS_OK;
    a.vector =
        crl_cuda_aligned<V>(a.c, a.w, a.b) && crl_cuda_aligned<V>(a.c, a.x, a.residual, sum, y);
    CRL_LAUNCH(forward_kernel<T>, crl_cuda_grid(n, CRL_CUDA_GRID_X), crl_cuda_row_threads(a.c, V),
               0, stream->handle, a, sum, y, mean, rstd);
    return crl_cuda_launched("normalisation forward");
}

template <typename T> crl_status backward_input(crl_stream *stream, Slope<T> a, T *dx, int64_t n) {
    constexpr int V = crl_cuda_width<T>;
    if (n * a.c == 0)
        return CRL_STATUS_OK;
    a.vector = crl_cuda_aligned<V>(a.c, a.w) && crl_cuda_aligned<V>(a.c, a.x, a.dy, dx);
    CRL_LAUNCH(backward_input_kernel<T>, crl_cuda_grid(n, CRL_CUDA_GRID_X),
               crl_cuda_row_threads(a.c, V), 0, stream->handle, a, dx);
    return crl_cuda_launched("normalisation backward_input");
}

/* dy·xhat, and with SUMS 2 dy. */
template <typename T, int SUMS> struct WeightGradient {
    enum { kSums = SUMS, kWidth = crl_cuda_width<T> };
    const T *x, *dy;
    const float *mean, *rstd; /* mean NULL: 0 */
    __device__ void operator()(int64_t row, int64_t column, int64_t c, bool vector,
                               float (&sum)[SUMS][kWidth]) const {
        float v[kWidth], dv[kWidth];
        const float m = mean != nullptr ? mean[row] : 0.0f, r = rstd[row];
        crl_cuda_load(x + row * c, column, c, vector, v);
        crl_cuda_load(dy + row * c, column, c, vector, dv);
#pragma unroll
        for (int k = 0; k < kWidth; k++) {
            sum[0][k] += dv[k] * ((v[k] - m) * r);
            if (SUMS == 2)
                sum[SUMS - 1][k] += dv[k];
        }
    }
};

template <typename T>
crl_status layernorm_forward(crl_stream *stream, const void *x, const float *w, const float *b,
                             double epsilon, void *y, float *mean, float *rstd, int64_t n,
                             int64_t c) {
    return forward<T>(stream, {static_cast<const T *>(x), nullptr, w, b, epsilon, c, false},
                      nullptr, static_cast<T *>(y), mean, rstd, n);
}

template <typename T>
crl_status layernorm_add_forward(crl_stream *stream, const void *a, const void *b, void *sum,
                                 const float *w, const float *bias, double epsilon, void *y,
                                 float *mean, float *rstd, int64_t n, int64_t c) {
    return forward<T>(
        stream, {static_cast<const T *>(a), static_cast<const T *>(b), w, bias, epsilon, c, false},
        static_cast<T *>(sum), static_cast<T *>(y), mean, rstd, n);
}

template <typename T>
crl_status layernorm_rms_forward(crl_stream *stream, const void *x, const float *w, double epsilon,
                                 void *y, float *rstd, int64_t n, int64_t c) {
    return layernorm_forward<T>(stream, x, w, nullptr, epsilon, y, nullptr, rstd, n, c);
}

template <typename T>
crl_status layernorm_backward_input(crl_stream *stream, const void *x, const void *dy,
                                    const float *w, const float *mean, const float *rstd, void *dx,
                                    int64_t n, int64_t c, bool accumulate) {
    return backward_input<T>(stream,
                             {static_cast<const T *>(x), static_cast<const T *>(dy), w, mean, rstd,
                              c, false, accumulate},
                             static_cast<T *>(dx), n);
}

template <typename T>
crl_status layernorm_rms_backward_input(crl_stream *stream, const void *x, const void *dy,
                                        const float *w, const float *rstd, void *dx, int64_t n,
                                        int64_t c, bool accumulate) {
    return layernorm_backward_input<T>(stream, x, dy, w, nullptr, rstd, dx, n, c, accumulate);
}

template <typename T>
crl_status layernorm_backward_weight(crl_stream *stream, const void *x_, const void *dy_,
                                     const float *mean, const float *rstd, float *dw, float *db,
                                     int64_t n, int64_t c, bool accumulate, void *scratch) {
    const T *const x = static_cast<const T *>(x_), *const dy = static_cast<const T *>(dy_);
    return crl_cuda_columns(stream, WeightGradient<T, 2>{x, dy, mean, rstd},
                            crl_cuda_aligned<crl_cuda_width<T>>(c, x, dy), n, c, dw, db, accumulate,
                            scratch);
}

template <typename T>
crl_status layernorm_rms_backward_weight(crl_stream *stream, const void *x_, const void *dy_,
                                         const float *rstd, float *dw, int64_t n, int64_t c,
                                         bool accumulate, void *scratch) {
    const T *const x = static_cast<const T *>(x_), *const dy = static_cast<const T *>(dy_);
    return crl_cuda_columns(stream, WeightGradient<T, 1>{x, dy, nullptr, rstd},
                            crl_cuda_aligned<crl_cuda_width<T>>(c, x, dy), n, c, dw, nullptr,
                            accumulate, scratch);
}

size_t layernorm_scratch_bytes(int64_t n, int64_t c) {
    return crl_cuda_columns_bytes(2, n, c);
}

template <typename T>
constexpr crl_layernorm_ops ops = {
    layernorm_forward<T>,
    layernorm_backward_input<T>,
    layernorm_backward_weight<T>,
    layernorm_add_forward<T>,
    layernorm_rms_forward<T>,
    layernorm_rms_backward_input<T>,
    layernorm_rms_backward_weight<T>,
    layernorm_scratch_bytes,
};

} // namespace

extern "C" {
const crl_layernorm_ops crl_layernorm_cuda_f32 = ops<float>;
const crl_layernorm_ops crl_layernorm_cuda_bf16 = ops<__nv_bfloat16>;
const crl_layernorm_ops crl_layernorm_cuda_f16 = ops<__half>;
}
