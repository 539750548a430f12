/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Layer normalisation [ba16] and by the root of the mean square [zhang19]: rows over the threads
 * for the outputs, blocks of columns for the weight gradients (each walks down all rows, so the
 * order of its sums never changes). Rows are worked on piece by piece. Refuses nothing.
 *
 * Both are one computation: the second has mean 0 throughout, no shift, and a gradient that does
 * not go through the mean.
 */
#include "engine/kernels/cpu/cpu_internal.h"
#include "engine/kernels/cpu/narrow_internal.h"
#include "engine/kernels/cpu/reduce_internal.h"

#include <math.h>

/* What one call works on; which are NULL depends on the operation. */
typedef struct tensors {
    crl_dtype type;
    int64_t n, c;
    const void *x, *b; /* (N,C); b: added to x first, the sum is kept */
    void *sum;         /* (N,C) x + b */
    const void *dy;    /* (N,C) */
    void *out;         /* (N,C) y or dx */
    const float *w, *bias;
    double epsilon;
    float *mean, *rstd;         /* (N); mean NULL: by the root mean square */
    const float *means, *rstds; /* the same, of backward */
    bool accumulate;
} tensors;

CRL_VECTORISED static float piece_sum(const float *x, int64_t n) {
    float sum = 0;
#pragma omp simd reduction(+ : sum)
    for (int64_t j = 0; j < n; j++)
        sum += x[j];
    return sum;
}

CRL_VECTORISED static float piece_squares(const float *x, float mean, int64_t n) {
    float sum = 0;
#pragma omp simd reduction(+ : sum)
    for (int64_t j = 0; j < n; j++)
        sum += (x[j] - mean) * (x[j] - mean);
    return sum;
}

static float row_mean(crl_reader *x, int64_t c) {
    float sum = 0;
    for (int64_t j = 0; j < c; j += CRL_PIECE) {
        const int64_t n = crl_min(CRL_PIECE, c - j);
        sum += piece_sum(crl_read(x, j, n), n);
    }
    return sum / (float)c;
}

static float row_variance(crl_reader *x, float mean, int64_t c) {
    float sum = 0;
    for (int64_t j = 0; j < c; j += CRL_PIECE) {
        const int64_t n = crl_min(CRL_PIECE, c - j);
        sum += piece_squares(crl_read(x, j, n), mean, n);
    }
    return sum / (float)c;
}

CRL_VECTORISED static void piece_output(const float *x, const float *w, const float *b, float mean,
                                        float rstd, float *y, int64_t n) {
#pragma omp simd
    for (int64_t j = 0; j < n; j++)
        y[j] = (x[j] - mean) * rstd * w[j] + b[j];
}

CRL_VECTORISED static void piece_scaled(const float *x, const float *w, float rstd, float *y,
                                        int64_t n) {
#pragma omp simd
    for (int64_t j = 0; j < n; j++)
        y[j] = x[j] * rstd * w[j];
}

CRL_VECTORISED static void piece_add(const float *a, const float *b, float *y, int64_t n) {
#pragma omp simd
    for (int64_t j = 0; j < n; j++)
        y[j] = a[j] + b[j];
}

/* Row i of sum = x + b. */
static void add_row(const tensors *t, int64_t i) {
    crl_reader a, b;
    crl_writer sum;
    crl_reader_init(&a, t->type, t->x);
    crl_reader_init(&b, t->type, t->b);
    crl_writer_init(&sum, t->type, t->sum);
    for (int64_t j = 0; j < t->c; j += CRL_PIECE) {
        const int64_t n = crl_min(CRL_PIECE, t->c - j), at = i * t->c + j;
        float *piece = crl_write_begin(&sum, at, n, false);
        piece_add(crl_read(&a, at, n), crl_read(&b, at, n), piece, n);
        crl_write_end(&sum, at, n);
    }
}

