/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/layers/half.h"

#include <gtest/gtest.h>

namespace layer_test {
namespace {

TEST(LayersHalf, EveryNumberSurvivesTheWayThroughF32) {
    for (const crl_dtype dtype : {CRL_DTYPE_BF16, CRL_DTYPE_F16}) {
        for (uint32_t bits = 0; bits < 1u << 16; ++bits) {
            const float x = Widen16(dtype, (uint16_t)bits);
            if (!std::isnan(x)) {
                ASSERT_EQ(Round(dtype, x), x) << bits;
                ASSERT_EQ(Narrow16(dtype, x), bits) << crl_dtype_name(dtype);
            }
        }
    }
}

TEST(LayersHalf, KnownNumbers) {
    EXPECT_EQ(Narrow16(CRL_DTYPE_BF16, 1), 0x3f80);
    EXPECT_EQ(Narrow16(CRL_DTYPE_BF16, -2.5f), 0xc020);
    EXPECT_EQ(Narrow16(CRL_DTYPE_F16, 1), 0x3c00);
    EXPECT_EQ(Narrow16(CRL_DTYPE_F16, 65504), 0x7bff);
    EXPECT_EQ(Narrow16(CRL_DTYPE_F16, 0x1p-24f), 0x0001);
    EXPECT_EQ(Round(CRL_DTYPE_BF16, 1 + 0x1p-8f), 1) << "ties go to even";
    EXPECT_EQ(Round(CRL_DTYPE_BF16, 1 + 0x3p-8f), 1 + 0x1p-6f);
    EXPECT_EQ(Round(CRL_DTYPE_BF16, 1 + 0x1.01p-8f), 1 + 0x1p-7f);
    EXPECT_EQ(Round(CRL_DTYPE_F16, 65520), INFINITY);
    EXPECT_EQ(Round(CRL_DTYPE_F16, 0x1p-26f), 0);
}

} // namespace
} // namespace layer_test
