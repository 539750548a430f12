/* SPDX-License-Identifier: Apache-2.0 */
/* Exponential and what follows from it, written so that a loop over them vectorises. */
#pragma once

#include "engine/kernels/cpu/cpu_internal.h"

#include <string.h>

/* e^x within 2 units in the last place; below -87.3 and above 88.3 x is held at the bound, so the
 * result is never zero, denormal or infinite. NaN stays NaN. */
CRL_INLINE float crl_exp(float x) {
    const float lowest = -87.3f, highest = 88.3f;
    const float log2_e = 1.44269504f, ln2_high = 0.693359375f, ln2_low = -2.12194440e-4f;
    const float round_by = 12582912.0f; /* 1.5 · 2^23: adding it leaves no fraction bits */
    x = x < lowest ? lowest : x;
    x = x > highest ? highest : x;
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
    int32_t bits;
    memcpy(&bits, &shifted, sizeof bits);
    bits = (int32_t)((uint32_t)(bits + 127) << 23); /* the low bits of `shifted` count n */
    float scale;
    memcpy(&scale, &bits, sizeof scale);
    return p * scale;
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
