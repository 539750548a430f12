/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/layers/runner.h"

namespace layer_test {
namespace {

Results Compute(const char *approximation) {
    const Inferred gelu("gelu", "act", {F32({1, 5})}, {{"approximation", approximation}});
    EXPECT_EQ(gelu.error, "");
    const Values values = {{{-100, -1, 0, 1, 100}}, {}, {{1, 1, 1, 1, 1}}, {}, {}};
    return Execute(gelu, values, Settings{});
}

/* Values from the definitions, to 8 digits. */
TEST(LayersGelu, ComputesKnownCases) {
    const Results erf = Compute("erf"), tanh = Compute("tanh");
    for (const Results *got : {&erf, &tanh}) {
        EXPECT_NEAR(got->y[0][0], 0, 1e-30);
        EXPECT_EQ(got->y[0][2], 0);
        EXPECT_EQ(got->y[0][4], 100);
        EXPECT_EQ(got->dx[0][2], 0.5);
        EXPECT_EQ(got->dx[0][4], 1);
    }
    EXPECT_NEAR(erf.y[0][3], 0.84134475, 1e-6);
    EXPECT_NEAR(erf.y[0][1], -0.15865525, 1e-6);
    EXPECT_NEAR(tanh.y[0][3], 0.84119199, 1e-6);
    EXPECT_NEAR(tanh.y[0][1], -0.15880801, 1e-6);
}

TEST(LayersGelu, NeedsItsInputOnly) {
    const Inferred gelu("gelu", "act", {F32({3, 5})}, {});
    EXPECT_EQ(gelu.spec.input_needs_inputs, 1u);
    EXPECT_EQ(gelu.spec.input_needs_outputs, 0u);
    EXPECT_EQ(gelu.spec.saves, 0);
}

TEST(LayersGelu, RejectsWrongInputs) {
    EXPECT_EQ(InferError("gelu", "act", {I32({3, 5})}),
              "gelu act: input is i32(3,5), expected f32 elements");
}

} // namespace
} // namespace layer_test
