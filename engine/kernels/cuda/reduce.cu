/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Reductions whose order depends on the sizes alone. The sum of squares follows the CPU's order
 * addition for addition (64 running sums in a block of 4,096 elements, halved five times and once
 * more; block sums in order), and the square of a float is exact in double: a gradient's norm has
 * the same bits on both devices.
 *
 *     squares  grid ceil(n / 65536) · block 256: 16 threads per block of elements, no shared memory
 *     total    grid 1 · block 256: one thread adds, the others fetch
 *     bytes 4 per element (8 with a target) · flops 2 in double (3)
 */
#include "engine/kernels/cuda/columns_internal.h"

namespace {

enum {
    SUMS = 64,                       /* running sums of a block of elements */
    TEAM = SUMS / CRL_CUDA_VECTOR,   /* threads that hold them */
    TEAMS = CRL_CUDA_THREADS / TEAM, /* in a block of threads */
    FETCH = 1024                     /* block sums fetched at a time */
};

/* Adds the squares of elements i..i+3 of a block of n to this thread's four sums. */
__device__ void add_squares(const float *x, const float *target, int64_t i, int64_t n, bool vector,
                            double sum[CRL_CUDA_VECTOR]) {
    float a[CRL_CUDA_VECTOR], b[CRL_CUDA_VECTOR] = {0};
    crl_cuda_load(x, i, n, vector, a);
    if (target != nullptr)
        crl_cuda_load(target, i, n, vector, b);
#pragma unroll
    for (int k = 0; k < CRL_CUDA_VECTOR; k++) {
        const double d = (double)a[k] - (double)b[k];
        sum[k] += d * d;
    }
}

/* The team's 64 sums, halved until one is left on its first thread: l + 32, l + 16, ... l + 1. */
__device__ double team_total(double sum[CRL_CUDA_VECTOR]) {
#pragma unroll
    for (int d = TEAM / 2; d > 0; d /= 2) {
#pragma unroll
        for (int k = 0; k < CRL_CUDA_VECTOR; k++)
            sum[k] += __shfl_down_sync(~0u, sum[k], d, TEAM);
    }
    return (sum[0] + sum[2]) + (sum[1] + sum[3]);
}

__global__ void __launch_bounds__(CRL_CUDA_THREADS)
    squares_kernel(const float *x, const float *target, int64_t n, bool vector, double *partial) {
    const int64_t block = (int64_t)blockIdx.x * TEAMS + threadIdx.x / TEAM;
    const int64_t first = block * CRL_REDUCE_BLOCK;
    const int64_t size = first < n ? crl_cuda_min(CRL_REDUCE_BLOCK, n - first) : 0;
    const int64_t whole = size / SUMS * SUMS;
    const int64_t lane = threadIdx.x % TEAM * CRL_CUDA_VECTOR;
    const float *const a = x + first, *const b = target == nullptr ? nullptr : target + first;
    double sum[CRL_CUDA_VECTOR] = {0};
    for (int64_t i = lane; i < whole; i += SUMS)
        add_squares(a, b, i, whole, vector, sum);
    double total = team_total(sum);
    /* what is left of the last block makes sums of its own */
    double rest[CRL_CUDA_VECTOR] = {0};
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
    return crl_eltwise_cuda.copy(stream, x, y, n, true);
}

crl_status reduce_sum_squares(crl_stream *stream, const float *x, int64_t n, double *out) {
    return crl_cuda_squares(stream, x, nullptr, n, out, nullptr);
}

struct Column {
    enum { kSums = 1 };
    const float *x;
    int64_t c;
    __device__ void operator()(int64_t row, int64_t column, float *sum) const {
        sum[0] += x[row * c + column];
    }
};

crl_status reduce_column_sum(crl_stream *stream, const void *x_, float *y, int64_t n, int64_t c,
                             bool accumulate, void *scratch) {
    const float *const x = static_cast<const float *>(x_);
    return crl_cuda_columns(stream, Column{x, c}, n, c, y, nullptr, accumulate, scratch);
}

size_t reduce_column_sum_scratch_bytes(int64_t n, int64_t c) {
    return crl_cuda_columns_bytes(Column::kSums, n, c);
}

} // namespace

crl_status crl_cuda_squares(crl_stream *stream, const float *x, const float *target, int64_t n,
                            double *sum, crl_loss *loss) {
    const int64_t most = (int64_t)(CRL_CUDA_PARTIALS - 1) * CRL_REDUCE_BLOCK;
    double *const total = loss == nullptr ? sum : stream->partials + CRL_CUDA_PARTIALS - 1;
    const bool vector = crl_cuda_aligned(CRL_CUDA_VECTOR, x, target, nullptr);
    for (int64_t begin = 0; begin == 0 || begin < n; begin += most) {
        const int64_t size = crl_cuda_min(most, n - begin);
        const int64_t blocks = crl_cuda_ceil_div(size, CRL_REDUCE_BLOCK);
        if (blocks > 0)
            CRL_LAUNCH(
                squares_kernel, crl_cuda_grid(crl_cuda_ceil_div(blocks, TEAMS), CRL_CUDA_GRID_X),
                CRL_CUDA_THREADS, 0, stream->handle, x + begin,
                target == nullptr ? nullptr : target + begin, size, vector, stream->partials);
        CRL_LAUNCH(total_kernel, 1, CRL_CUDA_THREADS, 0, stream->handle, stream->partials, blocks,
                   begin == 0, total, begin + most < n ? nullptr : loss, (double)n);
        CRL_TRY(crl_cuda_launched("sum of squares"));
    }
    return CRL_STATUS_OK;
}

extern "C" const crl_reduce_ops crl_reduce_cuda = {
    reduce_add,
    reduce_sum_squares,
    reduce_column_sum,
    reduce_column_sum_scratch_bytes,
};
