/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/layers/runner.h"

namespace layer_test {
namespace {

TEST(LayersAttention, UnpacksTheChannels) {
    const Inferred attn("attention", "attn", {F32({2, 5, 24})}, {{"heads", "4"}});
    ASSERT_EQ(attn.error, "");
    EXPECT_EQ(Text(attn.spec.output[0]), "f32(2,5,8)");
    ASSERT_EQ(attn.spec.saves, 1);
    EXPECT_EQ(Text(attn.spec.save[0]), "f32(2,4,5)");
}

TEST(LayersAttention, RejectsWrongInputs) {
    const Texts heads = {{"heads", "4"}};
    EXPECT_EQ(InferError("attention", "attn", {F32({2, 5, 25})}, heads),
              "attention attn: input last dimension is 25, expected a multiple of 3 x 4 heads");
    EXPECT_EQ(InferError("attention", "attn", {F32({2, 5, 18})}, heads),
              "attention attn: input last dimension is 18, expected a multiple of 3 x 4 heads");
    EXPECT_EQ(InferError("attention", "attn", {F32({2, 24})}, heads),
              "attention attn: input has 2 dimensions, expected at least 3");
    EXPECT_EQ(InferError("attention", "attn", {F32({2, 2, 2, 24})}, heads),
              "attention attn: input has 4 dimensions, expected 3");
}

TEST(LayersAttention, CausalCostsAboutHalf) {
    const std::vector<crl_tensor_spec> inputs = {F32({2, 64, 48})};
    const Inferred half("attention", "attn", inputs, {{"heads", "2"}});
    const Inferred full("attention", "attn", inputs, {{"heads", "2"}, {"causal", "false"}});
    for (const int phase : {CRL_PHASE_FORWARD, CRL_PHASE_INPUT}) {
        EXPECT_NEAR(half.spec.cost.flops[phase] / full.spec.cost.flops[phase], 0.5, 0.01);
    }
}

/* Changing a token may not change what comes before it. */
TEST(LayersAttention, SeesNoLaterToken) {
    constexpr int kT = 40, kPacked = 12, kChannels = 4;
    const Inferred attn("attention", "attn", {F32({1, kT, kPacked})}, {{"heads", "2"}});
    Values values;
    values.x.emplace_back(kT * kPacked);
    for (size_t i = 0; i < values.x[0].size(); ++i) {
        values.x[0][i] = std::sin(0.7f * (float)i);
    }
    values.dy.emplace_back(kT * kChannels, 1.0f);
    Settings settings;
    settings.training = false;
    const Results before = Execute(attn, values, settings);
    constexpr int kChanged = 25;
    for (int i = kChanged * kPacked; i < kT * kPacked; ++i) {
        values.x[0][i] += 1;
    }
    const Results after = Execute(attn, values, settings);
    for (int i = 0; i < kT * kChannels; ++i) {
        EXPECT_EQ(before.y[0][i] == after.y[0][i], i < kChanged * kChannels) << i;
    }
}

} // namespace
} // namespace layer_test
