/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/layers/runner.h"

namespace layer_test {
namespace {

TEST(LayersSwiglu, ComputesAKnownCase) {
    const Inferred gate("swiglu", "gate", {F32({1, 4})}, {});
    ASSERT_EQ(gate.error, "");
    EXPECT_EQ(Text(gate.spec.output[0]), "f32(1,2)");
    const Values values = {{{0, 100, 3, 5}}, {}, {{1, 1}}, {}, {}};
    const Results got = Execute(gate, values, Settings{});
    EXPECT_EQ(got.y[0], (std::vector<float>{0, 500}));
    EXPECT_EQ(got.dx[0], (std::vector<float>{1.5, 5, 0, 100}));
}

TEST(LayersSwiglu, RejectsWrongInputs) {
    EXPECT_EQ(InferError("swiglu", "gate", {F32({2, 5})}),
              "swiglu gate: input last dimension is 5, expected a multiple of 2");
    EXPECT_EQ(InferError("swiglu", "gate", {F32({4})}),
              "swiglu gate: input has 1 dimension, expected at least 2");
}

} // namespace
} // namespace layer_test
