/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/layers/runner.h"

namespace layer_test {
namespace {

TEST(LayersRelu, ComputesAKnownCase) {
    const Inferred relu("relu", "act", {F32({1, 4})}, {});
    const Values values = {{{-2, 0, 3, 1e-30f}}, {}, {{5, 6, 7, 8}}, {}, {}};
    const Results got = Execute(relu, values, Settings{});
    EXPECT_EQ(got.y[0], (std::vector<float>{0, 0, 3, 1e-30f}));
    EXPECT_EQ(got.dx[0], (std::vector<float>{0, 0, 7, 8}));
}

TEST(LayersRelu, NeedsItsOutputOnly) {
    const Inferred relu("relu", "act", {F32({3, 5})}, {});
    EXPECT_EQ(relu.spec.input_needs_inputs, 0u);
    EXPECT_EQ(relu.spec.input_needs_outputs, 1u);
    EXPECT_EQ(relu.spec.saves, 0);
}

TEST(LayersRelu, RejectsWrongInputs) {
    EXPECT_EQ(InferError("relu", "act", {F32({3}), F32({3})}),
              "relu act: has 2 inputs, expected 1");
}

} // namespace
} // namespace layer_test
