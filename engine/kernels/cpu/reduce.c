/* SPDX-License-Identifier: Apache-2.0 */
/* Reductions whose order depends on the sizes alone. Refuses to let a sum follow the threads:
 * blocks are fixed, and their sums are added in order by one thread. */
#include "engine/kernels/cpu/cpu_internal.h"
#include "engine/kernels/cpu/reduce_internal.h"

#include <string.h>

static crl_status reduce_add(crl_stream *stream, float *y, const float *x, int64_t n) {
    return crl_eltwise_cpu.copy(stream, x, y, n, true);
}

enum { SUMS = 64 }; /* running sums of a block: enough to hide the latency of an addition */

static double total_of(double *sum) {
    for (int width = SUMS / 2; width > 0; width /= 2) {
        for (int l = 0; l < width; l++)
            sum[l] += sum[l + width];
    }
    return sum[0];
}

/* Sum of squares of n elements, a multiple of SUMS. The running sums stand in an array, so that
 * their order is the same at every alignment. */
CRL_VECTORISED static double squares(const float *x, int64_t n) {
    double sum[SUMS] __attribute__((aligned(64))) = {0};
    for (int64_t i = 0; i < n; i += SUMS) {
#pragma omp simd
        for (int l = 0; l < SUMS; l++)
            sum[l] += (double)x[i + l] * (double)x[i + l];
    }
    return total_of(sum);
}

CRL_VECTORISED static double differences(const float *x, const float *target, int64_t n) {
    double sum[SUMS] __attribute__((aligned(64))) = {0};
    for (int64_t i = 0; i < n; i += SUMS) {
#pragma omp simd
        for (int l = 0; l < SUMS; l++) {
            const double d = (double)x[i + l] - (double)target[i + l];
            sum[l] += d * d;
        }
    }
    return total_of(sum);
}

static double block_squares(const float *x, const float *target, int64_t n) {
    const int64_t whole = n / SUMS * SUMS;
    double sum = 0;
    if (whole > 0)
        sum = target == NULL ? squares(x, whole) : differences(x, target, whole);
    if (whole < n) {
        float rest[2][SUMS] = {{0}};
        const size_t bytes = (size_t)(n - whole) * sizeof(float);
        memcpy(rest[0], x + whole, bytes);
        if (target != NULL)
            memcpy(rest[1], target + whole, bytes);
        sum += differences(rest[0], rest[1], SUMS);
    }
    return sum;
}

double crl_sum_squares(const float *x, const float *target, int64_t n) {
    enum { BLOCKS = 512 }; /* whose sums wait on the stack */
    double total = 0;
    for (int64_t begin = 0; begin < n; begin += (int64_t)BLOCKS * CRL_REDUCE_BLOCK) {
        double sum[BLOCKS];
        const int64_t left = n - begin;
        const int64_t blocks = crl_min(BLOCKS, crl_ceil_div(left, CRL_REDUCE_BLOCK));
#pragma omp parallel for schedule(static) if (left >= CRL_SERIAL_WORK)
        for (int64_t i = 0; i < blocks; i++) {
            const int64_t first = begin + i * CRL_REDUCE_BLOCK;
            sum[i] = block_squares(x + first, target == NULL ? NULL : target + first,
                                   crl_min(CRL_REDUCE_BLOCK, n - first));
        }
        for (int64_t i = 0; i < blocks; i++)
            total += sum[i];
    }
    return total;
}

static crl_status reduce_sum_squares(crl_stream *stream, const float *x, int64_t n, double *out) {
    (void)stream;
    *out = crl_sum_squares(x, NULL, n);
    return CRL_STATUS_OK;
}

/* sum[j] += the column sums of `rows` rows of `columns` floats; float within, double between. */
CRL_VECTORISED static void sum_rows(const float *x, int64_t c, int64_t rows, int64_t columns,
                                    double *sum) {
    float part[CRL_COLUMNS] __attribute__((aligned(64))) = {0};
    for (int64_t i = 0; i < rows; i++) {
        const float *row = x + i * c;
#pragma omp simd
        for (int64_t j = 0; j < columns; j++)
            part[j] += row[j];
    }
#pragma omp simd
    for (int64_t j = 0; j < columns; j++)
        sum[j] += (double)part[j];
}

static void sum_columns(const float *x, float *y, int64_t n, int64_t c, int64_t columns,
                        bool accumulate) {
    double sum[CRL_COLUMNS] __attribute__((aligned(64))) = {0};
    for (int64_t i = 0; i < n; i += CRL_ROWS)
        sum_rows(x + i * c, c, crl_min(CRL_ROWS, n - i), columns, sum);
    for (int64_t j = 0; j < columns; j++)
        y[j] = accumulate ? y[j] + (float)sum[j] : (float)sum[j];
}

static crl_status reduce_column_sum(crl_stream *stream, const void *x_, float *y, int64_t n,
                                    int64_t c, bool accumulate, void *scratch) {
    const float *x = x_;
    (void)stream;
    (void)scratch;
    const int64_t blocks = crl_ceil_div(c, CRL_COLUMNS);
#pragma omp parallel for schedule(static) if (n * c >= CRL_SERIAL_WORK && blocks > 1)
    for (int64_t i = 0; i < blocks; i++) {
        const int64_t first = i * CRL_COLUMNS;
        sum_columns(x + first, y + first, n, c, crl_min(CRL_COLUMNS, c - first), accumulate);
    }
    return CRL_STATUS_OK;
}

static size_t reduce_column_sum_scratch_bytes(int64_t n, int64_t c) {
    (void)n;
    (void)c;
    return 0;
}

const crl_reduce_ops crl_reduce_cpu = {
    .add = reduce_add,
    .sum_squares = reduce_sum_squares,
    .column_sum = reduce_column_sum,
    .column_sum_scratch_bytes = reduce_column_sum_scratch_bytes,
};
