/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Reductions whose order depends on the sizes alone. The sum of squares follows the CPU's order
 * addition for addition (64 running sums in a block of 4,096 elements, halved five times and once
 * more; block sums in order), and the square of a float is exact in double: a gradient's norm has
 * the same bits on both devices.
 *
 *     squares  grid ceil(n / 65536) · block 256: 16 threads per block of elements, no shared memory
 *              (16 bits: ceil(n / 131072), 8 threads)
 *     total    grid 1 · block 256: one thread adds, the others fetch
 *     bytes 4 per element (an element and 4 with a target) · flops 2 in double (3)
 */
#include "engine/kernels/cuda/columns_internal.h"

namespace {

enum {
    SUMS = 64,   /* running sums of a block of elements */
    FETCH = 1024 /* block sums fetched at a time */
};

/* Threads that hold the running sums of a block of elements, a group of elements each. */
template <typename T> constexpr int team = SUMS / crl_cuda_width<T>;

/* Adds the squares of elements i..i+V-1 of a block of n to this thread's V sums. */
template <typename T, int V>
__device__ void add_squares(const T *x, const float *target, int64_t i, int64_t n, bool vector,
                            double (&sum)[V]) {
    float a[V], b[V] = {0};
    crl_cuda_load(x, i, n, vector, a);
    if (target != nullptr)
        crl_cuda_load(target, i, n, vector, b);
#pragma unroll
    for (int k = 0; k < V; k++) {
        const double d = (double)a[k] - (double)b[k];
        sum[k] += d * d;
    }
}

/* The team's 64 sums, halved until one is left on its first thread: l + 32, l + 16, ... l + 1. */
template <int V> __device__ double team_total(double (&sum)[V]) {
#pragma unroll
    for (int d = SUMS / V / 2; d > 0; d /= 2) {
#pragma unroll
        for (int k = 0; k < V; k++)
            sum[k] += __shfl_down_sync(~0u, sum[k], d, SUMS / V);
    }
#pragma unroll
    for (int d = V / 2; d > 0; d /= 2) {
#pragma unroll
        for (int k = 0; k < d; k++)
            sum[k] += sum[k + d];
    }
    return sum[0];
}

template <typename T>
__global__ void __launch_bounds__(CRL_CUDA_THREADS)
    squares_kernel(const T *x, const float *target, int64_t n, bool vector, double *partial) {
    constexpr int V = crl_cuda_width<T>, TEAM = team<T>;
    const int64_t block = (int64_t)blockIdx.x * (CRL_CUDA_THREADS / TEAM) + threadIdx.x / TEAM;
    const int64_t first = block * CRL_REDUCE_BLOCK;
    const int64_t size = first < n ? crl_cuda_min(CRL_REDUCE_BLOCK, n - first) : 0;
    const int64_t whole = size / SUMS * SUMS;
    const int64_t lane = threadIdx.x % TEAM * V;
    const T *const a = x + first;
    const float *const b = target == nullptr ? nullptr : target + first;
    double sum[V] = {0};
    for (int64_t i = lane; i < whole; i += SUMS)
        add_squares(a, b, i, whole, vector, sum);
    double total = team_total(sum);
    /* what is left of the last block makes sums of its own */
    double rest[V] = {0};
    if (whole < size)
        add_squares(a, b, whole + lane, size, vector, rest);
    total += team_total(rest);
    if (lane == 0 && size > 0)
        partial[block] = total;
}

/* *total = (first ? 0 : *total) + the partial sums, in order; it is added to *loss, if that is not
 * NULL, as the loss of n elements. */
__global__ void __launch_bounds__(CRL_CUDA_THREADS)
    total_kernel(const double *partial, int64_t count, bool first, double *total, crl_loss *loss,
                 double n) {
    CRL_SHARED(double, fetched, FETCH);
    double sum = first ? 0 : *total;
    for (int64_t begin = 0; begin < count; begin += FETCH) {
        const int size = (int)crl_cuda_min(FETCH, count - begin);
        __syncthreads();
        for (int i = (int)threadIdx.x; i < size; i += CRL_CUDA_THREADS)
            fetched[i] = partial[begin + i];
        __syncthreads();
        if (threadIdx.x == 0) {
            for (int i = 0; i < size; i++)
                sum += fetched[i];
        }
    }
    if (threadIdx.x != 0)
        return;
    *total = sum;
    if (loss != nullptr) {
        loss->sum += sum;
        loss->weight += n;
        loss->rows += n;
    }
}

crl_status reduce_add(crl_stream *stream, float *y, const float *x, int64_t n) {
    return crl_eltwise_cuda_f32.copy(stream, x, y, n, true);
}

crl_status reduce_sum_squares(crl_stream *stream, const float *x, int64_t n, double *out) {
    return crl_cuda_squares<float>(stream, x, nullptr, n, out, nullptr);
}

template <typename T> struct Column {
    enum { kSums = 1, kWidth = crl_cuda_width<T> };
    const T *x;
    __device__ void operator()(int64_t row, int64_t column, int64_t c, bool vector,
                               float (&sum)[1][kWidth]) const {
        float value[kWidth];
        crl_cuda_load(x + row * c, column, c, vector, value);
#pragma unroll
        for (int k = 0; k < kWidth; k++)
            sum[0][k] += value[k];
    }
};

template <typename T>
crl_status reduce_column_sum(crl_stream *stream, const void *x_, float *y, int64_t n, int64_t c,
                             bool accumulate, void *scratch) {
    const T *const x = static_cast<const T *>(x_);
    return crl_cuda_columns(stream, Column<T>{x}, crl_cuda_aligned<crl_cuda_width<T>>(c, x), n, c,
                            y, nullptr, accumulate, scratch);
}

size_t reduce_column_sum_scratch_bytes(int64_t n, int64_t c) {
    return crl_cuda_columns_bytes(1, n, c);
}

template <typename T>
constexpr crl_reduce_ops ops = {
    reduce_add,
    reduce_sum_squares,
    reduce_column_sum<T>,
    reduce_column_sum_scratch_bytes,
};

} // namespace

