/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Token and position embedding. The gradient of the token table is split by columns, not by tokens:
 * each task adds its columns of all rows in the order of (b,t), whatever tokens repeat. Refuses
 * tokens outside the vocabulary before anything is written.
 */
#include "engine/kernels/cpu/cpu_internal.h"

#include <string.h>

enum { COLUMNS = 64 };

static crl_status check_tokens(const int32_t *tokens, int64_t b, int64_t t, int64_t v) {
    for (int64_t i = 0; i < b * t; i++) {
        if (tokens[i] < 0 || tokens[i] >= v)
            return CRL_FAIL(INVALID,
                            "embedding: token at sample %lld, position %lld is %d, expected 0 to "
                            "%lld",
                            (long long)(i / t), (long long)(i % t), tokens[i], (long long)v - 1);
    }
    return CRL_STATUS_OK;
}

CRL_VECTORISED static void add_row(float *y, const float *x, int64_t n) {
#pragma omp simd
    for (int64_t j = 0; j < n; j++)
        y[j] += x[j];
}

static crl_status embedding_forward(crl_stream *stream, const int32_t *tokens, const void *token_,
                                    const void *position_, void *y_, int64_t b, int64_t t,
                                    int64_t v, int64_t c) {
    const float *token = token_;
    const float *position = position_;
    float *y = y_;
    (void)stream;
    CRL_TRY(check_tokens(tokens, b, t, v));
#pragma omp parallel for schedule(static) if (b * t * c >= CRL_SERIAL_WORK)
    for (int64_t i = 0; i < b * t; i++) {
        memcpy(y + i * c, token + tokens[i] * c, (size_t)c * sizeof(float));
        if (position != NULL)
            add_row(y + i * c, position + i % t * c, c);
    }
    return CRL_STATUS_OK;
}

static void zero_rows(float *y, int64_t rows, int64_t c) {
#pragma omp parallel for schedule(static) if (rows * c >= CRL_SERIAL_WORK)
    for (int64_t i = 0; i < rows; i++)
        memset(y + i * c, 0, (size_t)c * sizeof(float));
}

static void token_backward(const int32_t *tokens, const float *dy, float *dtoken, int64_t rows,
                           int64_t c) {
    const int64_t blocks = crl_ceil_div(c, COLUMNS);
#pragma omp parallel for schedule(static) if (rows * c >= CRL_SERIAL_WORK && blocks > 1)
    for (int64_t block = 0; block < blocks; block++) {
        const int64_t first = block * COLUMNS, columns = crl_min(COLUMNS, c - first);
        for (int64_t i = 0; i < rows; i++)
            add_row(dtoken + tokens[i] * c + first, dy + i * c + first, columns);
    }
}

static crl_status embedding_backward(crl_stream *stream, const int32_t *tokens, const void *dy_,
                                     float *dtoken, float *dposition, int64_t b, int64_t t,
                                     int64_t v, int64_t c, int64_t positions, bool accumulate) {
    const float *dy = dy_;
    (void)stream;
    CRL_TRY(check_tokens(tokens, b, t, v));
    if (dtoken != NULL) {
        if (!accumulate)
            zero_rows(dtoken, v, c);
        token_backward(tokens, dy, dtoken, b * t, c);
    }
    if (dposition != NULL) {
        if (!accumulate)
            zero_rows(dposition, positions, c);
#pragma omp parallel for schedule(static) if (b * t * c >= CRL_SERIAL_WORK)
        for (int64_t i = 0; i < t; i++) {
            for (int64_t s = 0; s < b; s++)
                add_row(dposition + i * c, dy + (s * t + i) * c, c);
        }
    }
    return CRL_STATUS_OK;
}

const crl_embedding_ops crl_embedding_cpu = {
    .forward = embedding_forward,
    .backward = embedding_backward,
};
