// SPDX-License-Identifier: Apache-2.0
// Conversions to and from 16 bits, beside their definition in double.
#include "tests/kernels/support.h"

#include <algorithm>

extern "C" {
#include "engine/kernels/cpu/narrow_internal.h"
}

namespace {

using namespace kernels_test;

struct Format {
    const crl_kernels *table;
    int exponent_bits, mantissa_bits;
};

const Format kFormats[] = {{crl_backend_cpu.bf16, 8, 7}, {crl_backend_cpu.f16, 5, 10}};

double value_of(const Format &f, uint16_t bits) {
    const int bias = (1 << (f.exponent_bits - 1)) - 1, special = (1 << f.exponent_bits) - 1;
    const int mantissa = bits & ((1 << f.mantissa_bits) - 1);
    const int exponent = bits >> f.mantissa_bits & special;
    const double sign = bits & 0x8000 ? -1 : 1;
    if (exponent == special)
        return mantissa == 0 ? sign * INFINITY : NAN;
    if (exponent == 0)
        return sign * std::ldexp(mantissa, 1 - bias - f.mantissa_bits);
    return sign * std::ldexp(mantissa + (1 << f.mantissa_bits), exponent - bias - f.mantissa_bits);
}

// Nearest, ties to even; beyond the largest number by half a unit or more, infinite.
uint16_t nearest(const Format &f, float x) {
    const int bias = (1 << (f.exponent_bits - 1)) - 1;
    const uint16_t sign = std::signbit(x) ? 0x8000 : 0;
    const uint16_t infinity = (uint16_t)(((1 << f.exponent_bits) - 1) << f.mantissa_bits);
    const double magnitude = std::fabs((double)x);
    if (magnitude == 0)
        return sign;
    if (std::isinf(magnitude))
        return sign | infinity;
    const int exponent = std::max(std::ilogb(magnitude), 1 - bias);
    const double units = std::nearbyint(std::ldexp(magnitude, f.mantissa_bits - exponent));
    const int64_t bits = (int64_t)units + ((int64_t)(exponent + bias - 1) << f.mantissa_bits);
    return sign | (uint16_t)std::min<int64_t>(bits, infinity);
}

// On the bits, or by what the machine has.
void widen(const Format &f, bool plain, const std::vector<uint16_t> &x, float *y) {
    if (plain)
        crl_widen_plain(f.table->dtype, x.data(), y, (int64_t)x.size());
    else
        EXPECT_OK(f.table->eltwise->widen(nullptr, x.data(), y, (int64_t)x.size(), false));
}
std::vector<uint16_t> narrow(const Format &f, bool plain, std::vector<float> x) {
    const size_t n = x.size(), whole = (n + 15) / 16 * 16;
    std::vector<uint16_t> y(whole);
    x.resize(whole);
    if (plain)
        crl_narrow_plain(f.table->dtype, x.data(), y.data(), (int64_t)whole);
    else
        EXPECT_OK(f.table->eltwise->narrow(nullptr, x.data(), y.data(), (int64_t)n, false));
    return y;
}

TEST(KernelsNarrow, WidensAllValuesExactly) {
    for (int way = 0; way < 4; way++) {
        const Format &f = kFormats[way / 2];
        const bool plain = way % 2 != 0;
        std::vector<uint16_t> x(1 << 16);
        for (size_t i = 0; i < x.size(); i++)
            x[i] = (uint16_t)i;
        Floats y((int64_t)x.size());
        widen(f, plain, x, y.data());
        for (int64_t i = 0; i < y.size(); i++) {
            const double want = value_of(f, (uint16_t)i);
            if (std::isnan(want))
                ASSERT_TRUE(std::isnan(y[i])) << i;
            else
                ASSERT_EQ(y[i], want) << i;
            ASSERT_EQ(std::signbit(y[i]), (i & 0x8000) != 0) << i;
        }
        const std::vector<uint16_t> back =
            narrow(f, plain, std::vector<float>(y.data(), y.data() + y.size()));
        for (size_t i = 0; i < x.size(); i++) {
            if (!std::isnan(y[(int64_t)i])) {
                ASSERT_EQ(back[i], x[i]);
            }
        }
    }
}

// Every value, what lies halfway to the next, and the floats next to both; and random bits.
std::vector<float> interesting(const Format &f) {
    std::vector<float> x;
    for (int bits = 0; bits < 1 << 15; bits++) {
        const double a = value_of(f, (uint16_t)bits), b = value_of(f, (uint16_t)(bits + 1));
        for (const double v : {a, (a + b) / 2}) {
            const float near = (float)v;
            for (float y :
                 {std::nextafterf(near, -INFINITY), near, std::nextafterf(near, INFINITY)})
                if (!std::isnan(y))
                    x.insert(x.end(), {y, -y});
        }
    }
    std::mt19937 random(1);
    for (int i = 0; i < 1 << 20; i++) {
        const uint32_t bits = (uint32_t)random();
        float y;
        std::memcpy(&y, &bits, sizeof y);
        if (!std::isnan(y))
            x.push_back(y);
    }
    for (float y : {65504.0f, 65519.99f, 65520.0f, 1e30f, 3.4e38f, 1e-45f, 0x1p-25f, 0x1.8p-25f})
        x.insert(x.end(), {y, -y});
    return x;
}

TEST(KernelsNarrow, RoundsToNearestEven) {
    for (int way = 0; way < 4; way++) {
        const Format &f = kFormats[way / 2];
        const std::vector<float> x = interesting(f);
        const std::vector<uint16_t> y = narrow(f, way % 2 != 0, x);
        for (size_t i = 0; i < x.size(); i++)
            ASSERT_EQ(y[i], nearest(f, x[i])) << f.mantissa_bits << " bits, x " << x[i];
    }
}

TEST(KernelsNarrow, KeepsNanQuiet) {
    for (int way = 0; way < 4; way++) {
        const Format &f = kFormats[way / 2];
        std::vector<uint32_t> bits;
        for (uint32_t mantissa : {1u, 0x1fffu, 0xffffu, 0x400000u, 0x7fffffu})
            bits.insert(bits.end(), {0x7f800000u | mantissa, 0xff800000u | mantissa});
        std::vector<float> x(bits.size());
        std::memcpy(x.data(), bits.data(), bits.size() * sizeof(float));
        const std::vector<uint16_t> y = narrow(f, way % 2 != 0, x);
        for (size_t i = 0; i < x.size(); i++) {
            EXPECT_TRUE(std::isnan(value_of(f, y[i]))) << i;
            EXPECT_TRUE(y[i] >> (f.mantissa_bits - 1) & 1) << i;
            EXPECT_EQ(y[i] >> 15, bits[i] >> 31) << i;
        }
    }
}

TEST(KernelsNarrow, AddsBeforeItRounds) {
    Random random(2);
    for (const crl_kernels *k : narrow_tables()) {
        const Floats x = random_floats(random, 4099),
                     before = rounded(*k, random_floats(random, 4099));
        Typed y(*k, before);
        EXPECT_OK(k->eltwise->narrow(nullptr, x.data(), y.data(), x.size(), true));
        Floats sum(x.size()), wide = x;
        for (int64_t i = 0; i < x.size(); i++)
            sum[i] = x[i] + before[i];
        EXPECT_TRUE(same_bits(y.floats(), rounded(*k, sum)));
        EXPECT_OK(
            k->eltwise->widen(nullptr, Typed(*k, before).data(), wide.data(), x.size(), true));
        EXPECT_TRUE(same_bits(wide, sum));
    }
}

} // namespace
