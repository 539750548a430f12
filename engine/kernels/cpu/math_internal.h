/* SPDX-License-Identifier: Apache-2.0 */
/* Exponential and what follows from it, written so that a loop over them vectorises. */
#pragma once

#include "engine/kernels/cpu/cpu_internal.h"

#include <string.h>

CRL_INLINE uint32_t crl_bits(float x) {
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    return bits;
}

CRL_INLINE float crl_from_bits(uint32_t bits) {
    float x;
    memcpy(&x, &bits, sizeof x);
    return x;
}

/* `negative` where x < 0 or -0, else `other`; without a branch too. */
CRL_INLINE float crl_by_sign(float x, float negative, float other) {
    const uint32_t mask = (uint32_t)((int32_t)crl_bits(x) >> 31);
    return crl_from_bits((crl_bits(negative) & mask) | (crl_bits(other) & ~mask));
}

/* x held in -bound..bound; NaN becomes a bound. On the bits, because a compiler turns comparisons
 * with constants into branches, and those keep loops from being vectorised. */
CRL_INLINE float crl_hold(float x, float bound) {
    const uint32_t lowest = crl_bits(-bound); /* of the negative numbers, the largest bits */
    const int32_t highest = (int32_t)crl_bits(bound);
    const uint32_t raised = crl_bits(x) < lowest ? crl_bits(x) : lowest;
    const int32_t held = (int32_t)raised < highest ? (int32_t)raised : highest;
    return crl_from_bits((uint32_t)held);
}

/* e^x within 2 units in the last place; beyond -87.3 and 87.3 x is held at the bound, so the result
 * is never zero, denormal or infinite. NaN stays NaN. */
CRL_INLINE float crl_exp(float x) {
    const float log2_e = 1.44269504f, ln2_high = 0.693359375f, ln2_low = -2.12194440e-4f;
    const float round_by = 12582912.0f; /* 1.5 · 2^23: adding it leaves no fraction bits */
    const uint32_t nan_bits = x != x ? 0x7fc00000u : 0;
    x = crl_hold(x, 87.3f);
    const float shifted = x * log2_e + round_by;
    const float n = shifted - round_by;
    const float r = (x - n * ln2_high) - n * ln2_low;
    float p = 1.3836699781e-03f;
    p = p * r + 8.3748981256e-03f;
    p = p * r + 4.1668232558e-02f;
    p = p * r + 1.6666419194e-01f;
    p = p * r + 4.9999992029e-01f;
    p = p * r + 1.0f;
    p = p * r + 1.0f;
    /* The low bits of `shifted` count n. */
    const float scale = crl_from_bits((crl_bits(shifted) + 127u) << 23);
    return crl_from_bits(crl_bits(p * scale) | nan_bits);
}

/* The normal distribution's upper tail Q(z √2) = erfc(z)/2 for z >= 0, given e^(-z^2): a polynomial
 * in t = 1/(1 + 0.4 z), relative error below 1e-8 before rounding. */
CRL_INLINE float crl_normal_tail(float z, float exp_minus_z2) {
    const float t = 1.0f / (1.0f + 0.4f * z);
    float p = -3.059900454e-02f;
    p = p * t + 2.034943065e-01f;
    p = p * t + -5.117661251e-01f;
    p = p * t + 5.648110990e-01f;
    p = p * t + -2.989122553e-01f;
    p = p * t + 2.799312864e-01f;
    p = p * t + 1.269380268e-01f;
    p = p * t + 2.155121069e-01f;
    p = p * t + 2.248799032e-01f;
    p = p * t + 2.257106627e-01f;
    return 0.5f * t * p * exp_minus_z2;
}
