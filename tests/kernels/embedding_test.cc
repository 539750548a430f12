// SPDX-License-Identifier: Apache-2.0
#include "tests/kernels/support.h"

namespace {

using namespace kernels_test;
const crl_embedding_ops &kOps = *crl_kernels_cpu.embedding;

std::vector<int32_t> random_tokens(Random &random, int64_t n, int64_t v) {
    std::vector<int32_t> tokens((size_t)n);
    for (int32_t &token : tokens)
        token = (int32_t)(random() % (unsigned)v);
    return tokens;
}

TEST(KernelsEmbedding, MatchesTheDefinition) {
    Random random(1);
    const int64_t sizes[][4] = {{1, 1, 1, 1}, {2, 5, 3, 7}, {3, 65, 11, 33}, {4, 64, 500, 130}};
    for (const auto &size : sizes) {
        const int64_t b = size[0], t = size[1], v = size[2], c = size[3], positions = t + 2;
        SCOPED_TRACE(testing::Message() << b << "," << t << "," << v << "," << c);
        const std::vector<int32_t> tokens = random_tokens(random, b * t, v);
        const Floats token = random_floats(random, v * c),
                     position = random_floats(random, positions * c),
                     dy = random_floats(random, b * t * c);
        for (bool with_position : {false, true}) {
            const Floats y = same_for_all_threads([&] {
                Floats out(b * t * c);
                EXPECT_OK(kOps.forward(nullptr, tokens.data(), token.data(),
                                       with_position ? position.data() : nullptr, out.data(), b, t,
                                       v, c));
                return out;
            });
            for (int64_t i = 0; i < y.size(); i++) {
                const int64_t row = i / c;
                const float expected = token[tokens[(size_t)row] * c + i % c];
                const float add = with_position ? position[row % t * c + i % c] : 0;
                ASSERT_EQ(y[i], expected + add);
            }
        }
        for (bool accumulate : {false, true}) {
            Floats dposition(positions * c);
            const Floats dtoken = same_for_all_threads([&] {
                Floats out = token;
                dposition = position;
                EXPECT_OK(kOps.backward(nullptr, tokens.data(), dy.data(), out.data(),
                                        dposition.data(), b, t, v, c, positions, accumulate));
                return out;
            });
            Floats token_sum = accumulate ? token : Floats(v * c);
            Floats position_sum = accumulate ? position : Floats(positions * c);
            for (int64_t i = 0; i < b * t; i++) {
                for (int64_t j = 0; j < c; j++) {
                    token_sum[tokens[(size_t)i] * c + j] += dy[i * c + j];
                    position_sum[i % t * c + j] += dy[i * c + j];
                }
            }
            EXPECT_TRUE(same_bits(dtoken, token_sum));
            EXPECT_TRUE(same_bits(dposition, position_sum));
        }
        EXPECT_OK(kOps.backward(nullptr, tokens.data(), dy.data(), nullptr, nullptr, b, t, v, c,
                                positions, false));
    }
}

TEST(KernelsEmbedding, RejectsTokensOutsideTheVocabulary) {
    const float token[4] = {0}, dy[6] = {0};
    for (int32_t bad : {-1, 4}) {
        const int32_t tokens[6] = {0, 1, 2, 3, bad, 0};
        float y[6] = {7, 7, 7, 7, 7, 7}, dtoken[4] = {7, 7, 7, 7};
        EXPECT_EQ(kOps.forward(nullptr, tokens, token, nullptr, y, 2, 3, 4, 1), CRL_STATUS_INVALID);
        const std::string message = "embedding: token at sample 1, position 1 is " +
                                    std::to_string(bad) + ", expected 0 to 3";
        EXPECT_EQ(crl_error_message(), message);
        EXPECT_EQ(y[0], 7);
        EXPECT_EQ(kOps.backward(nullptr, tokens, dy, dtoken, nullptr, 2, 3, 4, 1, 0, false),
                  CRL_STATUS_INVALID);
        EXPECT_EQ(dtoken[0], 7);
    }
}

} // namespace
