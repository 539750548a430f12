/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/layers/runner.h"

namespace layer_test {
namespace {

Results Compute(int64_t valid_samples) {
    const Inferred loss("mse", "loss", {F32({2, 2}), F32({2, 2})}, {});
    Settings settings;
    settings.at.valid_samples = valid_samples;
    return Execute(loss, {{{1, 2, 3, 4}, {0, 0, 1, 1}}, {}, {}, {}, {}}, settings);
}

TEST(LayersMse, ComputesAKnownCase) {
    const Results got = Compute(2);
    EXPECT_EQ(got.loss.sum, 1 + 4 + 4 + 9);
    EXPECT_EQ(got.loss.weight, 4);
    EXPECT_EQ(got.loss.correct, 0);
    EXPECT_EQ(got.dx[0], (std::vector<float>{2, 4, 4, 6}));
}

TEST(LayersMse, PaddingDoesNotCount) {
    const Results got = Compute(1);
    EXPECT_EQ(got.loss.sum, 5);
    EXPECT_EQ(got.loss.weight, 2);
    EXPECT_EQ(got.dx[0], (std::vector<float>{2, 4, 0, 0}));
    EXPECT_EQ(Compute(0).loss.weight, 0);
}

TEST(LayersMse, RejectsWrongInputs) {
    EXPECT_EQ(InferError("mse", "loss", {F32({3, 2}), F32({3})}),
              "mse loss: input 1 is f32(3), expected f32(3,2)");
    EXPECT_EQ(InferError("mse", "loss", {F32({3, 2})}), "mse loss: has 1 input, expected 2");
}

TEST(LayersMse, TheTargetHasNoGradient) {
    const Inferred loss("mse", "loss", {F32({2, 2}), F32({2, 2})}, {});
    EXPECT_EQ(loss.spec.gradient_inputs, 1u);
}

} // namespace
} // namespace layer_test
