// SPDX-License-Identifier: Apache-2.0
#include "engine/base/units.h"

#include <gtest/gtest.h>

namespace {

TEST(BaseUnits, BytesHaveTheLargestUnitBelow) {
    char text[CRL_UNITS_BYTES];
    EXPECT_STREQ(crl_units_bytes(text, 0), "0 B");
    EXPECT_STREQ(crl_units_bytes(text, 1023), "1023 B");
    EXPECT_STREQ(crl_units_bytes(text, 1024), "1.0 KiB");
    EXPECT_STREQ(crl_units_bytes(text, 150.0 * 1024 * 1024), "150 MiB");
    EXPECT_STREQ(crl_units_bytes(text, 1e100), "8.882e+84 PiB");
}

TEST(BaseUnits, ExactBytesAreRoundedUp) {
    char text[CRL_UNITS_EXACT_BYTES];
    EXPECT_STREQ(crl_units_exact_bytes(text, 0.5), "1 bytes");
    EXPECT_STREQ(crl_units_exact_bytes(text, 0x1p33), "8.0 GiB (8589934592 bytes)");
    EXPECT_STREQ(crl_units_exact_bytes(text, 1e16), "8.9 PiB");
}

TEST(BaseUnits, SecondsAndCounts) {
    char text[CRL_UNITS_BYTES];
    EXPECT_STREQ(crl_units_seconds(text, 35e-6), "35.0 us");
    EXPECT_STREQ(crl_units_seconds(text, 0.0123), "12.3 ms");
    EXPECT_STREQ(crl_units_seconds(text, 90), "90.00 s");
    EXPECT_STREQ(crl_units_count(text, 999), "999");
    EXPECT_STREQ(crl_units_count(text, 124.44e6), "124.44 M");
}

} // namespace
