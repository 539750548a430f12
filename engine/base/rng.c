/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Philox4x32-10 [salmon11] and what is made of its blocks. Refuses to keep a state.
 *
 *     key     = {seed low, seed high}
 *     counter = {element / 4, sample, step, purpose << 24 | layer}
 *
 * Element e of a stream is word e % 4 of block e / 4, so a stream has 2^34 elements.
 * Normals come in pairs (2k, 2k+1) by Box-Muller from words 2k and 2k+1, computed in double and
 * rounded once: an error in the last places of log, sin or cos does not reach the float.
 */
#include "engine/base/rng.h"

#include "engine/base/status.h"

#include <math.h>

enum { ROUNDS = 10, BLOCK = 4, LAYER_BITS = 24 };

static const uint32_t multiplier_0 = 0xD2511F53u, multiplier_1 = 0xCD9E8D57u;
static const uint32_t weyl_0 = 0x9E3779B9u, weyl_1 = 0xBB67AE85u;

void crl_philox4x32(const uint32_t counter[4], const uint32_t key[2], uint32_t out[4]) {
    uint32_t x0 = counter[0], x1 = counter[1], x2 = counter[2], x3 = counter[3];
    uint32_t k0 = key[0], k1 = key[1];
    for (int round = 0; round < ROUNDS; ++round) {
        const uint64_t p0 = (uint64_t)multiplier_0 * x0, p1 = (uint64_t)multiplier_1 * x2;
        x0 = (uint32_t)(p1 >> 32) ^ x1 ^ k0;
        x1 = (uint32_t)p1;
        x2 = (uint32_t)(p0 >> 32) ^ x3 ^ k1;
        x3 = (uint32_t)p0;
        k0 += weyl_0;
        k1 += weyl_1;
    }
    out[0] = x0;
    out[1] = x1;
    out[2] = x2;
    out[3] = x3;
}

void crl_rng_block(const crl_rng *rng, uint32_t block, uint32_t out[4]) {
    const uint32_t key[2] = {(uint32_t)rng->seed, (uint32_t)(rng->seed >> 32)};
    const uint32_t counter[4] = {block, rng->sample, rng->step,
                                 rng->purpose << LAYER_BITS | rng->layer};
    CRL_ASSERT(rng->layer >> LAYER_BITS == 0);
    crl_philox4x32(counter, key, out);
}

static uint32_t block_of(uint64_t element) {
    CRL_ASSERT(element / BLOCK <= UINT32_MAX);
    return (uint32_t)(element / BLOCK);
}

/* [0,1) in steps of 2^-24: every value is exact in float. */
static float unit(uint32_t word) {
    return (float)(word >> 8) * 0x1p-24f;
}

float crl_rng_uniform(const crl_rng *rng, uint64_t element) {
    uint32_t word[BLOCK];
    crl_rng_block(rng, block_of(element), word);
    return unit(word[element % BLOCK]);
}

/* The block's normals, two by two. */
static void normal_block(const uint32_t word[BLOCK], double out[BLOCK]) {
    const double turn = 6.283185307179586476925;
    for (int i = 0; i < BLOCK; i += 2) {
        const double positive = ((double)word[i] + 1.0) * 0x1p-32; /* (0,1]: log stays finite */
        const double radius = sqrt(-2.0 * log(positive));
        const double angle = turn * ((double)word[i + 1] * 0x1p-32);
        out[i] = radius * cos(angle);
        out[i + 1] = radius * sin(angle);
    }
}

void crl_rng_fill_uniform(const crl_rng *rng, float *out, int64_t count, float low, float high) {
    const double width = (double)high - (double)low;
    for (int64_t begin = 0; begin < count; begin += BLOCK) {
        uint32_t word[BLOCK];
        crl_rng_block(rng, block_of((uint64_t)begin), word);
        const int used = count - begin < BLOCK ? (int)(count - begin) : BLOCK;
        for (int i = 0; i < used; ++i) {
            const float x = (float)((double)low + width * (double)unit(word[i]));
            /* Rounding may reach the open end. */
            out[begin + i] = x < high || high <= low ? x : nextafterf(high, low);
        }
    }
}

void crl_rng_fill_normal(const crl_rng *rng, float *out, int64_t count, float mean,
                         float deviation) {
    for (int64_t begin = 0; begin < count; begin += BLOCK) {
        uint32_t word[BLOCK];
        double normal[BLOCK];
        crl_rng_block(rng, block_of((uint64_t)begin), word);
        normal_block(word, normal);
        const int used = count - begin < BLOCK ? (int)(count - begin) : BLOCK;
        for (int i = 0; i < used; ++i) {
            out[begin + i] = (float)((double)mean + (double)deviation * normal[i]);
        }
    }
}

/*
 * Fisher-Yates, O(count): the swap of place i draws from words 2(i % 2) and 2(i % 2) + 1 of block
 * i / 2. The choice among i + 1 places is the high half of a 64 x 64 bit product, whose bias is
 * below (i + 1) / 2^64: far less than could be seen in any number of epochs.
 */
void crl_rng_permutation(const crl_rng *rng, int64_t *out, int64_t count) {
    for (int64_t i = 0; i < count; ++i) {
        out[i] = i;
    }
    uint32_t word[BLOCK];
    for (int64_t i = count - 1; i > 0; --i) {
        const int64_t pair = i % 2;
        if (pair == 1 || i == count - 1) {
            crl_rng_block(rng, block_of((uint64_t)i * 2), word);
        }
        const uint64_t random = (uint64_t)word[2 * pair] << 32 | word[2 * pair + 1];
        const int64_t j = (int64_t)((unsigned __int128)random * (uint64_t)(i + 1) >> 64);
        const int64_t kept = out[i];
        out[i] = out[j];
        out[j] = kept;
    }
}
