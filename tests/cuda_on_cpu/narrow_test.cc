// SPDX-License-Identifier: Apache-2.0
// Conversions between f32 and the tables' types.
#include "tests/cuda_on_cpu/support.h"

namespace {

using namespace cuda_test;

class CudaNarrow : public Cuda {};

// Numbers of every size, and those where rounding turns.
Floats of_all_sizes(Random &random) {
    Floats x = {0,         -0.0f,     1,         0x1p-24f,  0x1p-25f,     0x1.8p-25f, 0x1.ffcp-15f,
                0x1p-14f,  65504,     65519.99f, 65520,     -65520,       0x1p-133f,  0x1p-134f,
                0x1.01p0f, 0x1.03p0f, 0x1.01p1f, 3.389e38f, -3.3961e38f,  INFINITY,   -INFINITY,
                0x1.002p0, 0x1.006p0, 1e-45f,    0x1p-126f, 0x1.fffffep0f};
    for (int i = 0; i < 3000; i++)
        x.push_back(std::ldexp((float)random() * 0x1p-32f - 0.5f, (int)(random() % 60) - 40));
    return x;
}

TEST_F(CudaNarrow, HasTheCpusBits) {
    Random random(1);
    const Floats x = of_all_sizes(random);
    const int64_t n = (int64_t)x.size();
    for (const Type &type : kTypes) {
        const Floats before = random_floats(random, n);
        for (bool accumulate : {false, true}) {
            OnHost expected(type, before);
            EXPECT_OK(type.cpu->eltwise->narrow(nullptr, x.data(), expected.data(), n, accumulate));
            for (int shift : {0, 1}) {
                const Floats y = same_in_any_order([&] {
                    OnDevice<float> in(x, shift);
                    OnDeviceAs fresh(type, n, shift), old(type, before, shift);
                    OnDeviceAs &out = accumulate ? old : fresh;
                    EXPECT_OK(
                        type.cuda->eltwise->narrow(stream, in.data(), out.data(), n, accumulate));
                    wait();
                    return out.get();
                });
                EXPECT_TRUE(same_bits(y, expected.get())) << type.name << ", adding " << accumulate;
            }
        }
    }
}

TEST_F(CudaNarrow, WidenHasTheCpusBits) {
    Random random(2);
    const int64_t n = 1 << 16;
    const Floats before = random_floats(random, n);
    for (const Type &type : kTypes) {
        Bytes all((size_t)n * type.bytes); // every number of 16 bits
        for (int64_t i = 0; i < n && type.bytes == 2; i++) {
            const uint16_t bits = (uint16_t)i;
            std::memcpy(all.data() + 2 * i, &bits, 2);
        }
        for (bool accumulate : {false, true}) {
            Floats expected = before;
            EXPECT_OK(
                type.cpu->eltwise->widen(nullptr, all.data(), expected.data(), n, accumulate));
            OnDevice<uint8_t> in(all);
            OnDevice<float> out(before);
            EXPECT_OK(type.cuda->eltwise->widen(stream, in.data(), out.data(), n, accumulate));
            wait();
            const Floats y = out.get();
            int64_t different = 0;
            for (size_t i = 0; i < y.size(); i++) {
                const bool same = std::memcmp(&y[i], &expected[i], 4) == 0;
                different += !same && !(std::isnan(y[i]) && std::isnan(expected[i]));
            }
            EXPECT_EQ(different, 0) << type.name << ", adding " << accumulate;
        }
    }
}

TEST_F(CudaNarrow, NotANumberStays) {
    for (const Type &type : kTypes) {
        OnDevice<float> in(Floats{NAN, -NAN, 1}), out(3);
        OnDeviceAs narrow(type, 3);
        EXPECT_OK(type.cuda->eltwise->narrow(stream, in.data(), narrow.data(), 3, false));
        EXPECT_OK(type.cuda->eltwise->widen(stream, narrow.data(), out.data(), 3, false));
        wait();
        const Floats y = out.get();
        EXPECT_TRUE(std::isnan(y[0]) && std::isnan(y[1]) && y[2] == 1) << type.name;
    }
}

} // namespace
