/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/layers/runner.h"

namespace layer_test {
namespace {

const Values kValues = {{{1, 1}, {0, 2}}, {{2, 3}, {10, 20}}, {{4, 5}, {1, 1}}, {}, {}};

TEST(LayersAddLayernorm, GivesTheSumAndItsNormalisation) {
    const Inferred both("add_layernorm", "ln", {F32({1, 2}), F32({1, 2})}, {{"epsilon", "1e-12"}});
    ASSERT_EQ(both.error, "");
    const Results got = Execute(both, kValues, Settings{});
    EXPECT_EQ(got.y[0], (std::vector<float>{1, 3}));
    EXPECT_FLOAT_EQ(got.y[1][0], 8);
    EXPECT_FLOAT_EQ(got.y[1][1], 23);
    EXPECT_EQ(got.dx[0], got.dx[1]);
    EXPECT_NEAR(got.dx[0][0], 4, 1e-5);
    EXPECT_NEAR(got.dx[0][1], 5, 1e-5);
    EXPECT_EQ(got.dw[1], (std::vector<float>{1, 1}));
}

/* In the same bits as the two layers it stands for. */
TEST(LayersAddLayernorm, IsAddThenLayernorm) {
    const std::vector<crl_tensor_spec> rows = {F32({3, 37}), F32({3, 37})};
    Values values;
    for (int i = 0; i < 2; ++i) {
        values.x.emplace_back(3 * 37);
        values.dy.emplace_back(3 * 37, 1.0f);
        values.w.emplace_back(37, 1.0f + (float)i);
        for (size_t k = 0; k < values.x[i].size(); ++k) {
            values.x[i][k] = std::sin((float)k * (0.3f + (float)i));
        }
    }
    Settings settings;
    settings.training = false;
    const Results fused = Execute(Inferred("add_layernorm", "ln", rows, {}), values, settings);
    const Results sum = Execute(Inferred("add", "sum", rows, {}), values, settings);
    Values second = values;
    second.x = {sum.y[0]};
    const Results norm = Execute(Inferred("layernorm", "ln", {rows[0]}, {}), second, settings);
    EXPECT_EQ(fused.y[0], sum.y[0]);
    EXPECT_EQ(fused.y[1], norm.y[0]);
    EXPECT_EQ(fused.save, norm.save);
}

TEST(LayersAddLayernorm, OutputsWithoutAGradientGiveNone) {
    const Inferred both("add_layernorm", "ln", {F32({1, 2}), F32({1, 2})}, {});
    Settings settings;
    settings.dy_given = 1u << 1;
    const Results norm = Execute(both, kValues, settings);
    const Results all = Execute(both, kValues, Settings{});
    for (int i = 0; i < 2; ++i) {
        EXPECT_NEAR(norm.dx[0][i], all.dx[0][i] - kValues.dy[0][i], 1e-6);
    }
}

TEST(LayersAddLayernorm, OfATensorAndItselfHasBothGradients) {
    const Inferred both("add_layernorm", "ln", {F32({1, 2}), F32({1, 2})}, {});
    Values values = kValues;
    values.x[1] = values.x[0];
    Settings settings;
    const Results apart = Execute(both, values, settings);
    settings.one_dx = true;
    const Results together = Execute(both, values, settings);
    for (int i = 0; i < 2; ++i) {
        EXPECT_EQ(together.dx[0][i], 2 * apart.dx[0][i]);
    }
}

TEST(LayersAddLayernorm, RejectsWrongInputs) {
    EXPECT_EQ(InferError("add_layernorm", "ln", {F32({4, 8})}),
              "add_layernorm ln: has 1 input, expected 2");
    EXPECT_EQ(InferError("add_layernorm", "ln", {F32({4, 8}), F32({4, 9})}),
              "add_layernorm ln: input 1 is f32(4,9), expected f32(4,8)");
}

} // namespace
} // namespace layer_test
