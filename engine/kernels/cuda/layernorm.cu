/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Layer normalisation [ba16], a block per row; the row is read again from cache, not from memory.
 * Numbers: float sums of every 1,024th group of four per thread, then over the block in fixed
 * order; weight gradients through columns_internal.h. A row's bits do not depend on the others.
 *
 *     forward          grid N · block 256 · 8 bytes and 8 flops per element
 *     backward_input   grid N · block 256 · 12 bytes (16 adding), 16 flops
 *     backward_weight  columns_internal.h · 8 bytes, 5 flops
 */
#include "engine/kernels/cuda/columns_internal.h"

namespace {

/* Calls f(channel, value of a, value of b) for this thread's channels of a row, in order. */
template <typename F>
__device__ void each_channel(const float *a, const float *b, int64_t c, bool vector, F f) {
    for (int64_t j = threadIdx.x * CRL_CUDA_VECTOR; j < c;
         j += CRL_CUDA_THREADS * CRL_CUDA_VECTOR) {
        float x[CRL_CUDA_VECTOR], y[CRL_CUDA_VECTOR] = {0};
        crl_cuda_load(a, j, c, vector, x);
        if (b != nullptr)
            crl_cuda_load(b, j, c, vector, y);
#pragma unroll
        for (int k = 0; k < CRL_CUDA_VECTOR; k++) {
            if (j + k < c)
                f(j + k, x[k], y[k]);
        }
    }
}

__global__ void __launch_bounds__(CRL_CUDA_THREADS)
    forward_kernel(const float *x, const float *w, const float *b, double epsilon, float *y,
                   float *mean, float *rstd, int64_t c, bool vector) {
    const int64_t i = blockIdx.x;
    const float *const row = x + i * c;
    float *const out = y + i * c;
    float sum = 0, squares = 0;
    each_channel(row, nullptr, c, vector, [&](int64_t, float v, float) { sum += v; });
    const float m = crl_cuda_block_sum(sum) / (float)c;
    each_channel(row, nullptr, c, vector,
                 [&](int64_t, float v, float) { squares += (v - m) * (v - m); });
    const float variance = crl_cuda_block_sum(squares) / (float)c;
    const float r = (float)(1.0 / sqrt((double)variance + epsilon));
    for (int64_t j = threadIdx.x * CRL_CUDA_VECTOR; j < c;
         j += CRL_CUDA_THREADS * CRL_CUDA_VECTOR) {
        float v[CRL_CUDA_VECTOR], scale[CRL_CUDA_VECTOR], shift[CRL_CUDA_VECTOR];
        crl_cuda_load(row, j, c, vector, v);
        crl_cuda_load(w, j, c, vector, scale);
        crl_cuda_load(b, j, c, vector, shift);
#pragma unroll
        for (int k = 0; k < CRL_CUDA_VECTOR; k++)
            v[k] = (v[k] - m) * r * scale[k] + shift[k];
        crl_cuda_store(out, j, c, vector, v);
    }
    if (threadIdx.x == 0) {
        mean[i] = m;
        rstd[i] = r;
    }
}

__global__ void __launch_bounds__(CRL_CUDA_THREADS)
    backward_input_kernel(const float *x, const float *dy, const float *w, const float *mean,
                          const float *rstd, float *dx, int64_t c, bool vector, bool accumulate) {
    const int64_t i = blockIdx.x;
    const float m = mean[i], r = rstd[i];
    float *const out = dx + i * c;
    float sum_g = 0, sum_gx = 0;
    each_channel(x + i * c, dy + i * c, c, vector, [&](int64_t j, float v, float dv) {
        const float g = dv * w[j];
        sum_g += g;
        sum_gx += g * ((v - m) * r);
    });
    const float mean_g = crl_cuda_block_sum(sum_g) / (float)c;
    const float mean_gx = crl_cuda_block_sum(sum_gx) / (float)c;
    for (int64_t j = threadIdx.x * CRL_CUDA_VECTOR; j < c;
         j += CRL_CUDA_THREADS * CRL_CUDA_VECTOR) {
        float v[CRL_CUDA_VECTOR], dv[CRL_CUDA_VECTOR], scale[CRL_CUDA_VECTOR];
        float before[CRL_CUDA_VECTOR] = {0};
        crl_cuda_load(x + i * c, j, c, vector, v);
        crl_cuda_load(dy + i * c, j, c, vector, dv);
        crl_cuda_load(w, j, c, vector, scale);
        if (accumulate)
            crl_cuda_load(out, j, c, vector, before);
#pragma unroll
        for (int k = 0; k < CRL_CUDA_VECTOR; k++) {
            const float xhat = (v[k] - m) * r;
            const float g = r * (dv[k] * scale[k] - mean_g - xhat * mean_gx);
            v[k] = accumulate ? before[k] + g : g;
        }
        crl_cuda_store(out, j, c, vector, v);
    }
}

crl_status layernorm_forward(crl_stream *stream, const void *x_, const float *w, const float *b,
                             double epsilon, void *y_, float *mean, float *rstd, int64_t n,
                             int64_t c) {
    const float *const x = static_cast<const float *>(x_);
    float *const y = static_cast<float *>(y_);
    if (n == 0)
        return CRL_STATUS_OK;
    const bool vector = crl_cuda_aligned(c, x, w, b) && crl_cuda_aligned(c, y, nullptr, nullptr);
    CRL_LAUNCH(forward_kernel, crl_cuda_grid(n, CRL_CUDA_GRID_X), CRL_CUDA_THREADS, 0,
               stream->handle, x, w, b, epsilon, y, mean, rstd, c, vector);
    return crl_cuda_launched("layernorm forward");
}

crl_status layernorm_backward_input(crl_stream *stream, const void *x_, const void *dy_,
                                    const float *w, const float *mean, const float *rstd, void *dx_,
                                    int64_t n, int64_t c, bool accumulate) {
    const float *const x = static_cast<const float *>(x_);
    const float *const dy = static_cast<const float *>(dy_);
    float *const dx = static_cast<float *>(dx_);
    if (n == 0)
        return CRL_STATUS_OK;
    const bool vector = crl_cuda_aligned(c, x, dy, w) && crl_cuda_aligned(c, dx, nullptr, nullptr);
    CRL_LAUNCH(backward_input_kernel, crl_cuda_grid(n, CRL_CUDA_GRID_X), CRL_CUDA_THREADS, 0,
               stream->handle, x, dy, w, mean, rstd, dx, c, vector, accumulate);
    return crl_cuda_launched("layernorm backward_input");
}

struct WeightGradient {
    enum { kSums = 2 };
    const float *x, *dy, *mean, *rstd;
    int64_t c;
    __device__ void operator()(int64_t row, int64_t column, float *sum) const {
        const float dv = dy[row * c + column];
        sum[0] += dv * ((x[row * c + column] - mean[row]) * rstd[row]);
        sum[1] += dv;
    }
};

crl_status layernorm_backward_weight(crl_stream *stream, const void *x_, const void *dy_,
                                     const float *mean, const float *rstd, float *dw, float *db,
                                     int64_t n, int64_t c, bool accumulate, void *scratch) {
    const float *const x = static_cast<const float *>(x_);
    const float *const dy = static_cast<const float *>(dy_);
    return crl_cuda_columns(stream, WeightGradient{x, dy, mean, rstd, c}, n, c, dw, db, accumulate,
                            scratch);
}

size_t layernorm_scratch_bytes(int64_t n, int64_t c) {
    return crl_cuda_columns_bytes(WeightGradient::kSums, n, c);
}

} // namespace

extern "C" const crl_layernorm_ops crl_layernorm_cuda = {
    layernorm_forward,
    layernorm_backward_input,
    layernorm_backward_weight,
    nullptr, /* add_forward */
    nullptr, /* rms */
    nullptr,
    nullptr,
    layernorm_scratch_bytes,
};