static void forward_row(const tensors *t, int64_t i) {
    crl_reader x;
    crl_writer y;
    if (t->sum != NULL)
        add_row(t, i);
    crl_reader_init(&x, t->type, crl_at(t->type, t->sum != NULL ? t->sum : t->x, i * t->c));
    crl_writer_init(&y, t->type, crl_at_mutable(t->type, t->out, i * t->c));
    const float mean = t->mean != NULL ? row_mean(&x, t->c) : 0;
    const float rstd = (float)(1.0 / sqrt((double)row_variance(&x, mean, t->c) + t->epsilon));
    for (int64_t j = 0; j < t->c; j += CRL_PIECE) {
        const int64_t n = crl_min(CRL_PIECE, t->c - j);
        float *piece = crl_write_begin(&y, j, n, false);
        if (t->mean != NULL)
            piece_output(crl_read(&x, j, n), t->w + j, t->bias + j, mean, rstd, piece, n);
        else
            piece_scaled(crl_read(&x, j, n), t->w + j, rstd, piece, n);
        crl_write_end(&y, j, n);
    }
    if (t->mean != NULL)
        t->mean[i] = mean;
    t->rstd[i] = rstd;
}

static crl_status forward(const tensors *t) {
#pragma omp parallel for schedule(static) if (t->n * t->c >= CRL_SERIAL_WORK)
    for (int64_t i = 0; i < t->n; i++)
        forward_row(t, i);
    return CRL_STATUS_OK;
}

typedef struct row_constants {
    float mean, rstd, mean_g, mean_gx;
    bool accumulate;
} row_constants;

/* Adds to the row's sums of dy·w and of dy·w·xhat. */
CRL_VECTORISED static void piece_means(const float *x, const float *dy, const float *w, float mean,
                                       float rstd, int64_t n, float out[2]) {
    float sum_g = 0, sum_gx = 0;
#pragma omp simd reduction(+ : sum_g, sum_gx)
    for (int64_t j = 0; j < n; j++) {
        const float g = dy[j] * w[j];
        sum_g += g;
        sum_gx += g * ((x[j] - mean) * rstd);
    }
    out[0] += sum_g;
    out[1] += sum_gx;
}

CRL_VECTORISED static void piece_input(const float *x, const float *dy, const float *w,
                                       const row_constants *row, float *dx, int64_t n) {
    const row_constants r = *row;
#pragma omp simd
    for (int64_t j = 0; j < n; j++) {
        const float xhat = (x[j] - r.mean) * r.rstd;
        const float g = r.rstd * (dy[j] * w[j] - r.mean_g - xhat * r.mean_gx);
        dx[j] = r.accumulate ? dx[j] + g : g;
    }
}

static void backward_row(const tensors *t, int64_t i) {
    crl_reader x, dy;
    crl_writer dx;
    crl_reader_init(&x, t->type, crl_at(t->type, t->x, i * t->c));
    crl_reader_init(&dy, t->type, crl_at(t->type, t->dy, i * t->c));
    crl_writer_init(&dx, t->type, crl_at_mutable(t->type, t->out, i * t->c));
    row_constants row = {.mean = t->means != NULL ? t->means[i] : 0,
                         .rstd = t->rstds[i],
                         .accumulate = t->accumulate};
    float sum[2] = {0};
    for (int64_t j = 0; j < t->c; j += CRL_PIECE) {
        const int64_t n = crl_min(CRL_PIECE, t->c - j);
        piece_means(crl_read(&x, j, n), crl_read(&dy, j, n), t->w + j, row.mean, row.rstd, n, sum);
    }
    row.mean_g = t->means != NULL ? sum[0] / (float)t->c : 0;
    row.mean_gx = sum[1] / (float)t->c;
    for (int64_t j = 0; j < t->c; j += CRL_PIECE) {
        const int64_t n = crl_min(CRL_PIECE, t->c - j);
        float *piece = crl_write_begin(&dx, j, n, t->accumulate);
        piece_input(crl_read(&x, j, n), crl_read(&dy, j, n), t->w + j, &row, piece, n);
        crl_write_end(&dx, j, n);
    }
}

