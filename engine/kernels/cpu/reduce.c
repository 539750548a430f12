/* SPDX-License-Identifier: Apache-2.0 */
/* Reductions whose order depends on the sizes alone. Refuses to let a sum follow the threads:
 * blocks are fixed, and their sums are added in order by one thread. */
#include "engine/kernels/cpu/cpu_internal.h"
#include "engine/kernels/cpu/narrow_internal.h"
#include "engine/kernels/cpu/reduce_internal.h"

#include <string.h>

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

/* Of one block of CRL_REDUCE_BLOCK; x of `type`. */
static double typed_block(crl_dtype type, const void *x, const float *target, int64_t n) {
    float buffer[CRL_REDUCE_BLOCK] __attribute__((aligned(64)));
    if (type == CRL_DTYPE_F32)
        return block_squares(x, target, n);
    crl_widen(type, x, buffer, n);
    return block_squares(buffer, target, n);
}

double crl_sum_squares(crl_dtype type, const void *x, const float *target, int64_t n) {
    enum { BLOCKS = 512 }; /* whose sums wait on the stack */
    double total = 0;
    for (int64_t begin = 0; begin < n; begin += (int64_t)BLOCKS * CRL_REDUCE_BLOCK) {
        double sum[BLOCKS];
        const int64_t left = n - begin;
        const int64_t blocks = crl_min(BLOCKS, crl_ceil_div(left, CRL_REDUCE_BLOCK));
#pragma omp parallel for schedule(static) if (left >= CRL_SERIAL_WORK)
        for (int64_t i = 0; i < blocks; i++) {
            const int64_t first = begin + i * CRL_REDUCE_BLOCK;
            sum[i] =
                typed_block(type, crl_at(type, x, first), target == NULL ? NULL : target + first,
                            crl_min(CRL_REDUCE_BLOCK, n - first));
        }
        for (int64_t i = 0; i < blocks; i++)
            total += sum[i];
    }
    return total;
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

/* x of `type`: one block of columns of all rows. */
static void sum_columns(crl_dtype type, const void *x, float *y, int64_t n, int64_t c,
                        int64_t columns, bool accumulate) {
    double sum[CRL_COLUMNS] __attribute__((aligned(64))) = {0};
    crl_panel panel;
    for (int64_t i = 0; i < n; i += CRL_ROWS) {
        const int64_t rows = crl_min(CRL_ROWS, n - i);
        const float *part = crl_panel_read(&panel, type, crl_at(type, x, i * c), c, rows, columns);
        sum_rows(part, type == CRL_DTYPE_F32 ? c : CRL_COLUMNS, rows, columns, sum);
    }
    for (int64_t j = 0; j < columns; j++)
        y[j] = accumulate ? y[j] + (float)sum[j] : (float)sum[j];
}

const float *crl_panel_read(crl_panel *panel, crl_dtype type, const void *x, int64_t c,
                            int64_t rows, int64_t columns) {
    if (type == CRL_DTYPE_F32)
        return x;
    for (int64_t i = 0; i < rows; i++)
        crl_widen(type, crl_at(type, x, i * c), panel->x[i], columns);
    return panel->x[0];
}

void crl_column_sum(crl_dtype type, const void *x, float *y, int64_t n, int64_t c,
                    bool accumulate) {
    const int64_t blocks = crl_ceil_div(c, CRL_COLUMNS);
#pragma omp parallel for schedule(static) if (n * c >= CRL_SERIAL_WORK && blocks > 1)
    for (int64_t i = 0; i < blocks; i++) {
        const int64_t first = i * CRL_COLUMNS;
        sum_columns(type, crl_at(type, x, first), y + first, n, c, crl_min(CRL_COLUMNS, c - first),
                    accumulate);
    }
}

/* Of n floats, a multiple of SUMS. */
CRL_VECTORISED static double plain_sum(const float *x, int64_t n) {
    double sum[SUMS] __attribute__((aligned(64))) = {0};
    for (int64_t i = 0; i < n; i += SUMS) {
#pragma omp simd
        for (int l = 0; l < SUMS; l++)
            sum[l] += (double)x[i + l];
    }
    return total_of(sum);
}

void crl_row_sum(crl_dtype type, const void *x, float *y, int64_t n, int64_t c, bool accumulate) {
#pragma omp parallel for schedule(static) if (n * c >= CRL_SERIAL_WORK)
    for (int64_t i = 0; i < n; i++) {
        float piece[CRL_PIECE] __attribute__((aligned(64)));
        double sum = 0;
        for (int64_t j = 0; j < c; j += CRL_PIECE) {
            const int64_t columns = crl_min(CRL_PIECE, c - j), whole = crl_round_up(columns, SUMS);
            crl_widen(type, crl_at(type, x, i * c + j), piece, columns);
            memset(piece + columns, 0, (size_t)(whole - columns) * sizeof *piece);
            sum += plain_sum(piece, whole);
        }
        y[i] = accumulate ? y[i] + (float)sum : (float)sum;
    }
}

static crl_status reduce_add(crl_stream *stream, float *y, const float *x, int64_t n) {
    (void)stream;
    return crl_convert(CRL_DTYPE_F32, x, CRL_DTYPE_F32, y, n, true);
}

static crl_status reduce_sum_squares(crl_stream *stream, const float *x, int64_t n, double *out) {
    (void)stream;
    *out = crl_sum_squares(CRL_DTYPE_F32, x, NULL, n);
    return CRL_STATUS_OK;
}

static size_t reduce_column_sum_scratch_bytes(int64_t n, int64_t c) {
    (void)n;
    (void)c;
    return 0;
}

/* The entries of one table (see CRL_TABLES). */
#define ENTRIES(suffix, TYPE)                                                                      \
    static crl_status column_sum_##suffix(crl_stream *stream, const void *x, float *y, int64_t n,  \
                                          int64_t c, bool accumulate, void *scratch) {             \
        (void)stream;                                                                              \
        (void)scratch;                                                                             \
        crl_column_sum(TYPE, x, y, n, c, accumulate);                                              \
        return CRL_STATUS_OK;                                                                      \
    }                                                                                              \
    const crl_reduce_ops crl_reduce_cpu_##suffix = {                                               \
        .add = reduce_add,                                                                         \
        .sum_squares = reduce_sum_squares,                                                         \
        .column_sum = column_sum_##suffix,                                                         \
        .column_sum_scratch_bytes = reduce_column_sum_scratch_bytes,                               \
    };
CRL_TABLES(ENTRIES)
