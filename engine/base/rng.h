/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Counter-based random numbers: Philox4x32-10 [salmon11]. A number is a pure function of
 * (seed, purpose, layer, step, sample, element), never of a rank, a thread or what was drawn
 * before.
 */
#pragma once

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef enum crl_rng_purpose {
    CRL_RNG_INIT = 1,
    CRL_RNG_DROPOUT = 2,
    CRL_RNG_SHUFFLE = 3,
    CRL_RNG_SAMPLE = 4, /* generating text */
    CRL_RNG_TEST = 5
} crl_rng_purpose;

/* Everything but the element: which stream of numbers. */
typedef struct crl_rng {
    uint64_t seed;
    uint32_t purpose; /* crl_rng_purpose */
    uint32_t layer;   /* < 2^24: index of the node or parameter in the whole model */
    uint32_t step;
    uint32_t sample; /* position in the global batch */
} crl_rng;

/* One Philox block: 128 bits of counter and 64 of key to 128 random bits. */
void crl_philox4x32(const uint32_t counter[4], const uint32_t key[2], uint32_t out[4]);
/* The four numbers of elements 4*block .. 4*block+3. */
void crl_rng_block(const crl_rng *rng, uint32_t block, uint32_t out[4]);
/* Element i of the stream: uniform in [0,1) with 24 bits, and standard normal (Box-Muller). */
float crl_rng_uniform(const crl_rng *rng, uint64_t element);
/* Elements 0..count-1 of the stream, uniform in [low, high). */
void crl_rng_fill_uniform(const crl_rng *rng, float *out, int64_t count, float low, float high);
/* Elements 0..count-1 of the stream, normal with this mean and deviation. */
void crl_rng_fill_normal(const crl_rng *rng, float *out, int64_t count, float mean,
                         float deviation);
/* A pseudo-random permutation of 0..count-1, the same for the same stream. */
void crl_rng_permutation(const crl_rng *rng, int64_t *out, int64_t count);

#ifdef __cplusplus
}
#endif
