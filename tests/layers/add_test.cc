/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/layers/runner.h"

namespace layer_test {
namespace {

TEST(LayersAdd, ComputesAKnownCase) {
    const Inferred add("add", "res", {F32({1, 2}), F32({1, 2})}, {});
    const Values values = {{{1, 2}, {10, 20}}, {}, {{3, 4}}, {}, {}};
    const Results got = Execute(add, values, Settings{});
    EXPECT_EQ(got.y[0], (std::vector<float>{11, 22}));
    EXPECT_EQ(got.dx[0], (std::vector<float>{3, 4}));
    EXPECT_EQ(got.dx[1], (std::vector<float>{3, 4}));
}

TEST(LayersAdd, RejectsWrongInputs) {
    EXPECT_EQ(InferError("add", "res", {F32({4, 8})}), "add res: has 1 input, expected 2");
    EXPECT_EQ(InferError("add", "res", {F32({4, 8}), F32({4, 9})}),
              "add res: input 1 is f32(4,9), expected f32(4,8)");
    EXPECT_EQ(InferError("add", "res", {I32({4, 8}), I32({4, 8})}),
              "add res: input 0 is i32(4,8), expected f32 elements");
}

TEST(LayersAdd, BackwardNeedsNothing) {
    const Inferred add("add", "res", {F32({1, 2}), F32({1, 2})}, {});
    EXPECT_EQ(add.spec.input_needs_inputs | add.spec.input_needs_outputs, 0u);
    EXPECT_EQ(add.spec.gradient_inputs, 3u);
}

} // namespace
} // namespace layer_test
