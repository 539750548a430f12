// SPDX-License-Identifier: Apache-2.0
#include "engine/base/rng.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <vector>

namespace {

constexpr crl_rng kStream = {42, CRL_RNG_TEST, 7, 3, 11};

struct Vector {
    uint32_t counter[4], key[2], out[4];
};

// The known answers published with Random123.
const Vector kKnown[] = {
    {{0, 0, 0, 0}, {0, 0}, {0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}},
    {{~0u, ~0u, ~0u, ~0u}, {~0u, ~0u}, {0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}},
    {{0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344},
     {0xa4093822, 0x299f31d0},
     {0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}},
};

TEST(BaseRng, MatchesPublishedVectors) {
    for (const Vector &known : kKnown) {
        uint32_t out[4];
        crl_philox4x32(known.counter, known.key, out);
        for (int i = 0; i < 4; ++i) {
            EXPECT_EQ(out[i], known.out[i]) << i;
        }
    }
}

TEST(BaseRng, LayoutOfKeyAndCounter) {
    const crl_rng rng = {0x0123456789abcdefu, CRL_RNG_DROPOUT, 0xabcdef, 0x77, 0x99};
    const uint32_t counter[4] = {5, 0x99, 0x77, 0x02abcdefu}, key[2] = {0x89abcdefu, 0x01234567u};
    uint32_t expected[4], actual[4];
    crl_philox4x32(counter, key, expected);
    crl_rng_block(&rng, 5, actual);
    EXPECT_TRUE(std::equal(expected, expected + 4, actual));
    for (uint64_t i = 0; i < 4; ++i) {
        EXPECT_EQ(crl_rng_uniform(&rng, 20 + i), float(expected[i] >> 8) / 16777216.0f);
    }
}

TEST(BaseRng, FillsEqualSingleElements) {
    for (int64_t count : {0, 1, 2, 3, 4, 5, 63, 1001}) {
        std::vector<float> uniform(size_t(count) + 1, -9.0f), normal(size_t(count) + 1, -9.0f);
        std::vector<float> longer(2048);
        crl_rng_fill_uniform(&kStream, uniform.data(), count, 0.0f, 1.0f);
        crl_rng_fill_normal(&kStream, normal.data(), count, 1.0f, 2.0f);
        crl_rng_fill_normal(&kStream, longer.data(), 2048, 1.0f, 2.0f);
        for (int64_t i = 0; i < count; ++i) {
            ASSERT_EQ(uniform[size_t(i)], crl_rng_uniform(&kStream, uint64_t(i)));
            ASSERT_EQ(normal[size_t(i)], longer[size_t(i)]);
        }
        EXPECT_EQ(uniform[size_t(count)], -9.0f);
        EXPECT_EQ(normal[size_t(count)], -9.0f);
    }
}

TEST(BaseRng, NormalsAreBoxMullerOfTheBlocks) {
    std::vector<float> normal(4000);
    crl_rng_fill_normal(&kStream, normal.data(), 4000, -0.5f, 3.0f);
    for (uint32_t block = 0; block < 1000; ++block) {
        uint32_t word[4];
        crl_rng_block(&kStream, block, word);
        for (size_t i = 0; i < 4; ++i) {
            const double u = (word[i & ~size_t(1)] + 1.0) / 4294967296.0;
            const double turns = word[i | 1] / 4294967296.0;
            const double angle = 2 * M_PI * turns;
            const double z =
                std::sqrt(-2 * std::log(u)) * (i % 2 ? std::sin(angle) : std::cos(angle));
            ASSERT_EQ(normal[4 * block + i], float(-0.5 + 3 * z));
        }
    }
}

TEST(BaseRng, MomentsAreRight) {
    constexpr int64_t kCount = 1 << 20;
    std::vector<float> x(kCount);
    crl_rng_fill_normal(&kStream, x.data(), kCount, 0.0f, 1.0f);
    double sum = 0, square = 0, fourth = 0;
    for (double v : x) {
        sum += v, square += v * v, fourth += v * v * v * v;
    }
    EXPECT_NEAR(sum / kCount, 0, 0.005);
    EXPECT_NEAR(square / kCount, 1, 0.007);
    EXPECT_NEAR(fourth / kCount, 3, 0.06);
    crl_rng_fill_uniform(&kStream, x.data(), kCount, -3.0f, 5.0f);
    sum = std::accumulate(x.begin(), x.end(), 0.0);
    EXPECT_NEAR(sum / kCount, 1, 0.012);
    const auto [low, high] = std::minmax_element(x.begin(), x.end());
    EXPECT_GE(*low, -3.0f);
    EXPECT_LT(*high, 5.0f);
}

TEST(BaseRng, StreamsDifferInEveryField) {
    std::vector<crl_rng> streams(6, kStream);
    streams[1].seed ^= uint64_t(1) << 40;
    streams[2].purpose = CRL_RNG_INIT;
    streams[3].layer += 1;
    streams[4].step += 1;
    streams[5].sample += 1;
    std::vector<uint32_t> first;
    for (const crl_rng &stream : streams) {
        uint32_t word[4];
        crl_rng_block(&stream, 0, word);
        first.push_back(word[0]);
    }
    std::sort(first.begin(), first.end());
    EXPECT_EQ(std::unique(first.begin(), first.end()), first.end());
}

TEST(BaseRng, PermutationIsOne) {
    for (int64_t count : {0, 1, 2, 3, 4, 5, 1000, 1001}) {
        std::vector<int64_t> order(static_cast<size_t>(count)), again(order);
        crl_rng_permutation(&kStream, order.data(), count);
        crl_rng_permutation(&kStream, again.data(), count);
        EXPECT_EQ(order, again);
        std::sort(order.begin(), order.end());
        for (int64_t i = 0; i < count; ++i) {
            ASSERT_EQ(order[size_t(i)], i);
        }
    }
}

TEST(BaseRng, PermutationsOfFourAreEquallyLikely) {
    constexpr int kRounds = 24000;
    std::vector<int> seen(256, 0);
    for (uint32_t step = 0; step < kRounds; ++step) {
        crl_rng stream = kStream;
        stream.step = step;
        int64_t p[4];
        crl_rng_permutation(&stream, p, 4);
        ++seen[size_t(p[0] * 64 + p[1] * 16 + p[2] * 4 + p[3])];
    }
    int kinds = 0;
    double chi_square = 0; // 23 degrees of freedom: 49.7 is the 0.1 % point
    for (int n : seen) {
        kinds += n > 0;
        chi_square += n > 0 ? (n - 1000.0) * (n - 1000.0) / 1000.0 : 0;
    }
    EXPECT_EQ(kinds, 24);
    EXPECT_LT(chi_square, 49.7);
}

} // namespace
