/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Token and position embedding. The gradient of the token table is split by columns, not by tokens:
 * each task adds its columns of all rows in the order of (b,t), whatever tokens repeat. Refuses
 * tokens outside the vocabulary before anything is written.
 */
#include "engine/kernels/cpu/cpu_internal.h"
#include "engine/kernels/cpu/narrow_internal.h"

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

/* y = token + position, piece by piece. */
static void forward_row(crl_dtype type, const void *token, const void *position, void *y,
                        int64_t c) {
    crl_reader part;
    crl_writer out;
    crl_writer_init(&out, type, y);
    for (int64_t j = 0; j < c; j += CRL_PIECE) {
        const int64_t n = crl_min(CRL_PIECE, c - j);
        float *sum = crl_write_begin(&out, j, n, false);
        crl_widen(type, crl_at(type, token, j), sum, n);
        crl_reader_init(&part, type, position);
        add_row(sum, crl_read(&part, j, n), n);
        crl_write_end(&out, j, n);
    }
}

static crl_status forward(crl_dtype type, const int32_t *tokens, const void *token,
                          const void *position, void *y, const int64_t sizes[4]) {
    const int64_t rows = sizes[0] * sizes[1], t = sizes[1], c = sizes[3];
    const size_t row_bytes = (size_t)c * crl_dtype_bytes(type);
    CRL_TRY(check_tokens(tokens, sizes[0], t, sizes[2]));
#pragma omp parallel for schedule(static) if (rows * c >= CRL_SERIAL_WORK)
    for (int64_t i = 0; i < rows; i++) {
        const void *row = crl_at(type, token, tokens[i] * c);
        void *out = crl_at_mutable(type, y, i * c);
        if (position == NULL)
            memcpy(out, row, row_bytes);
        else
            forward_row(type, row, crl_at(type, position, i % t * c), out, c);
    }
    return CRL_STATUS_OK;
}

static void zero_rows(float *y, int64_t rows, int64_t c) {
#pragma omp parallel for schedule(static) if (rows * c >= CRL_SERIAL_WORK)
    for (int64_t i = 0; i < rows; i++)
        memset(y + i * c, 0, (size_t)c * sizeof(float));
}

static void token_backward(crl_dtype type, const int32_t *tokens, const void *dy, float *dtoken,
                           int64_t rows, int64_t c) {
    const int64_t blocks = crl_ceil_div(c, COLUMNS);
#pragma omp parallel for schedule(static) if (rows * c >= CRL_SERIAL_WORK && blocks > 1)
    for (int64_t block = 0; block < blocks; block++) {
        const int64_t first = block * COLUMNS, columns = crl_min(COLUMNS, c - first);
        crl_reader part;
        crl_reader_init(&part, type, dy);
        for (int64_t i = 0; i < rows; i++)
            add_row(dtoken + tokens[i] * c + first, crl_read(&part, i * c + first, columns),
                    columns);
    }
}

/* Row i of the positions' gradient: that of every sample, in order. */
static void position_backward(crl_dtype type, const void *dy, float *row, int64_t i,
                              const int64_t sizes[4]) {
    const int64_t b = sizes[0], t = sizes[1], c = sizes[3];
    crl_reader part;
    crl_reader_init(&part, type, dy);
    for (int64_t s = 0; s < b; s++) {
        for (int64_t j = 0; j < c; j += CRL_PIECE) {
            const int64_t n = crl_min(CRL_PIECE, c - j);
            add_row(row + j, crl_read(&part, (s * t + i) * c + j, n), n);
        }
    }
}

static crl_status backward(crl_dtype type, const int32_t *tokens, const void *dy, float *dtoken,
                           float *dposition, const int64_t sizes[4], int64_t positions,
                           bool accumulate) {
    const int64_t rows = sizes[0] * sizes[1], t = sizes[1], v = sizes[2], c = sizes[3];
    CRL_TRY(check_tokens(tokens, sizes[0], t, v));
    if (dtoken != NULL) {
        if (!accumulate)
            zero_rows(dtoken, v, c);
        token_backward(type, tokens, dy, dtoken, rows, c);
    }
    if (dposition != NULL) {
        if (!accumulate)
            zero_rows(dposition, positions, c);
#pragma omp parallel for schedule(static) if (rows * c >= CRL_SERIAL_WORK)
        for (int64_t i = 0; i < t; i++)
            position_backward(type, dy, dposition + i * c, i, sizes);
    }
    return CRL_STATUS_OK;
}

/* The entries of one table (see CRL_TABLES). */
#define ENTRIES(suffix, TYPE)                                                                      \
    static crl_status forward_##suffix(crl_stream *stream, const int32_t *tokens,                  \
                                       const void *token, const void *position, void *y,           \
                                       int64_t b, int64_t t, int64_t v, int64_t c) {               \
        (void)stream;                                                                              \
        return forward(TYPE, tokens, token, position, y, (const int64_t[4]){b, t, v, c});          \
    }                                                                                              \
    static crl_status backward_##suffix(crl_stream *stream, const int32_t *tokens, const void *dy, \
                                        float *dtoken, float *dposition, int64_t b, int64_t t,     \
                                        int64_t v, int64_t c, int64_t positions,                   \
                                        bool accumulate) {                                         \
        (void)stream;                                                                              \
        const int64_t sizes[4] = {b, t, v, c};                                                     \
        return backward(TYPE, tokens, dy, dtoken, dposition, sizes, positions, accumulate);        \
    }                                                                                              \
    const crl_embedding_ops crl_embedding_cpu_##suffix = {.forward = forward_##suffix,             \
                                                          .backward = backward_##suffix};
CRL_TABLES(ENTRIES)
