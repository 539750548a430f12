/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Dropout: element i of a sample is kept when the i-th uniform number of its stream is at least p.
 * The numbers are those of engine/base/rng.h [salmon11], sixteen Philox blocks side by side:
 *
 *     lane j, word w  ->  element 64 tile + 4 j + w
 *
 * Refuses to store a mask: the backward pass draws the same numbers again.
 */
#include "engine/kernels/cpu/cpu_internal.h"
#include "engine/kernels/cpu/math_internal.h"
#include "engine/kernels/cpu/narrow_internal.h"

#include <math.h>
#include <string.h>

enum { WORDS = 4, TILE = CRL_LANES * WORDS };

typedef struct dropout {
    uint32_t key[2], sample, step, purpose;
    uint32_t threshold; /* kept: the number's 24 bits are at least this */
    float scale;
    bool accumulate;
} dropout;

typedef struct view {
    crl_dtype type;
    const void *x;
    void *y;
} view;

CRL_INLINE void draw(const dropout *d, uint32_t first_block, uint32_t word[WORDS][CRL_LANES]) {
    for (int j = 0; j < CRL_LANES; j++) {
        word[0][j] = first_block + (uint32_t)j;
        word[1][j] = d->sample;
        word[2][j] = d->step;
        word[3][j] = d->purpose;
    }
    uint32_t k0 = d->key[0], k1 = d->key[1];
    for (int round = 0; round < 10; round++) {
#pragma omp simd
        for (int j = 0; j < CRL_LANES; j++) {
            const uint64_t p0 = (uint64_t)0xD2511F53u * word[0][j];
            const uint64_t p1 = (uint64_t)0xCD9E8D57u * word[2][j];
            const uint32_t x1 = word[1][j], x3 = word[3][j];
            word[0][j] = (uint32_t)(p1 >> 32) ^ x1 ^ k0;
            word[1][j] = (uint32_t)p1;
            word[2][j] = (uint32_t)(p0 >> 32) ^ x3 ^ k1;
            word[3][j] = (uint32_t)p0;
        }
        k0 += 0x9E3779B9u;
        k1 += 0xBB67AE85u;
    }
}

CRL_VECTORISED static void tile(const dropout *d, uint32_t first_block, const float *x, float *y) {
    uint32_t word[WORDS][CRL_LANES] __attribute__((aligned(64)));
    uint32_t keep[TILE] __attribute__((aligned(64))); /* all bits or none */
    const uint32_t threshold = d->threshold;
    const float scale = d->scale;
    draw(d, first_block, word);
    for (int w = 0; w < WORDS; w++) {
#pragma omp simd
        for (int j = 0; j < CRL_LANES; j++)
            word[w][j] = (word[w][j] >> 8) >= threshold ? UINT32_MAX : 0;
    }
    for (int j = 0; j < CRL_LANES; j++) {
        for (int w = 0; w < WORDS; w++)
            keep[j * WORDS + w] = word[w][j];
    }
    /* A dropped element is zero whatever it was, infinite or NaN too. */
    if (d->accumulate) {
#pragma omp simd
        for (int i = 0; i < TILE; i++)
            y[i] += crl_from_bits(crl_bits(x[i] * scale) & keep[i]);
    } else {
#pragma omp simd
        for (int i = 0; i < TILE; i++)
            y[i] = crl_from_bits(crl_bits(x[i] * scale) & keep[i]);
    }
}

/* n elements of one sample, of which x and y point to the first; its index `begin` is a multiple of
 * TILE. */
static void run_piece(const dropout *d, const float *x, float *y, int64_t begin, int64_t n) {
    for (int64_t i = 0; i < n; i += TILE) {
        const uint32_t first_block = (uint32_t)((begin + i) / WORDS);
        if (n - i >= TILE) {
            tile(d, first_block, x + i, y + i);
            continue;
        }
        float x_rest[TILE] = {0}, y_rest[TILE] = {0};
        const size_t bytes = (size_t)(n - i) * sizeof(float);
        memcpy(x_rest, x + i, bytes);
        if (d->accumulate)
            memcpy(y_rest, y + i, bytes);
        tile(d, first_block, x_rest, y_rest);
        memcpy(y + i, y_rest, bytes);
    }
}

/* Elements begin..end-1 of the sample that starts at element `first` of x and y. */
static void run_block(const dropout *d, const view *v, int64_t first, int64_t begin, int64_t end) {
    crl_reader x;
    crl_writer y;
    crl_reader_init(&x, v->type, v->x);
    crl_writer_init(&y, v->type, v->y);
    for (int64_t i = begin; i < end; i += CRL_PIECE) {
        const int64_t n = crl_min(CRL_PIECE, end - i);
        float *out = crl_write_begin(&y, first + i, n, d->accumulate);
        run_piece(d, crl_read(&x, first + i, n), out, i, n);
        crl_write_end(&y, first + i, n);
    }
}

crl_status crl_dropout_run(crl_dtype type, const crl_rng *rng, double p, const void *x, void *y,
                           int64_t samples, int64_t n_per_sample, bool accumulate) {
    if (!(p >= 0 && p < 1))
        return CRL_FAIL(INVALID, "dropout: probability is %g, expected 0 <= p < 1", p);
    if (p == 0)
        return crl_convert(type, x, type, y, samples * n_per_sample, accumulate);
    CRL_ASSERT(rng->layer >> 24 == 0 && n_per_sample <= (int64_t)WORDS << 32);
    const dropout all = {
        .key = {(uint32_t)rng->seed, (uint32_t)(rng->seed >> 32)},
        .sample = rng->sample,
        .step = rng->step,
        .purpose = rng->purpose << 24 | rng->layer,
        .threshold = (uint32_t)ceil(p * 0x1p24),
        .scale = (float)(1.0 / (1.0 - p)),
        .accumulate = accumulate,
    };
    const view given = {type, x, y};
    const int64_t blocks = crl_ceil_div(n_per_sample, CRL_BLOCK);
#pragma omp parallel for schedule(static) if (samples * n_per_sample >= CRL_SERIAL_WORK)
    for (int64_t i = 0; i < samples * blocks; i++) {
        const int64_t s = i / blocks, begin = i % blocks * CRL_BLOCK;
        dropout one = all;
        one.sample += (uint32_t)s;
        run_block(&one, &given, s * n_per_sample, begin, crl_min(begin + CRL_BLOCK, n_per_sample));
    }
    return CRL_STATUS_OK;
}
