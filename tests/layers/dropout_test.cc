/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/layers/runner.h"

namespace layer_test {
namespace {

constexpr int64_t kPerSample = 37;

Values Ones(int64_t samples) {
    const std::vector<float> ones((size_t)(samples * kPerSample), 1.0f);
    return {{ones}, {}, {ones}, {}, {}};
}

Results Compute(int64_t samples, const crl_call_position &at, const char *p = "0.25") {
    const Inferred drop("dropout", "drop", {F32({samples, kPerSample})}, {{"p", p}});
    EXPECT_EQ(drop.error, "");
    Settings settings;
    settings.at = at;
    return Execute(drop, Ones(samples), settings);
}

const crl_call_position kAt = {42, 7, 3, 16, 8, true};

TEST(LayersDropout, DropsAndScales) {
    const Results got = Compute(8, kAt);
    int kept = 0;
    for (const float y : got.y[0]) {
        EXPECT_TRUE(y == 0 || y == (float)(1 / 0.75)) << y;
        kept += y != 0;
    }
    EXPECT_NEAR(kept / (8.0 * kPerSample), 0.75, 0.1);
}

TEST(LayersDropout, BackwardDropsTheSameElements) {
    const Results got = Compute(8, kAt);
    EXPECT_EQ(got.y[0], got.dx[0]);
    const Inferred drop("dropout", "drop", {F32({8, kPerSample})}, {});
    EXPECT_EQ(drop.spec.saves, 0);
    EXPECT_EQ(drop.spec.input_needs_inputs | drop.spec.input_needs_outputs, 0u);
}

/* What is drawn belongs to the sample, however the samples are grouped into micro-batches. */
TEST(LayersDropout, DrawsDependOnTheSampleAlone) {
    const Results whole = Compute(8, kAt);
    std::vector<float> parts;
    for (const int64_t first : {0, 2, 5}) {
        crl_call_position at = kAt;
        at.first_sample += first;
        const int64_t samples = first == 0 ? 2 : 3;
        const Results part = Compute(samples, at);
        parts.insert(parts.end(), part.y[0].begin(), part.y[0].end());
    }
    EXPECT_EQ(whole.y[0], parts);
}

TEST(LayersDropout, DrawsDependOnSeedNodeAndStep) {
    const Results base = Compute(8, kAt);
    crl_call_position other = kAt;
    other.seed++;
    EXPECT_NE(Compute(8, other).y[0], base.y[0]);
    other = kAt;
    other.node++;
    EXPECT_NE(Compute(8, other).y[0], base.y[0]);
    other = kAt;
    other.step++;
    EXPECT_NE(Compute(8, other).y[0], base.y[0]);
}

TEST(LayersDropout, PassesThroughWhenNotTraining) {
    crl_call_position at = kAt;
    at.training = false;
    EXPECT_EQ(Compute(8, at).y[0], Ones(8).x[0]);
}

TEST(LayersDropout, SaysThatItDraws) {
    EXPECT_TRUE(Inferred("dropout", "drop", {F32({2, 3})}, {}).spec.draws);
    EXPECT_FALSE(Inferred("dropout", "drop", {F32({2, 3})}, {{"p", "0"}}).spec.draws);
    EXPECT_FALSE(Inferred("relu", "act", {F32({2, 3})}, {}).spec.draws);
}

TEST(LayersDropout, RejectsProbabilityOne) {
    EXPECT_EQ(InferError("dropout", "drop", {F32({2, 3})}, {{"p", "1"}}),
              "dropout drop: p is 1, expected at least 0 and below 1");
}

} // namespace
} // namespace layer_test
