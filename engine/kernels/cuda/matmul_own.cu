/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Products that cuBLASLt refuses (a row or a column alone, in some types), and sums of a matrix's
 * rows. For any size, in the order of k, in float; not meant to be fast: no tensor cores.
 *
 *     product   grid ceil(N/32)·ceil(M/32) · block (32,8), a thread has 4 rows of a column
 *     row sums  grid M · block 256
 *     bytes: A and B once per 32 columns and rows, y once (twice adding) · flops 2 M N K
 */
#include "engine/kernels/cuda/device_internal.h"
#include "engine/kernels/cuda/matmul_internal.h"

namespace {

enum { TILE = 32, ROWS = 8, EACH = TILE / ROWS };

/* A stored matrix: element (row, column) of what is multiplied. */
template <typename T> struct Matrix {
    const T *x;
    int64_t rows, columns;
    bool transposed;
    __device__ float at(int64_t row, int64_t column) const {
        if (row >= rows || column >= columns)
            return 0;
        return crl_cuda_float(x[transposed ? column * rows + row : row * columns + column]);
    }
};

/* tile[i][j] = matrix(row + i, column + j); neighbours in memory are read by neighbouring lanes. */
template <typename T, typename S>
__device__ void fetch(S &tile, const Matrix<T> &matrix, int64_t row, int64_t column) {
#pragma unroll
    for (int e = 0; e < EACH; e++) {
        const int x = (int)threadIdx.x, y = (int)threadIdx.y + e * ROWS;
        const int i = matrix.transposed ? x : y, j = matrix.transposed ? y : x;
        tile[i * (TILE + 1) + j] = matrix.at(row + i, column + j);
    }
}

template <typename T, typename Y>
__global__ void __launch_bounds__(TILE *ROWS)
    product_kernel(Matrix<T> a, Matrix<T> b, const T *bias, Y *y, bool accumulate) {
    CRL_SHARED(float, at, TILE *(TILE + 1));
    CRL_SHARED(float, bt, TILE *(TILE + 1));
    const unsigned tiles = (unsigned)((b.columns + TILE - 1) / TILE);
    const int64_t row = (int64_t)(blockIdx.x / tiles) * TILE;
    const int64_t column = (int64_t)(blockIdx.x % tiles) * TILE;
    float sum[EACH] = {0};
    for (int64_t k = 0; k < a.columns; k += TILE) {
        __syncthreads(); /* whoever still reads the tiles before */
        fetch(at, a, row, k);
        fetch(bt, b, k, column);
        __syncthreads();
        for (int l = 0; l < TILE; l++) {
            const float v = bt[l * (TILE + 1) + threadIdx.x];
#pragma unroll
            for (int e = 0; e < EACH; e++)
                sum[e] += at[((int)threadIdx.y + e * ROWS) * (TILE + 1) + l] * v;
        }
    }
    const int64_t j = column + threadIdx.x;
#pragma unroll
    for (int e = 0; e < EACH; e++) {
        const int64_t i = row + threadIdx.y + e * ROWS;
        if (i >= a.rows || j >= b.columns)
            continue;
        Y *const at_y = y + i * b.columns + j;
        if (bias != nullptr)
            sum[e] += crl_cuda_float(bias[j]);
        crl_cuda_round(accumulate ? crl_cuda_float(*at_y) + sum[e] : sum[e], at_y);
    }
}

template <typename T>
__global__ void __launch_bounds__(CRL_CUDA_THREADS)
    row_sums_kernel(const T *a, int64_t k, float *sums, bool accumulate) {
    const int64_t row = blockIdx.x;
    float sum = 0;
    for (int64_t j = threadIdx.x; j < k; j += CRL_CUDA_THREADS)
        sum += crl_cuda_float(a[row * k + j]);
    const double total = crl_cuda_block_sum((double)sum);
    if (threadIdx.x == 0)
        sums[row] = accumulate ? sums[row] + (float)total : (float)total;
}

template <typename T, typename Y>
crl_status product(crl_stream *stream, const crl_matmul_config *config,
                   const crl_matmul_call *call) {
    const Matrix<T> a = {static_cast<const T *>(call->a), config->m, config->k,
                         config->a_transposed};
    const Matrix<T> b = {static_cast<const T *>(call->b), config->k, config->n,
                         config->b_transposed};
    const int64_t tiles = crl_cuda_ceil_div(config->n, TILE) * crl_cuda_ceil_div(config->m, TILE);
    const T *const bias = config->bias ? static_cast<const T *>(call->bias) : nullptr;
    CRL_LAUNCH((product_kernel<T, Y>), crl_cuda_grid(tiles, CRL_CUDA_GRID_X), dim3(TILE, ROWS), 0,
               stream->handle, a, b, bias, static_cast<Y *>(call->y), call->accumulate);
    return crl_cuda_launched("product");
}

template <typename T>
crl_status product_of(crl_stream *stream, const crl_matmul_config *config,
                      const crl_matmul_call *call) {
    return config->y_is_f32 ? product<T, float>(stream, config, call)
                            : product<T, T>(stream, config, call);
}

template <typename T>
crl_status row_sums(crl_stream *stream, const void *a, int64_t m, int64_t k, float *sums,
                    bool accumulate) {
    CRL_LAUNCH(row_sums_kernel<T>, crl_cuda_grid(m, CRL_CUDA_GRID_X), CRL_CUDA_THREADS, 0,
               stream->handle, static_cast<const T *>(a), k, sums, accumulate);
    return crl_cuda_launched("row sums");
}

} // namespace

extern "C" crl_status crl_cuda_own_product(crl_stream *stream, const crl_matmul_config *config,
                                           crl_dtype dtype, const crl_matmul_call *call) {
    return dtype == CRL_DTYPE_BF16  ? product_of<__nv_bfloat16>(stream, config, call)
           : dtype == CRL_DTYPE_F16 ? product_of<__half>(stream, config, call)
                                    : product_of<float>(stream, config, call);
}

extern "C" crl_status crl_cuda_own_row_sums(crl_stream *stream, crl_dtype dtype, const void *a,
                                            int64_t m, int64_t k, float *sums, bool accumulate) {
    return dtype == CRL_DTYPE_BF16  ? row_sums<__nv_bfloat16>(stream, a, m, k, sums, accumulate)
           : dtype == CRL_DTYPE_F16 ? row_sums<__half>(stream, a, m, k, sums, accumulate)
                                    : row_sums<float>(stream, a, m, k, sums, accumulate);
}
