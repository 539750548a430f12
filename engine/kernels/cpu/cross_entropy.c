/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Softmax cross-entropy over rows of logits, and the mean-square loss. Rows go over the threads;
 * the losses of the rows are added in order, in double, by one thread. Refuses targets outside the
 * classes before anything is written.
 */
#include "engine/kernels/cpu/cpu_internal.h"
#include "engine/kernels/cpu/map_internal.h"
#include "engine/kernels/cpu/math_internal.h"
#include "engine/kernels/cpu/reduce_internal.h"

#include <math.h>
#include <string.h>

enum { EXP_BLOCK = 2048 }; /* exponentials summed in float before they go into the double sum */

typedef struct rows {
    const crl_cross_entropy_config *config;
    const float *logits;
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
CRL_VECTORISED static float row_max(const float *x, int64_t n) {
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

/* Is the target the first of the largest logits? */
static bool is_correct(const float *x, float largest, int32_t target) {
    if (!(x[target] >= largest))
        return false;
    for (int32_t i = 0; i < target; i++) {
        if (x[i] >= largest)
            return false;
    }
    return true;
}

static float row_lse(const float *x, float largest, int64_t n) {
    double sum = 0;
    for (int64_t i = 0; i < n; i += EXP_BLOCK)
        sum += (double)exp_sum(x + i, largest, crl_min(EXP_BLOCK, n - i));
    return (float)((double)largest + log(sum));
}

/* One micro-batch may have several calls. */
static void add_loss(crl_loss *loss, const crl_loss *more) {
    loss->sum += more->sum;
    loss->weight += more->weight;
    loss->correct += more->correct;
    loss->rows += more->rows;
}

static crl_status cross_entropy_forward(crl_stream *stream, const crl_cross_entropy_config *config,
                                        const void *logits_, const int32_t *targets,
                                        const float *row_weight, int64_t valid_rows, float *lse,
                                        crl_loss *loss) {
    const float *logits = logits_;
    (void)stream;
    const rows given = {config, logits, targets, row_weight, crl_min(valid_rows, config->rows)};
    const int64_t n = config->rows, v = config->classes;
    CRL_TRY(check_targets(&given));
    int64_t correct = 0;
#pragma omp parallel for schedule(static) reduction(+ : correct) if (n * v >= CRL_SERIAL_WORK)
    for (int64_t i = 0; i < n; i++) {
        lse[i] = 0;
        if (!counts(&given, i))
            continue;
        const float *x = logits + i * v;
        const float largest = row_max(x, v);
        lse[i] = row_lse(x, largest, v);
        correct += is_correct(x, largest, targets[i]);
    }
    crl_loss total = {.correct = (double)correct};
    for (int64_t i = 0; i < given.valid; i++) {
        if (!counts(&given, i))
            continue;
        const double weight = (double)weight_of(&given, i);
        total.sum += weight * ((double)lse[i] - (double)logits[i * v + targets[i]]);
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

static void backward_row(const rows *given, int64_t i, float lse, float scale, float *dx,
                         bool accumulate) {
    const int64_t v = given->config->classes;
    const int32_t target = given->targets[i];
    const float *x = given->logits + i * v;
    if (!counts(given, i)) {
        if (!accumulate)
            memset(dx, 0, (size_t)v * sizeof *dx);
        return;
    }
    const float weight = scale * weight_of(given, i);
    /* p - 1 where p is near 1 loses what p itself still has: expm1 keeps it. */
    const float at_target = (float)((double)weight * expm1((double)x[target] - (double)lse));
    const float before = accumulate ? dx[target] : 0;
    row_gradient(x, lse, weight, dx, v, accumulate);
    dx[target] = before + at_target;
}

static crl_status cross_entropy_backward(crl_stream *stream, const crl_cross_entropy_config *config,
                                         const void *logits_, const int32_t *targets,
                                         const float *row_weight, int64_t valid_rows,
                                         const float *lse, float scale, void *dlogits_,
                                         bool accumulate) {
    const float *logits = logits_;
    float *dlogits = dlogits_;
    (void)stream;
    const rows given = {config, logits, targets, row_weight, crl_min(valid_rows, config->rows)};
    const int64_t n = config->rows, v = config->classes;
    CRL_TRY(check_targets(&given));
#pragma omp parallel for schedule(static) if (n * v >= CRL_SERIAL_WORK)
    for (int64_t i = 0; i < n; i++)
        backward_row(&given, i, lse[i], scale, dlogits + i * v, accumulate);
    return CRL_STATUS_OK;
}

static crl_status mse_forward(crl_stream *stream, const void *x_, const float *target, int64_t n,
                              crl_loss *loss) {
    const float *x = x_;
    (void)stream;
    const crl_loss total = {
        .sum = crl_sum_squares(x, target, n), .weight = (double)n, .rows = (double)n};
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

static crl_status mse_backward(crl_stream *stream, const void *x_, const float *target,
                               int64_t valid, int64_t n, float scale, void *dx_, bool accumulate) {
    const float *x = x_;
    float *dx = dx_;
    (void)stream;
    valid = crl_min(valid, n);
    const mse_options options = {.slope = 2 * scale, .accumulate = accumulate};
    crl_map_run(
        &(crl_map){
            .tile = mse_tile, .context = &options, .arrays = 3, .outputs = 1, .x = {dx, x, target}},
        valid);
    if (!accumulate && valid < n)
        memset(dx + valid, 0, (size_t)(n - valid) * sizeof *dx);
    return CRL_STATUS_OK;
}

const crl_cross_entropy_ops crl_cross_entropy_cpu = {
    .forward = cross_entropy_forward,
    .backward = cross_entropy_backward,
    .mse_forward = mse_forward,
    .mse_backward = mse_backward,
};
