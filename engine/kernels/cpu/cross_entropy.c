/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Softmax cross-entropy over rows of logits, and the mean-square loss. Rows go over the threads;
 * the losses of the rows are added in order, in double, by one thread. Refuses targets outside the
 * classes before anything is written.
 */
#include "engine/kernels/cpu/cpu_internal.h"
#include "engine/kernels/cpu/map_internal.h"
#include "engine/kernels/cpu/math_internal.h"
#include "engine/kernels/cpu/narrow_internal.h"
#include "engine/kernels/cpu/reduce_internal.h"

#include <math.h>
#include <string.h>

typedef struct rows {
    const crl_cross_entropy_config *config;
    crl_dtype type;
    const void *logits;
    const int32_t *targets;
    const float *row_weight;
    int64_t valid;
} rows;

static bool counts(const rows *given, int64_t row) {
    return row < given->valid && given->targets[row] != given->config->ignore_index;
}

static float weight_of(const rows *given, int64_t row) {
    const float *label_weight = given->config->label_weight;
    const float weight = given->row_weight == NULL ? 1 : given->row_weight[row];
    return label_weight == NULL ? weight : weight * label_weight[given->targets[row]];
}

static crl_status check_targets(const rows *given) {
    for (int64_t i = 0; i < given->valid; i++) {
        const int32_t target = given->targets[i];
        if (counts(given, i) && (target < 0 || target >= given->config->classes))
            return CRL_FAIL(INVALID, "cross_entropy: target of row %lld is %d, expected 0 to %lld",
                            (long long)i, target, (long long)given->config->classes - 1);
    }
    return CRL_STATUS_OK;
}

/* A NaN anywhere must reach the loss, so it wins against every number. */
CRL_VECTORISED static float piece_max(const float *x, int64_t n) {
    float largest = -INFINITY;
    int32_t is_nan = 0;
#pragma omp simd reduction(max : largest) reduction(| : is_nan)
    for (int64_t i = 0; i < n; i++) {
        largest = x[i] > largest ? x[i] : largest;
        is_nan |= x[i] != x[i];
    }
    return is_nan ? NAN : largest;
}

CRL_VECTORISED static float exp_sum(const float *x, float shift, int64_t n) {
    float sum = 0;
#pragma omp simd reduction(+ : sum)
    for (int64_t i = 0; i < n; i++)
        sum += crl_exp(x[i] - shift);
    return sum;
}

/* The first element of a piece that is at least `bound`; n when there is none. */
static int64_t first_of(const float *x, float bound, int64_t n) {
    int64_t i = 0;
    while (i < n && !(x[i] >= bound))
        i++;
    return i;
}

/* Is the target the first of the largest logits? */
static bool is_correct(crl_reader *row, float largest, int32_t target) {
    if (!(crl_widen_one(row->type, row->x, target) >= largest))
        return false;
    for (int64_t i = 0; i < target; i += CRL_PIECE) {
        const int64_t n = crl_min(CRL_PIECE, target - i);
        if (first_of(crl_read(row, i, n), largest, n) < n)
            return false;
    }
    return true;
}

static float row_max(crl_reader *row, int64_t v) {
    float largest = -INFINITY;
    for (int64_t i = 0; i < v; i += CRL_PIECE) {
        const int64_t n = crl_min(CRL_PIECE, v - i);
        const float here = piece_max(crl_read(row, i, n), n);
        largest = here <= largest ? largest : here;
        if (largest != largest)
            return largest;
    }
    return largest;
}

/* Exponentials of a piece are summed in float, the pieces in double. */
static float row_lse(crl_reader *row, float largest, int64_t v) {
    double sum = 0;
    for (int64_t i = 0; i < v; i += CRL_PIECE) {
        const int64_t n = crl_min(CRL_PIECE, v - i);
        sum += (double)exp_sum(crl_read(row, i, n), largest, n);
    }
    return (float)((double)largest + log(sum));
}

