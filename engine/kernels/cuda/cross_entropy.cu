/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Softmax cross-entropy and the mean-square loss. Forward reads the logits once: a running maximum
 * and sum of exponentials per thread, merged over the block in a fixed order, and the place of the
 * largest logit with them. Backward may overwrite the logits, so that the (N,V) array exists once.
 * Numbers: float per thread, double from the row's sum on; losses of rows are added in double, in
 * an order that follows from N alone.
 *
 *     rows      grid min(N, 1024) · block up to 256 · one read and ~12 flops per logit
 *     loss      grid 1 · block 256
 *     backward  grid (N, ceil(V/(256 width))) · block up to 256 · 1 read + 1 written (2 + 1
 *               adding) per logit, ~10 flops
 */
#include "engine/kernels/cuda/map_internal.h"

#include <math.h>

namespace {

enum { WARPS = CRL_CUDA_THREADS / CRL_CUDA_WARP };
enum { ROW_BLOCKS = 1024, TALLIES = 4 }; /* sum, weight, correct, rows */

template <typename T> struct Rows {
    const T *logits;
    const int32_t *targets;
    const float *row_weight, *label_weight; /* NULL: 1 */
    int64_t n, valid, v;
    int32_t ignore;
    bool vector;

    __device__ bool counts(int64_t row) const { return row < valid && targets[row] != ignore; }
    __device__ bool is_class(int32_t target) const { return target >= 0 && target < v; }
    __device__ float weight(int64_t row) const {
        const float own = row_weight == nullptr ? 1.0f : row_weight[row];
        return label_weight == nullptr ? own : own * label_weight[targets[row]];
    }
};

/* Of some logits: the largest, where it is first, and the sum of e^(x - largest). */
struct Peak {
    float largest, sum;
    int32_t place;
};

/* e^(x - largest), 1 at the largest even where it is infinite. */
__device__ float below(float x, float largest) {
    return x == largest ? 1.0f : expf(x - largest);
}

__device__ Peak merged(const Peak &a, const Peak &b) {
    Peak both = a.largest > b.largest ? a : b;
    if (a.largest == b.largest)
        both.place = a.place < b.place ? a.place : b.place;
    both.sum = a.sum * below(a.largest, both.largest) + b.sum * below(b.largest, both.largest);
    return both;
}

/* NaN is never the largest, but makes the sum NaN. */
template <typename T> __device__ Peak thread_peak(const T *x, int64_t v, bool vector) {
    constexpr int V = crl_cuda_width<T>;
    Peak peak = {-INFINITY, 0.0f, (int32_t)(threadIdx.x * V)};
    for (int64_t i = threadIdx.x * V; i < v; i += blockDim.x * V) {
        float value[V];
        float largest = peak.largest;
        crl_cuda_load(x, i, v, vector, value);
#pragma unroll
        for (int k = 0; k < V; k++) {
            if (i + k < v && value[k] > largest) {
                largest = value[k];
                peak.place = (int32_t)(i + k);
            }
        }
        peak.sum *= below(peak.largest, largest);
        peak.largest = largest;
#pragma unroll
        for (int k = 0; k < V; k++)
            peak.sum += i + k < v ? below(value[k], largest) : 0.0f;
    }
    return peak;
}

/* The row's peak, on every thread. */
template <typename T> __device__ Peak block_peak(const T *x, int64_t v, bool vector) {
    CRL_SHARED(Peak, part, WARPS);
    Peak peak = thread_peak(x, v, vector);
#pragma unroll
    for (int d = CRL_CUDA_WARP / 2; d > 0; d /= 2) {
        const Peak other = {__shfl_xor_sync(~0u, peak.largest, d),
                            __shfl_xor_sync(~0u, peak.sum, d), __shfl_xor_sync(~0u, peak.place, d)};
        const bool first = (threadIdx.x & d) == 0; /* both lanes merge in the same order */
        peak = first ? merged(peak, other) : merged(other, peak);
    }
    __syncthreads(); /* whoever still reads the parts of the row before */
    if (threadIdx.x % CRL_CUDA_WARP == 0)
        part[threadIdx.x / CRL_CUDA_WARP] = peak;
    __syncthreads();
    Peak all = part[0];
    const int warps = (int)blockDim.x / CRL_CUDA_WARP;
    for (int w = 1; w < warps; w++)
        all = merged(all, part[w]);
    return all;
}

template <typename T>
__global__ void __launch_bounds__(CRL_CUDA_THREADS)
    rows_kernel(Rows<T> rows, float *lse, double *partial, crl_cuda_refusal *refusal) {
    double tally[TALLIES] = {0};
    for (int64_t i = blockIdx.x; i < rows.n; i += gridDim.x) {
        const bool counts = rows.counts(i);
        const int32_t target = counts ? rows.targets[i] : 0;
        if (!counts || !rows.is_class(target)) {
            if (threadIdx.x == 0) {
                lse[i] = 0.0f;
                if (counts)
                    crl_cuda_refuse(refusal, i, target, rows.v, 1);
            }
            continue;
        }
        const T *const x = rows.logits + i * rows.v;
        const Peak peak = block_peak(x, rows.v, rows.vector);
        if (threadIdx.x == 0) {
            const float value = (float)((double)peak.largest + log((double)peak.sum));
            const double weight = (double)rows.weight(i);
            lse[i] = value;
            tally[0] += weight * ((double)value - (double)crl_cuda_float(x[target]));
            tally[1] += weight;
            tally[2] += peak.place == target && peak.sum == peak.sum ? 1 : 0;
            tally[3] += 1;
        }
    }
    if (threadIdx.x == 0) {
        for (int k = 0; k < TALLIES; k++)
            partial[blockIdx.x * TALLIES + k] = tally[k];
    }
}

__global__ void __launch_bounds__(CRL_CUDA_THREADS)
    loss_kernel(const double *partial, int count, crl_loss *loss) {
    double tally[TALLIES] = {0};
    for (int i = (int)threadIdx.x; i < count; i += CRL_CUDA_THREADS) {
        for (int k = 0; k < TALLIES; k++)
            tally[k] += partial[i * TALLIES + k];
    }
    for (int k = 0; k < TALLIES; k++)
        tally[k] = crl_cuda_block_sum(tally[k]);
    if (threadIdx.x == 0)
        *loss = {loss->sum + tally[0], loss->weight + tally[1], loss->correct + tally[2],
                 loss->rows + tally[3]};
}

template <typename T>
__global__ void __launch_bounds__(CRL_CUDA_THREADS)
    backward_kernel(Rows<T> rows, const float *lse, float scale, T *dlogits, bool accumulate) {
    constexpr int V = crl_cuda_width<T>;
    const int64_t i = blockIdx.x, v = rows.v;
    const int64_t j = ((int64_t)blockIdx.y * blockDim.x + threadIdx.x) * V;
    const bool counts = rows.counts(i);
    if (j >= v || (!counts && accumulate))
        return;
    float value[V] = {0}, before[V] = {0};
    if (accumulate)
        crl_cuda_load(dlogits + i * v, j, v, rows.vector, before);
    if (counts) {
        const int32_t target = rows.targets[i];
        /* Forward has refused such a target; here it must not reach past the table. */
        const float weight = rows.is_class(target) ? scale * rows.weight(i) : NAN;
        const float shift = lse[i];
        crl_cuda_load(rows.logits + i * v, j, v, rows.vector, value);
#pragma unroll
        for (int k = 0; k < V; k++) {
            /* p - 1 where p is near 1 loses what p itself still has: expm1 keeps it. */
            const float x = value[k] - shift;
            const float g = weight * (j + k == target ? expm1f(x) : expf(x));
            value[k] = accumulate ? before[k] + g : g;
        }
    }
    crl_cuda_store(dlogits + i * v, j, v, rows.vector, value);
}

template <typename T>
Rows<T> rows_of(const crl_cross_entropy_config *config, const void *logits_, const int32_t *targets,
                const float *row_weight, int64_t valid_rows, const T *dlogits) {
    const int64_t n = config->rows, v = config->classes;
    const T *const logits = static_cast<const T *>(logits_);
    return {logits,
            targets,
            row_weight,
            config->label_weight,
            n,
            crl_cuda_min(valid_rows, n),
            v,
            config->ignore_index,
            crl_cuda_aligned<crl_cuda_width<T>>(v, logits, dlogits)};
}

template <typename T>
crl_status cross_entropy_forward(crl_stream *stream, const crl_cross_entropy_config *config,
                                 const void *logits, const int32_t *targets,
                                 const float *row_weight, int64_t valid_rows, float *lse,
                                 crl_loss *loss) {
    const T *const unwritten = nullptr;
    const Rows<T> rows = rows_of(config, logits, targets, row_weight, valid_rows, unwritten);
    const int blocks = (int)crl_cuda_min(rows.n, ROW_BLOCKS);
    if (blocks > 0)
        CRL_LAUNCH(rows_kernel<T>, (unsigned)blocks,
                   crl_cuda_row_threads(rows.v, crl_cuda_width<T>), 0, stream->handle, rows, lse,
                   stream->partials, &stream->refusals->target);
    CRL_LAUNCH(loss_kernel, 1, CRL_CUDA_THREADS, 0, stream->handle, stream->partials, blocks, loss);
    return crl_cuda_launched("cross_entropy forward");
}

template <typename T>
crl_status cross_entropy_backward(crl_stream *stream, const crl_cross_entropy_config *config,
                                  const void *logits, const int32_t *targets,
                                  const float *row_weight, int64_t valid_rows, const float *lse,
                                  float scale, void *dlogits_, bool accumulate) {
    T *const dlogits = static_cast<T *>(dlogits_);
    const Rows<T> rows = rows_of<T>(config, logits, targets, row_weight, valid_rows, dlogits);
    if (rows.n * rows.v == 0)
        return CRL_STATUS_OK;
    const unsigned threads = crl_cuda_row_threads(rows.v, crl_cuda_width<T>);
    const int64_t tiles = crl_cuda_ceil_div(rows.v, (int64_t)threads * crl_cuda_width<T>);
    const dim3 grid(crl_cuda_grid(rows.n, CRL_CUDA_GRID_X), crl_cuda_grid(tiles, CRL_CUDA_GRID_Y));
    CRL_LAUNCH(backward_kernel<T>, grid, threads, 0, stream->handle, rows, lse, scale, dlogits,
               accumulate);
    return crl_cuda_launched("cross_entropy backward");
}

template <typename T>
crl_status mse_forward(crl_stream *stream, const void *x, const float *target, int64_t n,
                       crl_loss *loss) {
    return crl_cuda_squares(stream, static_cast<const T *>(x), target, n, nullptr, loss);
}

template <typename T> struct MseSlope {
    using In = crl_cuda_arrays<const T, const float, const T>; /* x, target, dx before */
    enum { kWidth = crl_cuda_width<T> };
    float slope;
    bool accumulate;
    __device__ void operator()(const float *x, float *y) const {
        const float g = slope * (x[0] - x[1]);
        y[0] = accumulate ? x[2] + g : g;
    }
};

template <typename T>
crl_status mse_backward(crl_stream *stream, const void *x, const float *target, int64_t valid,
                        int64_t n, float scale, void *dx_, bool accumulate) {
    T *const dx = static_cast<T *>(dx_);
    valid = crl_cuda_min(valid, n);
    CRL_TRY(crl_cuda_map(stream, "mse backward", MseSlope<T>{2 * scale, accumulate}, valid,
                         {static_cast<const T *>(x), target, accumulate ? dx : nullptr}, dx));
    if (!accumulate && valid < n)
        CRL_CUDA_TRY(
            "mse backward",
            cudaMemsetAsync(dx + valid, 0, (size_t)(n - valid) * sizeof *dx, stream->handle));
    return CRL_STATUS_OK;
}

template <typename T>
constexpr crl_cross_entropy_ops ops = {
    cross_entropy_forward<T>,
    cross_entropy_backward<T>,
    mse_forward<T>,
    mse_backward<T>,
};

} // namespace

extern "C" {
const crl_cross_entropy_ops crl_cross_entropy_cuda_f32 = ops<float>;
const crl_cross_entropy_ops crl_cross_entropy_cuda_bf16 = ops<__nv_bfloat16>;
const crl_cross_entropy_ops crl_cross_entropy_cuda_f16 = ops<__half>;
}
