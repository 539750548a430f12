/* SPDX-License-Identifier: Apache-2.0 */
/* Softmax over tiles of scores, kept up to date from tile to tile [dao22]. Refuses nothing: every
 * query sees at least one key of each tile it is given. Rows are CRL_TILE long, so a ragged row may
 * be worked on in whole vectors. */
#include "engine/kernels/cpu/attention_internal.h"

#include "engine/kernels/cpu/cpu_internal.h"
#include "engine/kernels/cpu/math_internal.h"

#include <math.h>
#include <string.h>

static int64_t visible(const crl_tile *tile, int64_t row) {
    return tile->diagonal ? crl_min(row + 1, tile->columns) : tile->columns;
}

/* Widens a row's n visible scores to whole vectors, by scores that change neither the largest nor,
 * to the last place, the sum; returns the new width. */
static int64_t widen(float *s, float scale, int64_t n) {
    const int64_t whole = crl_round_up(n, CRL_LANES);
    for (int64_t i = n; i < whole; i++)
        s[i] = scale < 0 ? INFINITY : -INFINITY;
    return whole;
}

CRL_VECTORISED static float scale_and_max(float *s, float scale, int64_t n) {
    float largest = -INFINITY;
#pragma omp simd reduction(max : largest)
    for (int64_t i = 0; i < n; i++) {
        s[i] *= scale;
        largest = s[i] > largest ? s[i] : largest;
    }
    return largest;
}

CRL_VECTORISED static float exp_and_sum(float *s, float shift, int64_t n) {
    float sum = 0;
#pragma omp simd reduction(+ : sum)
    for (int64_t i = 0; i < n; i++) {
        s[i] = crl_exp(s[i] - shift);
        sum += s[i];
    }
    return sum;
}

CRL_VECTORISED static void multiply(float *y, const float *x, float factor, int64_t n) {
#pragma omp simd
    for (int64_t i = 0; i < n; i++)
        y[i] = x[i] * factor;
}

void crl_tile_softmax(const crl_tile *tile, bool first, float *s, crl_softmax *softmax, float *y,
                      int64_t d) {
    for (int64_t r = 0; r < tile->rows; r++) {
        float *row = s + r * CRL_TILE;
        const int64_t n = visible(tile, r), width = widen(row, tile->scale, n);
        const float tile_largest = scale_and_max(row, tile->scale, width);
        const float before = softmax->largest[r];
        const float largest = !first && before > tile_largest ? before : tile_largest;
        const float sum = exp_and_sum(row, largest, width);
        memset(row + n, 0, (size_t)(tile->columns - n) * sizeof *row);
        softmax->largest[r] = largest;
        if (first) {
            softmax->sum[r] = sum;
            continue;
        }
        const float factor = before < largest ? crl_exp(before - largest) : 1;
        softmax->sum[r] = softmax->sum[r] * factor + sum;
        if (factor != 1)
            multiply(y + r * d, y + r * d, factor, d);
    }
}

void crl_tile_finish(int64_t rows, const crl_softmax *softmax, const float *output, float *y,
                     int64_t y_row, int64_t d, float *lse) {
    for (int64_t r = 0; r < rows; r++) {
        multiply(y + r * y_row, output + r * d, 1.0f / softmax->sum[r], d);
        lse[r] = (float)((double)softmax->largest[r] + log((double)softmax->sum[r]));
    }
}

CRL_VECTORISED static void probability(float *s, float scale, float lse, int64_t n) {
#pragma omp simd
    for (int64_t i = 0; i < n; i++)
        s[i] = crl_exp(s[i] * scale - lse);
}

void crl_tile_probability(const crl_tile *tile, float *s, const float *lse) {
    for (int64_t r = 0; r < tile->rows; r++) {
        float *row = s + r * CRL_TILE;
        const int64_t n = visible(tile, r);
        probability(row, tile->scale, lse[r], widen(row, tile->scale, n));
        memset(row + n, 0, (size_t)(tile->columns - n) * sizeof *row);
    }
}

CRL_VECTORISED static void gradient(const float *p, float *dp, float delta, float scale,
                                    int64_t n) {
#pragma omp simd
    for (int64_t i = 0; i < n; i++)
        dp[i] = p[i] * (dp[i] - delta) * scale;
}

void crl_tile_gradient(const crl_tile *tile, const float *p, float *dp, const float *delta) {
    for (int64_t r = 0; r < tile->rows; r++) {
        const int64_t n = visible(tile, r);
        gradient(p + r * CRL_TILE, dp + r * CRL_TILE, delta[r], tile->scale,
                 crl_round_up(n, CRL_LANES));
        memset(dp + r * CRL_TILE + n, 0, (size_t)(tile->columns - n) * sizeof *dp);
    }
}

CRL_VECTORISED static float dot(const float *a, const float *b, int64_t n) {
    float sum = 0;
#pragma omp simd reduction(+ : sum)
    for (int64_t i = 0; i < n; i++)
        sum += a[i] * b[i];
    return sum;
}

void crl_tile_delta(int64_t rows, const float *y, const float *dy, int64_t row, int64_t d,
                    float *delta) {
    for (int64_t r = 0; r < rows; r++)
        delta[r] = dot(y + r * row, dy + r * row, d);
}