/* One micro-batch may have several calls. */
static void add_loss(crl_loss *loss, const crl_loss *more) {
    loss->sum += more->sum;
    loss->weight += more->weight;
    loss->correct += more->correct;
    loss->rows += more->rows;
}

/* lse of every row; the number of rows whose largest logit is the target. */
static int64_t forward_rows(const rows *given, float *lse) {
    const int64_t n = given->config->rows, v = given->config->classes;
    int64_t correct = 0;
#pragma omp parallel for schedule(static) reduction(+ : correct) if (n * v >= CRL_SERIAL_WORK)
    for (int64_t i = 0; i < n; i++) {
        lse[i] = 0;
        if (!counts(given, i))
            continue;
        crl_reader row;
        crl_reader_init(&row, given->type, crl_at(given->type, given->logits, i * v));
        const float largest = row_max(&row, v);
        lse[i] = row_lse(&row, largest, v);
        correct += is_correct(&row, largest, given->targets[i]);
    }
    return correct;
}

static crl_status forward(const rows *given, float *lse, crl_loss *loss) {
    const int64_t v = given->config->classes;
    CRL_TRY(check_targets(given));
    crl_loss total = {.correct = (double)forward_rows(given, lse)};
    for (int64_t i = 0; i < given->valid; i++) {
        if (!counts(given, i))
            continue;
        const double weight = (double)weight_of(given, i);
        const float at_target =
            crl_widen_one(given->type, given->logits, i * v + given->targets[i]);
        total.sum += weight * ((double)lse[i] - (double)at_target);
        total.weight += weight;
        total.rows += 1;
    }
    add_loss(loss, &total);
    return CRL_STATUS_OK;
}

CRL_VECTORISED static void row_gradient(const float *x, float lse, float weight, float *dx,
                                        int64_t n, bool accumulate) {
#pragma omp simd
    for (int64_t i = 0; i < n; i++) {
        const float g = weight * crl_exp(x[i] - lse);
        dx[i] = accumulate ? dx[i] + g : g;
    }
}

/* Row i of the gradient; `dx` may be the row of logits itself: a piece is read before it is
 * written, the target's logit before all. */
static void backward_row(const rows *given, int64_t i, float lse, float scale, void *dx,
                         bool accumulate) {
    const int64_t v = given->config->classes;
    const int32_t target = given->targets[i];
    const float weight = scale * weight_of(given, i);
    crl_reader row;
    crl_writer out;
    crl_reader_init(&row, given->type, crl_at(given->type, given->logits, i * v));
    crl_writer_init(&out, given->type, dx);
    /* p - 1 where p is near 1 loses what p itself still has: expm1 keeps it. */
    const double x = (double)crl_widen_one(row.type, row.x, target);
    const float at_target = (float)((double)weight * expm1(x - (double)lse));
    for (int64_t j = 0; j < v; j += CRL_PIECE) {
        const int64_t n = crl_min(CRL_PIECE, v - j);
        const bool has_target = target >= j && target < j + n;
        float *piece = crl_write_begin(&out, j, n, accumulate);
        const float before = accumulate && has_target ? piece[target - j] : 0;
        row_gradient(crl_read(&row, j, n), lse, weight, piece, n, accumulate);
        if (has_target)
            piece[target - j] = before + at_target;
        crl_write_end(&out, j, n);
    }
}

static crl_status backward(const rows *given, const float *lse, float scale, void *dlogits,
                           bool accumulate) {
    const int64_t n = given->config->rows, v = given->config->classes;
    const size_t row_bytes = (size_t)v * crl_dtype_bytes(given->type);
    CRL_TRY(check_targets(given));
#pragma omp parallel for schedule(static) if (n * v >= CRL_SERIAL_WORK)
    for (int64_t i = 0; i < n; i++) {
        void *dx = crl_at_mutable(given->type, dlogits, i * v);
        if (counts(given, i))
            backward_row(given, i, lse[i], scale, dx, accumulate);
        else if (!accumulate)
            memset(dx, 0, row_bytes);
    }
    return CRL_STATUS_OK;
}

