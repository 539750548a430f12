/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/layers/runner.h"

namespace layer_test {
namespace {

TEST(LayersLinear, KeepsLeadingDimensions) {
    const Inferred fc("linear", "fc", {F32({2, 3, 4})}, {{"out", "7"}});
    ASSERT_EQ(fc.error, "");
    EXPECT_EQ(Text(fc.spec.output[0]), "f32(2,3,7)");
    ASSERT_EQ(fc.spec.params, 2);
    EXPECT_EQ(Text({CRL_DTYPE_F32, fc.spec.param[0].shape}), "f32(7,4)");
    EXPECT_EQ(Text({CRL_DTYPE_F32, fc.spec.param[1].shape}), "f32(7)");
    EXPECT_TRUE(fc.spec.param[0].decay);
    EXPECT_FALSE(fc.spec.param[1].decay);
}

TEST(LayersLinear, RejectsWrongInputs) {
    const Texts out = {{"out", "7"}};
    EXPECT_EQ(InferError("linear", "fc", {F32({4})}, out),
              "linear fc: input has 1 dimension, expected at least 2");
    EXPECT_EQ(InferError("linear", "fc", {I32({4, 2})}, out),
              "linear fc: input is i32(4,2), expected f32 elements");
    EXPECT_EQ(InferError("linear", "fc", {F32({4, 2}), F32({4, 2})}, out),
              "linear fc: has 2 inputs, expected 1");
    EXPECT_EQ(InferError("linear", "fc", {F32({4, 2})}, out, 3),
              "linear fc: input is f32(4,2), expected 3 samples");
}

TEST(LayersLinear, RejectsSizesThatOverflow) {
    const Texts out = {{"out", "2147483647"}};
    const std::string output = InferError("linear", "fc", {F32({1, int64_t{1} << 31, 4})}, out);
    EXPECT_EQ(output.find("linear fc: output: size overflows"), 0u) << output;
    const std::string weight = InferError("linear", "fc", {F32({1, int64_t{1} << 40})}, out);
    EXPECT_EQ(weight.find("linear fc: weight: size overflows"), 0u) << weight;
}

TEST(LayersLinear, ChoosesTheInitialWeights) {
    const std::vector<crl_tensor_spec> inputs = {F32({2, 16})};
    const Inferred uniform("linear", "fc", inputs, {{"out", "3"}});
    EXPECT_EQ(uniform.spec.param[0].init, CRL_INIT_UNIFORM);
    EXPECT_EQ(uniform.spec.param[0].init_scale, 0.25);
    EXPECT_EQ(uniform.spec.param[1].init, CRL_INIT_UNIFORM);
    EXPECT_EQ(uniform.spec.param[1].init_scale, 0.25);
    const Inferred normal("linear", "fc", inputs,
                          {{"out", "3"}, {"init", "normal"}, {"init_scale", "0.02"}});
    EXPECT_EQ(normal.spec.param[0].init, CRL_INIT_NORMAL);
    EXPECT_EQ(normal.spec.param[0].init_scale, 0.02);
    EXPECT_EQ(normal.spec.param[1].init, CRL_INIT_ZEROS);
    const Inferred zeros("linear", "fc", inputs,
                         {{"out", "3"}, {"init", "zeros"}, {"bias", "false"}});
    EXPECT_EQ(zeros.spec.param[0].init, CRL_INIT_ZEROS);
    EXPECT_EQ(zeros.spec.params, 1);
}

TEST(LayersLinear, InputGradientNeedsNoActivation) {
    const Inferred fc("linear", "fc", {F32({2, 4})}, {{"out", "3"}});
    EXPECT_EQ(fc.spec.input_needs_inputs | fc.spec.input_needs_outputs | fc.spec.input_needs_saves,
              0u);
    EXPECT_EQ(fc.spec.weight_needs_inputs, 1u);
}

TEST(LayersLinear, CountsItsCost) {
    const Inferred fc("linear", "fc", {F32({2, 3, 4})}, {{"out", "5"}, {"bias", "false"}});
    for (int phase = 0; phase < CRL_PHASES; ++phase) {
        EXPECT_EQ(fc.spec.cost.flops[phase], 2.0 * 6 * 4 * 5);
    }
    const double x = 4 * 24, w = 4 * 20, y = 4 * 30;
    EXPECT_EQ(fc.spec.cost.bytes[CRL_PHASE_FORWARD], x + w + y);
    EXPECT_EQ(fc.spec.cost.bytes[CRL_PHASE_INPUT], y + w + x);
    EXPECT_EQ(fc.spec.cost.bytes[CRL_PHASE_WEIGHT], y + x + 2 * w);
}

TEST(LayersLinear, ComputesAKnownCase) {
    const Inferred fc("linear", "fc", {F32({1, 2})}, {{"out", "2"}});
    const Values values = {{{1, 2}}, {{3, 4, 5, 6}, {10, 20}}, {{1, -1}}, {}, {}};
    const Results got = Execute(fc, values, Settings{});
    EXPECT_EQ(got.y[0], (std::vector<float>{21, 37}));
    EXPECT_EQ(got.dx[0], (std::vector<float>{-2, -2}));
    EXPECT_EQ(got.dw[0], (std::vector<float>{1, 2, -1, -2}));
    EXPECT_EQ(got.dw[1], (std::vector<float>{1, -1}));
}

TEST(LayersLinear, FusedActivationSavesWhatItIsOf) {
    const Inferred fc("linear", "fc", {F32({1, 2})}, {{"out", "2"}, {"activation", "relu"}});
    ASSERT_EQ(fc.error, "");
    EXPECT_EQ(fc.spec.input_needs_saves, 1u);
    EXPECT_EQ(fc.spec.weight_needs_saves, 1u);
    const Values values = {{{1, 2}}, {{3, 4, 5, 6}, {10, -20}}, {{1, -1}}, {}, {}};
    const Results got = Execute(fc, values, Settings{});
    EXPECT_EQ(got.y[0], (std::vector<float>{21, 0}));
    EXPECT_EQ(got.save[0], (std::vector<float>{21, -3}));
    EXPECT_EQ(got.dx[0], (std::vector<float>{3, 4}));
    EXPECT_EQ(got.dw[0], (std::vector<float>{1, 2, 0, 0}));
    EXPECT_EQ(got.dw[1], (std::vector<float>{1, 0}));
}

TEST(LayersLinear, HalfTypesHalveTheTraffic) {
    const crl_tensor_spec x = {CRL_DTYPE_BF16, F32({2, 3, 4}).shape};
    const Inferred fc("linear", "fc", {x}, {{"out", "5"}, {"bias", "false"}}, -1, CRL_DTYPE_BF16);
    ASSERT_EQ(fc.error, "");
    EXPECT_EQ(Text(fc.spec.output[0]), "bf16(2,3,5)");
    const double in = 2 * 24, w = 2 * 20, y = 2 * 30;
    EXPECT_EQ(fc.spec.cost.bytes[CRL_PHASE_FORWARD], in + w + y);
    EXPECT_EQ(fc.spec.cost.bytes[CRL_PHASE_INPUT], y + w + in);
    EXPECT_EQ(fc.spec.cost.bytes[CRL_PHASE_WEIGHT], y + in + 2 * (4 * 20)) << "gradients are f32";
}

TEST(LayersLinear, ShardsItsOutputs) {
    const Inferred fc("linear", "fc", {F32({1, 2})}, {{"out", "6"}});
    int dimension[CRL_LAYER_MAX_PARAMS] = {-7, -7, -7, -7};
    ASSERT_EQ(fc.layer->shard(&fc.spec, 3, dimension), CRL_STATUS_OK);
    EXPECT_EQ(dimension[0], 0);
    EXPECT_EQ(dimension[1], 0);
    EXPECT_EQ(fc.layer->shard(&fc.spec, 4, dimension), CRL_STATUS_INVALID);
    EXPECT_STREQ(crl_error_message(), "linear fc: has 6 outputs, expected a multiple of 4 shards");
}

} // namespace
} // namespace layer_test
