/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/layers/runner.h"

namespace layer_test {
namespace {

TEST(LayersLayernorm, SavesTwoNumbersPerRow) {
    const Inferred ln("layernorm", "ln1", {F32({2, 3, 4})}, {});
    ASSERT_EQ(ln.error, "");
    EXPECT_EQ(Text(ln.spec.output[0]), "f32(2,3,4)");
    ASSERT_EQ(ln.spec.saves, 2);
    EXPECT_EQ(Text(ln.spec.save[0]), "f32(2,3)");
    EXPECT_EQ(Text(ln.spec.save[1]), "f32(2,3)");
    EXPECT_EQ(ln.spec.param[0].init, CRL_INIT_ONES);
    EXPECT_EQ(ln.spec.param[1].init, CRL_INIT_ZEROS);
    EXPECT_FALSE(ln.spec.param[0].decay);
}

TEST(LayersLayernorm, RejectsWrongInputs) {
    EXPECT_EQ(InferError("layernorm", "ln1", {F32({4})}),
              "layernorm ln1: input has 1 dimension, expected at least 2");
    EXPECT_EQ(InferError("layernorm", "ln1", {}), "layernorm ln1: has 0 inputs, expected 1");
}

TEST(LayersLayernorm, ComputesAKnownCase) {
    const Inferred ln("layernorm", "ln1", {F32({1, 2})}, {{"epsilon", "1e-12"}});
    const Values values = {{{1, 3}}, {{2, 3}, {10, 20}}, {{1, 1}}, {}, {}};
    const Results got = Execute(ln, values, Settings{});
    EXPECT_FLOAT_EQ(got.y[0][0], 8);
    EXPECT_FLOAT_EQ(got.y[0][1], 23);
    EXPECT_FLOAT_EQ(got.dw[0][0], -1);
    EXPECT_FLOAT_EQ(got.dw[0][1], 1);
    EXPECT_EQ(got.dw[1], (std::vector<float>{1, 1}));
}

} // namespace
} // namespace layer_test
