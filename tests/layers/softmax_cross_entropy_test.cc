/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/base/comma_locale.h"
#include "tests/layers/runner.h"

namespace layer_test {
namespace {

const std::vector<crl_tensor_spec> kRows = {F32({3, 2}), I32({3})};
const std::vector<float> kLogits = {0, 0, 3, 1, -1, 1};

Results Compute(const Texts &options, const std::vector<int32_t> &targets, int64_t valid_samples) {
    const Inferred loss("softmax_cross_entropy", "loss", kRows, options);
    EXPECT_EQ(loss.error, "");
    Settings settings;
    settings.at.valid_samples = valid_samples;
    return Execute(loss, {{kLogits, Integers(targets)}, {}, {}, {}, {}}, settings);
}

TEST(LayersSoftmaxCrossEntropy, ComputesAKnownCase) {
    const Results got = Compute({}, {1, 0, 0}, 3);
    const double soft = std::log1p(std::exp(-2));
    EXPECT_NEAR(got.loss.sum, std::log(2) + soft + 2 + soft, 1e-6);
    EXPECT_EQ(got.loss.weight, 3);
    EXPECT_EQ(got.loss.rows, 3);
    EXPECT_NEAR(got.dx[0][0], 0.5, 1e-6);
    EXPECT_NEAR(got.dx[0][1], -0.5, 1e-6);
}

TEST(LayersSoftmaxCrossEntropy, IgnoredRowsDoNotCount) {
    for (const auto &[options, ignored] :
         {std::pair<Texts, int32_t>{{}, -100}, {{{"ignore_index", "1"}}, 1}}) {
        const Results got = Compute(options, {0, ignored, 0}, 3);
        EXPECT_EQ(got.loss.rows, 2);
        EXPECT_EQ(got.loss.weight, 2);
        EXPECT_EQ(got.dx[0][2], 0);
        EXPECT_EQ(got.dx[0][3], 0);
        EXPECT_NE(got.dx[0][4], 0);
    }
}

TEST(LayersSoftmaxCrossEntropy, PaddingDoesNotCount) {
    const Results got = Compute({}, {0, 0, 777}, 2);
    EXPECT_EQ(got.loss.rows, 2);
    EXPECT_EQ(got.dx[0][4], 0);
    EXPECT_EQ(got.dx[0][5], 0);
    const Results nothing = Compute({}, {0, 0, 0}, 0);
    EXPECT_EQ(nothing.loss.rows, 0);
    EXPECT_EQ(nothing.loss.sum, 0);
    EXPECT_EQ(nothing.dx[0], std::vector<float>(6, 0.0f));
}

TEST(LayersSoftmaxCrossEntropy, WeighsLabels) {
    const Results plain = Compute({}, {1, 0, 0}, 3);
    const Results got = Compute({{"label_weights", "0.5, 4"}}, {1, 0, 0}, 3);
    EXPECT_EQ(got.loss.weight, 5);
    EXPECT_EQ(got.loss.rows, 3);
    EXPECT_NEAR(got.loss.sum, 4 * std::log(2) + (plain.loss.sum - std::log(2)) / 2, 1e-6);
    EXPECT_EQ(got.dx[0][0], 4 * plain.dx[0][0]);
}

/* The largest tensor of a language model need not exist twice. */
TEST(LayersSoftmaxCrossEntropy, TheGradientMayTakeTheLogitsPlace) {
    for (const crl_dtype dtype : {CRL_DTYPE_F32, CRL_DTYPE_BF16, CRL_DTYPE_F16}) {
        const crl_tensor_spec logits = {dtype, F32({3, 37}).shape};
        const Inferred loss("softmax_cross_entropy", "loss", {logits, I32({3})}, {}, -1, dtype);
        ASSERT_EQ(loss.error, "");
        Values values;
        values.x = {std::vector<float>(3 * 37), Integers({36, 0, 20})};
        for (size_t i = 0; i < values.x[0].size(); ++i) {
            values.x[0][i] = Round(dtype, std::sin(0.7f * (float)i));
        }
        Settings settings;
        settings.at.valid_samples = 2;
        const Results apart = Execute(loss, values, settings);
        settings.in_place = 1u << 0;
        EXPECT_EQ(Execute(loss, values, settings).dx[0], apart.dx[0]) << crl_dtype_name(dtype);
    }
}

TEST(LayersSoftmaxCrossEntropy, RejectsWrongInputs) {
    const char *type = "softmax_cross_entropy";
    EXPECT_EQ(InferError(type, "loss", {F32({3, 2})}),
              "softmax_cross_entropy loss: has 1 input, expected 2 to 3");
    EXPECT_EQ(InferError(type, "loss", {F32({3, 2}), I32({3, 2})}),
              "softmax_cross_entropy loss: input 1 is i32(3,2), expected i32(3)");
    EXPECT_EQ(InferError(type, "loss", {F32({3, 2}), F32({3})}),
              "softmax_cross_entropy loss: input 1 is f32(3), expected i32(3)");
    EXPECT_EQ(InferError(type, "loss", {F32({3, 2}), I32({3}), F32({2})}),
              "softmax_cross_entropy loss: input 2 is f32(2), expected f32(3)");
}

TEST(LayersSoftmaxCrossEntropy, LabelWeightsDoNotDependOnTheLocale) {
    const comma_locale locale;
    if (!locale.active) {
        GTEST_SKIP() << "no locale with a decimal comma can be made here";
    }
    EXPECT_EQ(InferError("softmax_cross_entropy", "loss", kRows, {{"label_weights", "1,0.5"}}), "");
}

TEST(LayersSoftmaxCrossEntropy, RejectsWrongLabelWeights) {
    const char *type = "softmax_cross_entropy";
    EXPECT_EQ(InferError(type, "loss", kRows, {{"label_weights", "1,2,3"}}),
              "softmax_cross_entropy loss: 3 label weights, expected 2");
    for (const char *weight : {"-1", "nan", "inf", "x"}) {
        EXPECT_EQ(InferError(type, "loss", kRows, {{"label_weights", std::string("1,") + weight}}),
                  "softmax_cross_entropy loss: label weight '" + std::string(weight) +
                      "', expected a number from 0");
    }
}

} // namespace
} // namespace layer_test