static crl_status backward_input(const tensors *t) {
#pragma omp parallel for schedule(static) if (t->n * t->c >= CRL_SERIAL_WORK)
    for (int64_t i = 0; i < t->n; i++)
        backward_row(t, i);
    return CRL_STATUS_OK;
}

typedef struct column_sums {
    double dw[CRL_COLUMNS], db[CRL_COLUMNS];
} column_sums;

/* Rows and columns of a panel, and how far apart its rows lie. */
typedef struct panel_shape {
    int64_t rows, columns, stride;
} panel_shape;

/* Adds the rows of one block of columns: in float within, in double between the calls. */
CRL_VECTORISED static void add_rows(const float *x, const float *dy, const float *mean,
                                    const float *rstd, const panel_shape *shape, column_sums *sum) {
    const int64_t columns = shape->columns;
    float dw[CRL_COLUMNS] __attribute__((aligned(64))) = {0};
    float db[CRL_COLUMNS] __attribute__((aligned(64))) = {0};
    for (int64_t i = 0; i < shape->rows; i++) {
        const float *x_row = x + i * shape->stride, *dy_row = dy + i * shape->stride;
        const float m = mean != NULL ? mean[i] : 0, r = rstd[i];
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

static void sum_columns(const tensors *t, int64_t first, int64_t columns, column_sums *sum) {
    crl_panel x_panel, dy_panel;
    for (int64_t i = 0; i < t->n; i += CRL_ROWS) {
        const int64_t rows = crl_min(CRL_ROWS, t->n - i), at = i * t->c + first;
        const panel_shape shape = {rows, columns, t->type == CRL_DTYPE_F32 ? t->c : CRL_COLUMNS};
        const float *x =
            crl_panel_read(&x_panel, t->type, crl_at(t->type, t->x, at), t->c, rows, columns);
        const float *dy =
            crl_panel_read(&dy_panel, t->type, crl_at(t->type, t->dy, at), t->c, rows, columns);
        add_rows(x, dy, t->means != NULL ? t->means + i : NULL, t->rstds + i, &shape, sum);
    }
}

static crl_status backward_weight(const tensors *t, float *dw, float *db) {
    const int64_t c = t->c, blocks = crl_ceil_div(c, CRL_COLUMNS);
#pragma omp parallel for schedule(static) if (t->n * c >= CRL_SERIAL_WORK && blocks > 1)
    for (int64_t block = 0; block < blocks; block++) {
        const int64_t first = block * CRL_COLUMNS, columns = crl_min(CRL_COLUMNS, c - first);
        column_sums sum = {.dw = {0}};
        sum_columns(t, first, columns, &sum);
        for (int64_t j = 0; j < columns; j++) {
            dw[first + j] = (t->accumulate ? dw[first + j] : 0) + (float)sum.dw[j];
            if (db != NULL)
                db[first + j] = (t->accumulate ? db[first + j] : 0) + (float)sum.db[j];
        }
    }
    return CRL_STATUS_OK;
}

static size_t layernorm_scratch_bytes(int64_t n, int64_t c) {
    (void)n;
    (void)c;
    return 0;
}

/* The entries of one table (see CRL_TABLES). */
#define ENTRIES(suffix, TYPE)                                                                      \
    static crl_status forward_##suffix(crl_stream *stream, const void *x, const float *w,          \
                                       const float *b, double epsilon, void *y, float *mean,       \
                                       float *rstd, int64_t n, int64_t c) {                        \
        (void)stream;                                                                              \
        return forward(&(tensors){.type = TYPE,                                                    \
                                  .n = n,                                                          \
                                  .c = c,                                                          \
                                  .x = x,                                                          \
                                  .out = y,                                                        \
                                  .w = w,                                                          \
                                  .bias = b,                                                       \
                                  .epsilon = epsilon,                                              \
                                  .mean = mean,                                                    \
                                  .rstd = rstd});                                                  \
    }                                                                                              \
    static crl_status add_forward_##suffix(crl_stream *stream, const void *a, const void *b,       \
                                           void *sum, const float *w, const float *bias,           \
                                           double epsilon, void *y, float *mean, float *rstd,      \
                                           int64_t n, int64_t c) {                                 \
        (void)stream;                                                                              \
        return forward(&(tensors){.type = TYPE,                                                    \
                                  .n = n,                                                          \
                                  .c = c,                                                          \
                                  .x = a,                                                          \
                                  .b = b,                                                          \
                                  .sum = sum,                                                      \
                                  .out = y,                                                        \
                                  .w = w,                                                          \
                                  .bias = bias,                                                    \
                                  .epsilon = epsilon,                                              \
                                  .mean = mean,                                                    \
                                  .rstd = rstd});                                                  \
    }                                                                                              \
    static crl_status rms_forward_##suffix(crl_stream *stream, const void *x, const float *w,      \
                                           double epsilon, void *y, float *rstd, int64_t n,        \
                                           int64_t c) {                                            \
        (void)stream;                                                                              \
        return forward(&(tensors){.type = TYPE,                                                    \
                                  .n = n,                                                          \
                                  .c = c,                                                          \
                                  .x = x,                                                          \
                                  .out = y,                                                        \
                                  .w = w,                                                          \
                                  .epsilon = epsilon,                                              \
                                  .rstd = rstd});                                                  \
    }                                                                                              \
    static crl_status backward_input_##suffix(                                                     \
        crl_stream *stream, const void *x, const void *dy, const float *w, const float *mean,      \
        const float *rstd, void *dx, int64_t n, int64_t c, bool accumulate) {                      \
        (void)stream;                                                                              \
        return backward_input(&(tensors){.type = TYPE,                                             \
                                         .n = n,                                                   \
                                         .c = c,                                                   \
                                         .x = x,                                                   \
                                         .dy = dy,                                                 \
                                         .out = dx,                                                \
                                         .w = w,                                                   \
                                         .means = mean,                                            \
                                         .rstds = rstd,                                            \
                                         .accumulate = accumulate});                               \
    }                                                                                              \
    static crl_status rms_backward_input_##suffix(                                                 \
        crl_stream *stream, const void *x, const void *dy, const float *w, const float *rstd,      \
        void *dx, int64_t n, int64_t c, bool accumulate) {                                         \
        return backward_input_##suffix(stream, x, dy, w, NULL, rstd, dx, n, c, accumulate);        \
    }                                                                                              \
    static crl_status backward_weight_##suffix(                                                    \
        crl_stream *stream, const void *x, const void *dy, const float *mean, const float *rstd,   \
        float *dw, float *db, int64_t n, int64_t c, bool accumulate, void *scratch) {              \
        (void)stream;                                                                              \
        (void)scratch;                                                                             \
        return backward_weight(&(tensors){.type = TYPE,                                            \
                                          .n = n,                                                  \
                                          .c = c,                                                  \
                                          .x = x,                                                  \
                                          .dy = dy,                                                \
                                          .means = mean,                                           \
                                          .rstds = rstd,                                           \
                                          .accumulate = accumulate},                               \
                               dw, db);                                                            \
    }                                                                                              \
    static crl_status rms_backward_weight_##suffix(                                                \
        crl_stream *stream, const void *x, const void *dy, const float *rstd, float *dw,           \
        int64_t n, int64_t c, bool accumulate, void *scratch) {                                    \
        return backward_weight_##suffix(stream, x, dy, NULL, rstd, dw, NULL, n, c, accumulate,     \
                                        scratch);                                                  \
    }                                                                                              \
    const crl_layernorm_ops crl_layernorm_cpu_##suffix = {                                         \
        .forward = forward_##suffix,                                                               \
        .backward_input = backward_input_##suffix,                                                 \
        .backward_weight = backward_weight_##suffix,                                               \
        .add_forward = add_forward_##suffix,                                                       \
        .rms_forward = rms_forward_##suffix,                                                       \
        .rms_backward_input = rms_backward_input_##suffix,                                         \
        .rms_backward_weight = rms_backward_weight_##suffix,                                       \
        .scratch_bytes = layernorm_scratch_bytes,                                                  \
    };
CRL_TABLES(ENTRIES)
