/* SPDX-License-Identifier: Apache-2.0 */
/* The arithmetic of one tile of attention scores, between its matrix products. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

enum { CRL_TILE = 64 }; /* queries × keys of one tile */

/* A tile of scores: `rows` queries by `columns` keys, rows CRL_TILE apart. On the diagonal of a
 * causal mask, query r sees the keys 0..r only. */
typedef struct crl_tile {
    int64_t rows, columns;
    bool diagonal;
    float scale;
} crl_tile;

/* Running softmax of CRL_TILE queries. */
typedef struct crl_softmax {
    float largest[CRL_TILE]; /* of the scaled scores so far */
    float sum[CRL_TILE];     /* of e^(score - largest) */
} crl_softmax;

/* s becomes e^(scale s - new largest), zero where masked; y, the outputs so far (rows, d), is
 * scaled to the new largest. `first`: nothing came before, y is not touched. */
void crl_tile_softmax(const crl_tile *tile, bool first, float *s, crl_softmax *softmax, float *y,
                      int64_t d);
/* y = output / sum (rows `y_row` apart), lse = largest + log(sum) */
void crl_tile_finish(int64_t rows, const crl_softmax *softmax, const float *output, float *y,
                     int64_t y_row, int64_t d, float *lse);
/* s becomes p = e^(scale s - lse), zero where masked */
void crl_tile_probability(const crl_tile *tile, float *s, const float *lse);
/* dp becomes ds = p (dp - delta) scale */
void crl_tile_gradient(const crl_tile *tile, const float *p, float *dp, const float *delta);
/* delta[r] = sum over d of y·dy, rows `row` apart */
void crl_tile_delta(int64_t rows, const float *y, const float *dy, int64_t row, int64_t d,
                    float *delta);