static crl_status mse_forward(crl_dtype type, const void *x, const float *target, int64_t n,
                              crl_loss *loss) {
    const crl_loss total = {
        .sum = crl_sum_squares(type, x, target, n), .weight = (double)n, .rows = (double)n};
    add_loss(loss, &total);
    return CRL_STATUS_OK;
}

typedef struct mse_options {
    float slope;
    bool accumulate;
} mse_options;

CRL_VECTORISED static void mse_tile(const void *context, float *const *x, int64_t n) {
    const mse_options o = *(const mse_options *)context;
    float *dx = x[0];
    const float *a = x[1], *target = x[2];
#pragma omp simd
    for (int64_t i = 0; i < n; i++) {
        const float g = o.slope * (a[i] - target[i]);
        dx[i] = o.accumulate ? dx[i] + g : g;
    }
}

static crl_status mse_backward(crl_dtype type, const void *x, const float *target, int64_t valid,
                               int64_t n, const mse_options *options, void *dx) {
    crl_map_run(&(crl_map){.tile = mse_tile,
                           .context = options,
                           .arrays = 3,
                           .outputs = 1,
                           .reads = options->accumulate,
                           .x = {dx, x, target},
                           .type = {type, type}},
                valid);
    if (!options->accumulate && valid < n)
        memset(crl_at_mutable(type, dx, valid), 0, (size_t)(n - valid) * crl_dtype_bytes(type));
    return CRL_STATUS_OK;
}

/* The entries of one table (see CRL_TABLES). */
#define ENTRIES(suffix, TYPE)                                                                      \
    static crl_status forward_##suffix(crl_stream *stream, const crl_cross_entropy_config *config, \
                                       const void *logits, const int32_t *targets,                 \
                                       const float *row_weight, int64_t valid_rows, float *lse,    \
                                       crl_loss *loss) {                                           \
        (void)stream;                                                                              \
        const int64_t valid = crl_min(valid_rows, config->rows);                                   \
        const rows given = {config, TYPE, logits, targets, row_weight, valid};                     \
        return forward(&given, lse, loss);                                                         \
    }                                                                                              \
    static crl_status backward_##suffix(                                                           \
        crl_stream *stream, const crl_cross_entropy_config *config, const void *logits,            \
        const int32_t *targets, const float *row_weight, int64_t valid_rows, const float *lse,     \
        float scale, void *dlogits, bool accumulate) {                                             \
        (void)stream;                                                                              \
        const int64_t valid = crl_min(valid_rows, config->rows);                                   \
        const rows given = {config, TYPE, logits, targets, row_weight, valid};                     \
        return backward(&given, lse, scale, dlogits, accumulate);                                  \
    }                                                                                              \
    static crl_status mse_forward_##suffix(crl_stream *stream, const void *x, const float *target, \
                                           int64_t n, crl_loss *loss) {                            \
        (void)stream;                                                                              \
        return mse_forward(TYPE, x, target, n, loss);                                              \
    }                                                                                              \
    static crl_status mse_backward_##suffix(crl_stream *stream, const void *x,                     \
                                            const float *target, int64_t valid, int64_t n,         \
                                            float scale, void *dx, bool accumulate) {              \
        (void)stream;                                                                              \
        const mse_options options = {.slope = 2 * scale, .accumulate = accumulate};                \
        return mse_backward(TYPE, x, target, crl_min(valid, n), n, &options, dx);                  \
    }                                                                                              \
    const crl_cross_entropy_ops crl_cross_entropy_cpu_##suffix = {                                 \
        .forward = forward_##suffix,                                                               \
        .backward = backward_##suffix,                                                             \
        .mse_forward = mse_forward_##suffix,                                                       \
        .mse_backward = mse_backward_##suffix,                                                     \
    };
CRL_TABLES(ENTRIES)
