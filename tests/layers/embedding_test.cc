/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/layers/runner.h"

namespace layer_test {
namespace {

const Texts kPositions = {
    {"vocabulary", "3"}, {"channels", "2"}, {"positions", "true"}, {"context", "4"}};

TEST(LayersEmbedding, AppendsTheChannels) {
    const Inferred wte("embedding", "wte", {I32({5, 4})}, kPositions);
    ASSERT_EQ(wte.error, "");
    EXPECT_EQ(Text(wte.spec.output[0]), "f32(5,4,2)");
    ASSERT_EQ(wte.spec.params, 2);
    EXPECT_STREQ(wte.spec.param[0].name, "token");
    EXPECT_STREQ(wte.spec.param[1].name, "position");
    EXPECT_EQ(Text({CRL_DTYPE_F32, wte.spec.param[0].shape}), "f32(3,2)");
    EXPECT_EQ(Text({CRL_DTYPE_F32, wte.spec.param[1].shape}), "f32(4,2)");
    EXPECT_EQ(wte.spec.gradient_inputs, 0u);
}

TEST(LayersEmbedding, ContextDefaultsToTheSequence) {
    const Inferred wte("embedding", "wte", {I32({5, 9})},
                       {{"vocabulary", "3"}, {"channels", "2"}, {"positions", "true"}});
    EXPECT_EQ(Text({CRL_DTYPE_F32, wte.spec.param[1].shape}), "f32(9,2)");
}

TEST(LayersEmbedding, RejectsWrongInputs) {
    EXPECT_EQ(InferError("embedding", "wte", {I32({5, 6})}, kPositions),
              "embedding wte: input has 6 tokens, expected at most context 4");
    EXPECT_EQ(InferError("embedding", "wte", {F32({5, 4})}, kPositions),
              "embedding wte: input is f32(5,4), expected i32 elements");
    EXPECT_EQ(InferError("embedding", "wte", {I32({5})}, kPositions),
              "embedding wte: input has 1 dimension, expected at least 2");
    EXPECT_EQ(InferError("embedding", "wte", {I32({5, 2, 2})}, kPositions),
              "embedding wte: input has 3 dimensions, expected at most 2");
}

TEST(LayersEmbedding, ComputesAKnownCase) {
    const Inferred wte("embedding", "wte", {I32({2, 2})}, kPositions);
    const Values values = {{Integers({2, 0, 2, 2})},
                           {{1, 2, 3, 4, 5, 6}, {10, 20, 30, 40, 50, 60, 70, 80}},
                           {{1, 2, 3, 4, 5, 6, 7, 8}},
                           {{0, 0, 0, 0}},
                           {}};
    const Results got = Execute(wte, values, Settings{});
    EXPECT_EQ(got.y[0], (std::vector<float>{15, 26, 31, 42, 15, 26, 35, 46}));
    EXPECT_EQ(got.dw[0], (std::vector<float>{3, 4, 0, 0, 13, 16}));
    EXPECT_EQ(got.dw[1], (std::vector<float>{6, 8, 10, 12, 0, 0, 0, 0}));
}

TEST(LayersEmbedding, RejectsTokensOutsideTheVocabulary) {
    const Inferred wte("embedding", "wte", {I32({1, 1})}, kPositions);
    for (const int32_t token : {-1, 3, INT32_MIN, INT32_MAX}) {
        const Values values = {
            {Integers({token})}, {std::vector<float>(6), std::vector<float>(8)}, {{1, 1}}, {}, {}};
        EXPECT_EQ(Runner(wte, values, Settings{}).TryForward(), CRL_STATUS_INVALID) << token;
    }
}

TEST(LayersEmbedding, ShardsTheVocabulary) {
    const Inferred wte("embedding", "wte", {I32({5, 4})}, kPositions);
    int dimension[CRL_LAYER_MAX_PARAMS] = {-7, -7, -7, -7};
    ASSERT_EQ(wte.layer->shard(&wte.spec, 3, dimension), CRL_STATUS_OK);
    EXPECT_EQ(dimension[0], 0);
    EXPECT_EQ(dimension[1], -1);
}

} // namespace
} // namespace layer_test
