// SPDX-License-Identifier: Apache-2.0
// The part of CUDA's <cuda_fp16.h> that the kernels use, for g++: 1 sign bit, 5 of exponent, 10 of
// mantissa.
#pragma once

#include <stdint.h>
#include <string.h>

struct __half {
    uint16_t bits;
};

inline float __half2float(__half x) {
    const uint32_t sign = (uint32_t)(x.bits & 0x8000) << 16, rest = x.bits & 0x7fff;
    uint32_t bits = sign | ((rest << 13) + 0x38000000);
    float value;
    if (rest >= 0x7c00)
        bits = sign | 0x7f800000 | (rest & 0x3ff) << 13;
    memcpy(&value, &bits, sizeof value);
    if (rest < 0x400) // subnormal: whole multiples of 2^-24
        value = (sign ? -0x1p-24f : 0x1p-24f) * (float)rest;
    return value;
}

// To the nearest, of two the even one; what is 65520 or more becomes infinite, every NaN one NaN.
inline __half __float2half_rn(float value) {
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    const uint16_t sign = (uint16_t)(bits >> 16 & 0x8000);
    bits &= 0x7fffffff;
    if (bits > 0x7f800000)
        return {0x7fff};
    if (bits >= 0x477ff000)
        return {(uint16_t)(sign | 0x7c00)};
    if (bits < 0x38800000) { // below 2^-14; a sum with 1/2 has a last place of 2^-24
        float sum;
        memcpy(&sum, &bits, sizeof sum);
        sum += 0.5f;
        memcpy(&bits, &sum, sizeof bits);
        return {(uint16_t)(sign | (bits - 0x3f000000))};
    }
    return {(uint16_t)(sign | ((bits + 0xfff + (bits >> 13 & 1) - 0x38000000) >> 13))};
}
