/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Softmax cross-entropy and the mean-square loss. Forward reads the logits once: a running maximum
 * and sum of exponentials per thread, merged over the block in a fixed order, and the place of the
 * largest logit with them. Backward may overwrite the logits, so that the (N,V) array exists once.
 * Numbers: float per thread, double from the row's sum on; losses of rows are added in double, in
 * an order that follows from N alone.
 *
 *     rows      grid min(N, 1024) · block 256 · 4 bytes and ~12 flops per logit
 *     loss      grid 1 · block 256
 *     backward  grid (N, ceil(V/1024)) · block 256 · 4 + 4 bytes (8 + 4 adding), ~10 flops
 */
#include "engine/kernels/cuda/map_internal.h"

#include <math.h>

namespace {

enum { WARPS = CRL_CUDA_THREADS / CRL_CUDA_WARP, TILE = CRL_CUDA_THREADS * CRL_CUDA_VECTOR };
enum { ROW_BLOCKS = 1024, TALLIES = 4 }; /* sum, weight, correct, rows */

struct Rows {
    const float *logits;
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
__device__ Peak thread_peak(const float *x, int64_t v, bool vector) {
    Peak peak = {-INFINITY, 0.0f, (int32_t)(threadIdx.x * CRL_CUDA_VECTOR)};
    for (int64_t i = threadIdx.x * CRL_CUDA_VECTOR; i < v; i += TILE) {
        float value[CRL_CUDA_VECTOR];
        float largest = peak.largest;
        crl_cuda_load(x, i, v, vector, value);
#pragma unroll
        for (int k = 0; k < CRL_CUDA_VECTOR; k++) {
            if (i + k < v && value[k] > largest) {
                largest = value[k];
                peak.place = (int32_t)(i + k);
            }
        }
        peak.sum *= below(peak.largest, largest);
        peak.largest = largest;
#pragma unroll
        for (int k = 0; k < CRL_CUDA_VECTOR; k++)
            peak.sum += i + k < v ? below(value[k], largest) : 0.0f;
    }
    return peak;
}

/* The row's peak, on every thread. */
__device__ Peak block_peak(const float *x, int64_t v, bool vector) {
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
    for (int w = 1; w < WARPS; w++)
        all = merged(all, part[w]);
    return all;
}

__global__ void __launch_bounds__(CRL_CUDA_THREADS)
    rows_kernel(Rows rows, float *lse, double *partial, crl_cuda_refusal *refusal) {
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
        const float *const x = rows.logits + i * rows.v;
        const Peak peak = block_peak(x, rows.v, rows.vector);
        if (threadIdx.x == 0) {
            const float value = (float)((double)peak.largest + log((double)peak.sum));
            const double weight = (double)rows.weight(i);
            lse[i] = value;
            tally[0] += weight * ((double)value - (double)x[target]);
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

__global__ void __launch_bounds__(CRL_CUDA_THREADS)
    backward_kernel(Rows rows, const float *lse, float scale, float *dlogits, bool accumulate) {
    const int64_t i = blockIdx.x, v = rows.v;
    const int64_t j = ((int64_t)blockIdx.y * CRL_CUDA_THREADS + threadIdx.x) * CRL_CUDA_VECTOR;
    const bool counts = rows.counts(i);
    if (j >= v || (!counts && accumulate))
        return;
    float value[CRL_CUDA_VECTOR] = {0}, before[CRL_CUDA_VECTOR] = {0};
    if (accumulate)
        crl_cuda_load(dlogits + i * v, j, v, rows.vector, before);
    if (counts) {
        const int32_t target = rows.targets[i];
        /* Forward has refused such a target; here it must not reach past the table. */
        const float weight = rows.is_class(target) ? scale * rows.weight(i) : NAN;
        const float shift = lse[i];
        crl_cuda_load(rows.logits + i * v, j, v, rows.vector, value);
#pragma unroll
        for (int k = 0; k < CRL_CUDA_VECTOR; k++) {
            /* p - 1 where p is near 1 loses what p itself still has: expm1 keeps it. */
            const float x = value[k] - shift;
            const float g = weight * (j + k == target ? expm1f(x) : expf(x));
            value[k] = accumulate ? before[k] + g : g;
        }
    }
    crl_cuda_store(dlogits + i * v, j, v, rows.vector, value);
}

Rows rows_of(const crl_cross_entropy_config *config, const float *logits, const int32_t *targets,
             const float *row_weight, int64_t valid_rows, const float *dlogits) {
    const int64_t n = config->rows;
    return {logits,
            targets,
            row_weight,
            config->label_weight,
            n,
            crl_cuda_min(valid_rows, n),
            config->classes,
            config->ignore_index,
            crl_cuda_aligned(config->classes, logits, dlogits, nullptr)};
}

crl_status cross_entropy_forward(crl_stream *stream, const crl_cross_entropy_config *config,
                                 const void *logits_, const int32_t *targets,
                                 const float *row_weight, int64_t valid_rows, float *lse,
                                 crl_loss *loss) {
    const float *const logits = static_cast<const float *>(logits_);
    const Rows rows = rows_of(config, logits, targets, row_weight, valid_rows, nullptr);
    const int blocks = (int)crl_cuda_min(rows.n, ROW_BLOCKS);
    if (blocks > 0)
        CRL_LAUNCH(rows_kernel, (unsigned)blocks, CRL_CUDA_THREADS, 0, stream->handle, rows, lse,
                   stream->partials, &stream->refusals->target);
    CRL_LAUNCH(loss_kernel, 1, CRL_CUDA_THREADS, 0, stream->handle, stream->partials, blocks, loss);
    return crl_cuda_launched("cross_entropy forward");
}

crl_status cross_entropy_backward(crl_stream *stream, const crl_cross_entropy_config *config,
                                  const void *logits_, const int32_t *targets,
                                  const float *row_weight, int64_t valid_rows, const float *lse,
                                  float scale, void *dlogits_, bool accumulate) {
    const float *const logits = static_cast<const float *>(logits_);
    float *const dlogits = static_cast<float *>(dlogits_);
    const Rows rows = rows_of(config, logits, targets, row_weight, valid_rows, dlogits);
    if (rows.n == 0)
        return CRL_STATUS_OK;
    const dim3 grid(crl_cuda_grid(rows.n, CRL_CUDA_GRID_X),
                    crl_cuda_grid(crl_cuda_ceil_div(rows.v, TILE), CRL_CUDA_GRID_Y));
    CRL_LAUNCH(backward_kernel, grid, CRL_CUDA_THREADS, 0, stream->handle, rows, lse, scale,
               dlogits, accumulate);
    return crl_cuda_launched("cross_entropy backward");
}

crl_status mse_forward(crl_stream *stream, const void *x_, const float *target, int64_t n,
                       crl_loss *loss) {
    const float *const x = static_cast<const float *>(x_);
    return crl_cuda_squares(stream, x, target, n, nullptr, loss);
}

struct MseSlope { /* x, target, dx before */
    enum { kIn = 3, kOut = 1 };
    float slope;
    bool accumulate;
    __device__ void operator()(const float *x, float *y) const {
        const float g = slope * (x[0] - x[1]);
        y[0] = accumulate ? x[2] + g : g;
    }
};

crl_status mse_backward(crl_stream *stream, const void *x_, const float *target, int64_t valid,
                        int64_t n, float scale, void *dx_, bool accumulate) {
    const float *const x = static_cast<const float *>(x_);
    float *const dx = static_cast<float *>(dx_);
    valid = crl_cuda_min(valid, n);
    CRL_TRY(crl_cuda_map(stream, "mse backward", MseSlope{2 * scale, accumulate},
                         {{dx}, {x, target, accumulate ? dx : nullptr}}, valid));
    if (!accumulate && valid < n)
        CRL_CUDA_TRY(
            "mse backward",
            cudaMemsetAsync(dx + valid, 0, (size_t)(n - valid) * sizeof *dx, stream->handle));
    return CRL_STATUS_OK;
}

} // namespace

extern "C" const crl_cross_entropy_ops crl_cross_entropy_cuda = {
    cross_entropy_forward,
    cross_entropy_backward,
    mse_forward,
    mse_backward,
};
