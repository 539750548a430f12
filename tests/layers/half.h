/* SPDX-License-Identifier: Apache-2.0 */
/* Numbers of the types that layers compute in, as the bytes of memory and back. Rounds to nearest
 * even through the definition of the formats, not as the kernels do it. */
#pragma once

#include <cmath>
#include <cstdint>
#include <cstring>
#include <vector>

#include "engine/tensor/tensor.h"

namespace layer_test {

/* Digits after the leading one, and the exponents of the smallest normal and the largest number. */
struct Format {
    int digits, least, most;
};

inline Format FormatOf(crl_dtype dtype) {
    switch (dtype) {
    case CRL_DTYPE_BF16:
        return {7, -126, 127};
    case CRL_DTYPE_F16:
        return {10, -14, 15};
    default:
        return {23, -126, 127};
    }
}

inline bool IsReal(crl_dtype dtype) {
    return dtype == CRL_DTYPE_F32 || dtype == CRL_DTYPE_BF16 || dtype == CRL_DTYPE_F16;
}

/* Distance of two neighbours around 1; 0 for f32, whose rounding other tolerances cover. */
inline double Unit(crl_dtype dtype) {
    return dtype == CRL_DTYPE_BF16 || dtype == CRL_DTYPE_F16
               ? std::ldexp(1.0, -FormatOf(dtype).digits)
               : 0;
}

inline float Round(crl_dtype dtype, float x) {
    if (dtype != CRL_DTYPE_BF16 && dtype != CRL_DTYPE_F16) {
        return x;
    }
    const Format format = FormatOf(dtype);
    int exponent;
    if (x == 0 || !std::isfinite(x)) {
        return x;
    }
    std::frexp(x, &exponent);
    const int place = std::max(exponent - 1, format.least) - format.digits;
    const double rounded = std::ldexp(std::nearbyint(std::ldexp((double)x, -place)), place);
    const double largest = std::ldexp(2.0 - std::ldexp(1.0, -format.digits), format.most);
    return std::abs(rounded) > largest ? std::copysign(INFINITY, x) : (float)rounded;
}

inline std::vector<float> Rounded(crl_dtype dtype, std::vector<float> values) {
    for (float &value : values) {
        value = Round(dtype, value);
    }
    return values;
}

/* The float whose sign, exponent and digits are those of 16 bits of the format. */
inline float Widen16(crl_dtype dtype, uint16_t bits) {
    const Format format = FormatOf(dtype);
    const int raw = (bits & 0x7fff) >> format.digits, digits = bits & ((1 << format.digits) - 1);
    const double sign = bits >> 15 ? -1 : 1;
    if (raw == format.most - format.least + 2) {
        return digits != 0 ? NAN : (float)(sign * INFINITY);
    }
    const double leading = raw == 0 ? 0 : 1;
    const int exponent = raw == 0 ? format.least : raw + format.least - 1;
    return (float)(sign *
                   std::ldexp(leading + std::ldexp((double)digits, -format.digits), exponent));
}

/* `x` is a number of the format. */
inline uint16_t Narrow16(crl_dtype dtype, float x) {
    const Format format = FormatOf(dtype);
    const auto sign = (uint16_t)(std::signbit(x) ? 0x8000 : 0);
    const auto top = (uint16_t)((format.most - format.least + 2) << format.digits);
    if (!std::isfinite(x)) {
        return (uint16_t)(sign | top | (std::isnan(x) ? 1 : 0));
    }
    int exponent;
    const double fraction = std::abs(std::frexp((double)x, &exponent));
    if (fraction == 0 || exponent - 1 < format.least) {
        return (uint16_t)(sign |
                          (int)std::ldexp(std::abs((double)x), format.digits - format.least));
    }
    const int digits = (int)std::ldexp(fraction * 2 - 1, format.digits);
    return (uint16_t)(sign | (exponent - format.least) << format.digits | digits);
}

/* Integers are carried as the bits of floats. */
inline std::vector<uint8_t> Encode(crl_dtype dtype, const std::vector<float> &values) {
    const size_t width = crl_dtype_bytes(dtype);
    std::vector<uint8_t> out(values.size() * width);
    for (size_t i = 0; i < values.size(); ++i) {
        if (width == 2) {
            const uint16_t bits = Narrow16(dtype, Round(dtype, values[i]));
            std::memcpy(&out[i * width], &bits, width);
        } else {
            std::memcpy(&out[i * width], &values[i], width);
        }
    }
    return out;
}

inline std::vector<float> Decode(crl_dtype dtype, const std::vector<uint8_t> &bytes) {
    const size_t width = crl_dtype_bytes(dtype);
    std::vector<float> out(bytes.size() / width);
    for (size_t i = 0; i < out.size(); ++i) {
        if (width == 2) {
            uint16_t bits;
            std::memcpy(&bits, &bytes[i * width], width);
            out[i] = Widen16(dtype, bits);
        } else {
            std::memcpy(&out[i], &bytes[i * width], width);
        }
    }
    return out;
}

} // namespace layer_test
