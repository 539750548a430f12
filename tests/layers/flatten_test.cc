/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/layers/runner.h"

namespace layer_test {
namespace {

TEST(LayersFlatten, KeepsTheBatch) {
    const Inferred flat("flatten", "flat", {F32({2, 3, 4, 5})}, {});
    ASSERT_EQ(flat.error, "");
    EXPECT_EQ(Text(flat.spec.output[0]), "f32(2,60)");
    const Inferred scalars("flatten", "flat", {F32({2})}, {});
    EXPECT_EQ(Text(scalars.spec.output[0]), "f32(2,1)");
}

TEST(LayersFlatten, ComputesAKnownCase) {
    const Inferred flat("flatten", "flat", {F32({1, 2, 1})}, {});
    const Values values = {{{1, 2}}, {}, {{3, 4}}, {}, {}};
    const Results got = Execute(flat, values, Settings{});
    EXPECT_EQ(got.y[0], (std::vector<float>{1, 2}));
    EXPECT_EQ(got.dx[0], (std::vector<float>{3, 4}));
}

TEST(LayersFlatten, RejectsWrongInputs) {
    EXPECT_EQ(InferError("flatten", "flat", {I32({3, 5})}),
              "flatten flat: input is i32(3,5), expected f32 elements");
}

} // namespace
} // namespace layer_test
