/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/layers/runner.h"

namespace layer_test {
namespace {

TEST(LayersRmsnorm, SavesOneNumberPerRow) {
    const Inferred norm("rmsnorm", "ln", {F32({2, 3, 4})}, {});
    ASSERT_EQ(norm.error, "");
    ASSERT_EQ(norm.spec.saves, 1);
    EXPECT_EQ(Text(norm.spec.save[0]), "f32(2,3)");
    ASSERT_EQ(norm.spec.params, 1);
    EXPECT_EQ(norm.spec.param[0].init, CRL_INIT_ONES);
    EXPECT_FALSE(norm.spec.param[0].decay);
    EXPECT_TRUE(norm.spec.param[0].f32);
}

TEST(LayersRmsnorm, ComputesAKnownCase) {
    const Inferred norm("rmsnorm", "ln", {F32({1, 2})}, {{"epsilon", "1e-12"}});
    const Values values = {{{1, 7}}, {{2, 3}}, {{5, 5}}, {}, {}}; /* mean square 25 */
    const Results got = Execute(norm, values, Settings{});
    EXPECT_FLOAT_EQ(got.y[0][0], 0.4f);
    EXPECT_FLOAT_EQ(got.y[0][1], 4.2f);
    EXPECT_FLOAT_EQ(got.dw[0][0], 1);
    EXPECT_FLOAT_EQ(got.dw[0][1], 7);
    EXPECT_NEAR(got.dx[0][0], 2 - 0.02 * 23, 1e-6);
    EXPECT_NEAR(got.dx[0][1], 3 - 0.14 * 23, 1e-6);
}

} // namespace
} // namespace layer_test
