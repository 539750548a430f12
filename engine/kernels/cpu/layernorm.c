/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Layer normalisation [ba16]: rows over the threads for the outputs, blocks of columns for the
 * weight gradients (each walks down all rows, so the order of its sums never changes). Refuses
 * nothing.
 */
#include "engine/kernels/cpu/cpu_internal.h"
#include "engine/kernels/cpu/reduce_internal.h"

#include <math.h>

CRL_VECTORISED static float row_mean(const float *x, int64_t c) {
    float sum = 0;
#pragma omp simd reduction(+ : sum)
    for (int64_t j = 0; j < c; j++)
        sum += x[j];
    return sum / (float)c;
}

CRL_VECTORISED static float row_variance(const float *x, float mean, int64_t c) {
    float sum = 0;
#pragma omp simd reduction(+ : sum)
    for (int64_t j = 0; j < c; j++)
        sum += (x[j] - mean) * (x[j] - mean);
    return sum / (float)c;
}

CRL_VECTORISED static void row_output(const float *x, const float *w, const float *b, float mean,
                                      float rstd, float *y, int64_t c) {
#pragma omp simd
    for (int64_t j = 0; j < c; j++)
        y[j] = (x[j] - mean) * rstd * w[j] + b[j];
}

static crl_status layernorm_forward(crl_stream *stream, const void *x_, const float *w,
                                    const float *b, double epsilon, void *y_, float *mean,
                                    float *rstd, int64_t n, int64_t c) {
    const float *x = x_;
    float *y = y_;
    (void)stream;
#pragma omp parallel for schedule(static) if (n * c >= CRL_SERIAL_WORK)
    for (int64_t i = 0; i < n; i++) {
        const float *row = x + i * c;
        mean[i] = row_mean(row, c);
        rstd[i] = (float)(1.0 / sqrt((double)row_variance(row, mean[i], c) + epsilon));
        row_output(row, w, b, mean[i], rstd[i], y + i * c, c);
    }
    return CRL_STATUS_OK;
}

/* Means over the row of dy·w and of dy·w·xhat. */
CRL_VECTORISED static void row_means(const float *x, const float *dy, const float *w, float mean,
                                     float rstd, int64_t c, float out[2]) {
    float sum_g = 0, sum_gx = 0;
#pragma omp simd reduction(+ : sum_g, sum_gx)
    for (int64_t j = 0; j < c; j++) {
        const float g = dy[j] * w[j];
        sum_g += g;
        sum_gx += g * ((x[j] - mean) * rstd);
    }
    out[0] = sum_g / (float)c;
    out[1] = sum_gx / (float)c;
}

typedef struct row_constants {
    float mean, rstd, mean_g, mean_gx;
    bool accumulate;
} row_constants;

CRL_VECTORISED static void row_input(const float *x, const float *dy, const float *w,
                                     const row_constants *row, float *dx, int64_t c) {
    const row_constants r = *row;
#pragma omp simd
    for (int64_t j = 0; j < c; j++) {
        const float xhat = (x[j] - r.mean) * r.rstd;
        const float g = r.rstd * (dy[j] * w[j] - r.mean_g - xhat * r.mean_gx);
        dx[j] = r.accumulate ? dx[j] + g : g;
    }
}

static crl_status layernorm_backward_input(crl_stream *stream, const void *x_, const void *dy_,
                                           const float *w, const float *mean, const float *rstd,
                                           void *dx_, int64_t n, int64_t c, bool accumulate) {
    const float *x = x_;
    const float *dy = dy_;
    float *dx = dx_;
    (void)stream;
#pragma omp parallel for schedule(static) if (n * c >= CRL_SERIAL_WORK)
    for (int64_t i = 0; i < n; i++) {
        float means[2];
        row_means(x + i * c, dy + i * c, w, mean[i], rstd[i], c, means);
        const row_constants row = {.mean = mean[i],
                                   .rstd = rstd[i],
                                   .mean_g = means[0],
                                   .mean_gx = means[1],
                                   .accumulate = accumulate};
        row_input(x + i * c, dy + i * c, w, &row, dx + i * c, c);
    }
    return CRL_STATUS_OK;
}

typedef struct column_sums {
    double dw[CRL_COLUMNS], db[CRL_COLUMNS];
} column_sums;

/* Adds `rows` rows of one block of columns: in float within, in double between the calls. */
CRL_VECTORISED static void add_rows(const float *x, const float *dy, const float *mean,
                                    const float *rstd, const int64_t sizes[3], column_sums *sum) {
    const int64_t c = sizes[0], rows = sizes[1], columns = sizes[2];
    float dw[CRL_COLUMNS] __attribute__((aligned(64))) = {0};
    float db[CRL_COLUMNS] __attribute__((aligned(64))) = {0};
    for (int64_t i = 0; i < rows; i++) {
        const float *x_row = x + i * c, *dy_row = dy + i * c;
        const float m = mean[i], r = rstd[i];
#pragma omp simd
        for (int64_t j = 0; j < columns; j++) {
            dw[j] += dy_row[j] * ((x_row[j] - m) * r);
            db[j] += dy_row[j];
        }
    }
    for (int64_t j = 0; j < columns; j++) {
        sum->dw[j] += (double)dw[j];
        sum->db[j] += (double)db[j];
    }
}

static crl_status layernorm_backward_weight(crl_stream *stream, const void *x_, const void *dy_,
                                            const float *mean, const float *rstd, float *dw,
                                            float *db, int64_t n, int64_t c, bool accumulate,
                                            void *scratch) {
    const float *x = x_;
    const float *dy = dy_;
    (void)stream;
    (void)scratch;
    const int64_t blocks = crl_ceil_div(c, CRL_COLUMNS);
#pragma omp parallel for schedule(static) if (n * c >= CRL_SERIAL_WORK && blocks > 1)
    for (int64_t block = 0; block < blocks; block++) {
        const int64_t first = block * CRL_COLUMNS, columns = crl_min(CRL_COLUMNS, c - first);
        column_sums sum = {.dw = {0}};
        for (int64_t i = 0; i < n; i += CRL_ROWS) {
            const int64_t sizes[3] = {c, crl_min(CRL_ROWS, n - i), columns};
            add_rows(x + i * c + first, dy + i * c + first, mean + i, rstd + i, sizes, &sum);
        }
        for (int64_t j = 0; j < columns; j++) {
            dw[first + j] = (accumulate ? dw[first + j] : 0) + (float)sum.dw[j];
            db[first + j] = (accumulate ? db[first + j] : 0) + (float)sum.db[j];
        }
    }
    return CRL_STATUS_OK;
}

static size_t layernorm_scratch_bytes(int64_t n, int64_t c) {
    (void)n;
    (void)c;
    return 0;
}

const crl_layernorm_ops crl_layernorm_cpu = {
    .forward = layernorm_forward,
    .backward_input = layernorm_backward_input,
    .backward_weight = layernorm_backward_weight,
    .scratch_bytes = layernorm_scratch_bytes,
};