template <typename T>
crl_status crl_cuda_squares(crl_stream *stream, const T *x, const float *target, int64_t n,
                            double *sum, crl_loss *loss) {
    const int64_t most = (int64_t)(CRL_CUDA_PARTIALS - 1) * CRL_REDUCE_BLOCK;
    double *const total = loss == nullptr ? sum : stream->partials + CRL_CUDA_PARTIALS - 1;
    const bool vector = crl_cuda_aligned<crl_cuda_width<T>>(SUMS, x) &&
                        crl_cuda_aligned<crl_cuda_width<T>>(SUMS, target);
    for (int64_t begin = 0; begin == 0 || begin < n; begin += most) {
        const int64_t size = crl_cuda_min(most, n - begin);
        const int64_t blocks = crl_cuda_ceil_div(size, CRL_REDUCE_BLOCK);
        if (blocks > 0) {
            const int64_t grid = crl_cuda_ceil_div(blocks, CRL_CUDA_THREADS / team<T>);
            CRL_LAUNCH(squares_kernel<T>, crl_cuda_grid(grid, CRL_CUDA_GRID_X), CRL_CUDA_THREADS, 0,
                       stream->handle, x + begin, target == nullptr ? nullptr : target + begin,
                       size, vector, stream->partials);
        }
        CRL_LAUNCH(total_kernel, 1, CRL_CUDA_THREADS, 0, stream->handle, stream->partials, blocks,
                   begin == 0, total, begin + most < n ? nullptr : loss, (double)n);
        CRL_TRY(crl_cuda_launched("sum of squares"));
    }
    return CRL_STATUS_OK;
}

#define INSTANCE(T)                                                                                \
    template crl_status crl_cuda_squares<T>(crl_stream *, const T *, const float *, int64_t,       \
                                            double *, crl_loss *)
INSTANCE(float);
INSTANCE(__nv_bfloat16);
INSTANCE(__half);

extern "C" {
const crl_reduce_ops crl_reduce_cuda_f32 = ops<float>;
const crl_reduce_ops crl_reduce_cuda_bf16 = ops<__nv_bfloat16>;
const crl_reduce_ops crl_reduce_cuda_f16 = ops<__half>;
}
