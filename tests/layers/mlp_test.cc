/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/layers/runner.h"

namespace layer_test {
namespace {

TEST(LayersMlp, KeepsLeadingDimensions) {
    const Inferred mlp("mlp", "mlp", {F32({2, 3, 4})}, {{"hidden", "16"}, {"out", "5"}});
    ASSERT_EQ(mlp.error, "");
    EXPECT_EQ(Text(mlp.spec.output[0]), "f32(2,3,5)");
    ASSERT_EQ(mlp.spec.params, 4);
    EXPECT_STREQ(mlp.spec.param[2].name, "proj_weight");
    EXPECT_EQ(Text({CRL_DTYPE_F32, mlp.spec.param[0].shape}), "f32(16,4)");
    EXPECT_EQ(Text({CRL_DTYPE_F32, mlp.spec.param[2].shape}), "f32(5,16)");
    EXPECT_EQ(mlp.spec.param[0].init_scale, 0.5);
    EXPECT_EQ(mlp.spec.param[2].init_scale, 0.25);
    const Inferred same("mlp", "mlp", {F32({2, 3, 4})}, {{"hidden", "16"}, {"bias", "false"}});
    EXPECT_EQ(Text(same.spec.output[0]), "f32(2,3,4)");
    EXPECT_EQ(same.spec.params, 2);
}

TEST(LayersMlp, ComputesAKnownCase) {
    const Inferred mlp("mlp", "mlp", {F32({1, 1})}, {{"hidden", "2"}, {"activation", "relu"}});
    ASSERT_EQ(mlp.error, "");
    /* z = (2 3 + 1, -3 3 + 1) = (7, -8), h = (7, 0), y = 5 7 + 6 0 + 4 */
    const Values values = {{{3}}, {{2, -3}, {1, 1}, {5, 6}, {4}}, {{10}}, {}, {}};
    const Results got = Execute(mlp, values, Settings{});
    EXPECT_EQ(got.y[0], (std::vector<float>{39}));
    EXPECT_EQ(got.save[0], (std::vector<float>{7, -8}));
    EXPECT_EQ(got.save[1], (std::vector<float>{7, 0}));
    EXPECT_EQ(got.dx[0], (std::vector<float>{100}));
    EXPECT_EQ(got.dw[0], (std::vector<float>{150, 0}));
    EXPECT_EQ(got.dw[1], (std::vector<float>{50, 0}));
    EXPECT_EQ(got.dw[2], (std::vector<float>{70, 0}));
    EXPECT_EQ(got.dw[3], (std::vector<float>{10}));
}

TEST(LayersMlp, InputGradientNeedsNoInput) {
    const Inferred mlp("mlp", "mlp", {F32({2, 4})}, {{"hidden", "3"}});
    EXPECT_EQ(mlp.spec.input_needs_inputs | mlp.spec.input_needs_outputs, 0u);
    EXPECT_EQ(mlp.spec.input_needs_saves, 1u);
    EXPECT_EQ(mlp.spec.weight_needs_saves, 3u);
}

TEST(LayersMlp, RejectsWrongInputs) {
    EXPECT_EQ(InferError("mlp", "mlp", {F32({4})}, {{"hidden", "3"}}),
              "mlp mlp: input has 1 dimension, expected at least 2");
    EXPECT_EQ(InferError("mlp", "mlp", {I32({4, 2})}, {{"hidden", "3"}}),
              "mlp mlp: input is i32(4,2), expected f32 elements");
}

} // namespace
} // namespace layer_test
