/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Philox4x32-10 [salmon11] and what is made of its blocks. Refuses to keep a state.
 *
 *     key     = {seed low, seed high}
 *     counter = {element / 4, sample, step, purpose << 24 | layer}
 *
 * Element e of a stream is word e % 4 of block e / 4, so a stream has 2^34 elements.
 * Normals come in pairs (2k, 2k+1) by Box-Muller from words 2k and 2k+1, computed in double and
 * rounded once. Logarithm, sine and cosine are our own series, good to 1e-14: those of libm differ
 * in the last place between versions and processors, and hosts would start from other parameters.
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

/* ln((word + 1) / 2^32): the argument lies in (0,1], so the logarithm stays finite. With the
 * mantissa m brought to [1/sqrt 2, sqrt 2) and f = (m - 1) / (m + 1): ln m = 2 (f + f^3/3 + f^5/5 +
 * ...). */
static double log_unit(uint32_t word) {
    static const double ln_2 = 0.693147180559945309417, sqrt_2 = 1.41421356237309504880;
    const uint64_t whole = (uint64_t)word + 1;
    int exponent = 63 - __builtin_clzll(whole);
    double m = (double)whole / (double)(UINT64_C(1) << exponent);
    if (m >= sqrt_2) {
        m *= 0.5;
        ++exponent;
    }
    const double f = (m - 1.0) / (m + 1.0), s = f * f;
    double sum = 0.0;
    for (int n = 19; n >= 1; n -= 2) {
        sum = sum * s + 1.0 / n;
    }
    return (exponent - 32) * ln_2 + 2.0 * f * sum;
}

/* Sine and cosine of word / 2^32 turns: exact reduction to an eighth of a turn about the nearest
 * quarter, Taylor series there. */
static void sincos_turns(uint32_t word, double *sine, double *cosine) {
    static const double unit_angle = 6.283185307179586476925 / 4294967296.0;
    const uint32_t quarter = (word + (UINT32_C(1) << 29)) >> 30;
    const double a = (double)(int32_t)(word - (quarter << 30)) * unit_angle, z = a * a;
    double s = 1.0, c = 1.0;
    for (int n = 16; n >= 2; n -= 2) {
        s = 1.0 - s * z * (1.0 / (n * (n + 1)));
        c = 1.0 - c * z * (1.0 / (n * (n - 1)));
    }
    s *= a;
    const double first = quarter & 1 ? c : s, second = quarter & 1 ? s : c;
    *sine = quarter & 2 ? -first : first;
    *cosine = (quarter + 1) & 2 ? -second : second;
}

/* The block's normals, two by two. */
static void normal_block(const uint32_t word[BLOCK], double out[BLOCK]) {
    for (int i = 0; i < BLOCK; i += 2) {
        const double radius = sqrt(-2.0 * log_unit(word[i]));
        double sine, cosine;
        sincos_turns(word[i + 1], &sine, &cosine);
        out[i] = radius * cosine;
        out[i + 1] = radius * sine;
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
