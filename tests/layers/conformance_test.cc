/* SPDX-License-Identifier: Apache-2.0 */
/* The numbers of every layer: values, gradients, the same bits whatever may not change them. */
#include <algorithm>

#include "tests/layers/conformance.h"

namespace layer_test {
namespace {

void ExpectSame(const std::vector<std::vector<float>> &a, const std::vector<std::vector<float>> &b,
                const char *what) {
    ASSERT_EQ(a.size(), b.size()) << what;
    for (size_t i = 0; i < a.size(); ++i) {
        ASSERT_EQ(a[i].size(), b[i].size()) << what << " " << i;
        EXPECT_TRUE(a[i].empty() ||
                    std::memcmp(a[i].data(), b[i].data(), a[i].size() * sizeof(float)) == 0)
            << what << " " << i << " has other bits";
    }
}

void ExpectSame(const Results &a, const Results &b) {
    ExpectSame(a.y, b.y, "output");
    ExpectSame(a.save, b.save, "saved tensor");
    ExpectSame(a.dx, b.dx, "input gradient");
    ExpectSame(a.dw, b.dw, "weight gradient");
    EXPECT_EQ(std::memcmp(&a.loss, &b.loss, sizeof a.loss), 0) << "loss has other bits";
}

TEST_P(LayersConformance, ForwardMatchesDouble) {
    if (!Computes()) {
        return;
    }
    const Results got = Run(settings_);
    Numbers exact = Exact();
    GetParam().example->reference(&exact);
    CheckForward(got, exact);
    EXPECT_NEAR(got.loss.sum, exact.loss.sum, 1e-5 * (1 + std::abs(exact.loss.sum)));
    EXPECT_NEAR(got.loss.weight, exact.loss.weight, 1e-6 * (1 + std::abs(exact.loss.weight)));
    EXPECT_EQ(got.loss.correct, exact.loss.correct);
    if (exact.loss.rows > 0) {
        EXPECT_EQ(got.loss.rows, exact.loss.rows);
    }
}

/* `f32`, rounded to the type, but where the two computations fall on two sides of a tie. */
void ExpectRounded(const std::vector<float> &got, const std::vector<float> &f32, crl_dtype dtype,
                   const char *what) {
    size_t same = 0;
    ASSERT_EQ(got.size(), f32.size()) << what;
    for (size_t i = 0; i < got.size(); ++i) {
        same += got[i] == Round(dtype, f32[i]);
    }
    EXPECT_GE((double)same, 0.98 * (double)got.size()) << what;
}

/* Arithmetic is f32 in all types, so that nothing is rounded but what is stored. Where a result
 * depends on another stored one, nothing can be said. */
TEST_P(LayersConformance, ResultsAreThoseOfF32RoundedOnce) {
    const crl_layer_spec &spec = inferred_->spec;
    bool keeps_rounded = spec.outputs > 1;
    for (int i = 0; i < spec.saves; ++i) {
        keeps_rounded = keeps_rounded || spec.save[i].dtype != CRL_DTYPE_F32;
    }
    if (!Computes() || keeps_rounded) {
        return;
    }
    const Results got = Run(settings_);
    const Results f32 = Execute(*Infer(CRL_DTYPE_F32), values_, settings_);
    for (int i = 0; i < spec.outputs; ++i) {
        ExpectRounded(got.y[i], f32.y[i], spec.output[i].dtype, "output");
    }
    for (int i = 0; i < spec.inputs && spec.input_needs_outputs == 0; ++i) {
        ExpectRounded(got.dx[i], f32.dx[i], spec.input[i].dtype, "input gradient");
    }
}

TEST_P(LayersConformance, GradientsMatchFiniteDifferences) {
    if (!Computes()) {
        return;
    }
    const Results got = Run(settings_);
    Numbers exact = Exact();
    for (int i = 0; i < inferred_->spec.inputs; ++i) {
        if (inferred_->spec.gradient_inputs >> i & 1) {
            CheckGradient("input", &exact, &exact.x[i], got.dx[i]);
        }
    }
    for (int i = 0; i < inferred_->spec.params; ++i) {
        CheckGradient(inferred_->spec.param[i].name, &exact, &exact.w[i], got.dw[i]);
    }
}

TEST_P(LayersConformance, ForwardMatchesDoubleWhenNotTraining) {
    if (!Computes()) {
        return;
    }
    settings_.at.training = false;
    settings_.training = false;
    settings_.prepare_training = false;
    const Results got = Run(settings_);
    settings_.prepare_training = true;
    ExpectSame(got, Run(settings_));
    Numbers exact = Exact();
    GetParam().example->reference(&exact);
    CheckForward(got, exact);
}

TEST_P(LayersConformance, InputAndWeightGradientsAreIndependent) {
    if (!Computes()) {
        return;
    }
    const Results separate = Run(settings_);
    settings_.weight_first = true;
    ExpectSame(separate, Run(settings_));
    if (inferred_->layer->backward != nullptr) {
        settings_.fused = true;
        ExpectSame(separate, Run(settings_));
    }
}

/* A layer may add its terms one by one to what is there, so a few roundings may differ. */
void ExpectSum(const std::vector<float> &sum, const std::vector<float> &a,
               const std::vector<float> &b, crl_dtype dtype, const char *what) {
    ASSERT_EQ(sum.size(), b.size()) << what;
    for (size_t i = 0; i < sum.size(); ++i) {
        const double largest = std::max({std::abs(sum[i]), std::abs(a[i]), std::abs(b[i])});
        ASSERT_NEAR((double)sum[i], (double)a[i] + (double)b[i],
                    (0x1p-21 + Unit(dtype)) * (largest + 1))
            << what << " element " << i;
    }
}

TEST_P(LayersConformance, AccumulatingAdds) {
    if (!Computes()) {
        return;
    }
    const Results separate = Run(settings_);
    settings_.accumulate = true;
    const Results added = Run(settings_);
    for (int i = 0; i < inferred_->spec.inputs; ++i) {
        if (inferred_->spec.gradient_inputs >> i & 1) {
            ExpectSum(added.dx[i], values_.dx[i], separate.dx[i], inferred_->spec.input[i].dtype,
                      "input gradient");
        }
    }
    for (int i = 0; i < inferred_->spec.params; ++i) {
        ExpectSum(added.dw[i], values_.dw[i], separate.dw[i], CRL_DTYPE_F32, "weight gradient");
    }
}

TEST_P(LayersConformance, UnwantedInputGradientsAreSkipped) {
    if (!Computes()) {
        return;
    }
    const Results all = Run(settings_);
    settings_.dx_wanted = 0;
    const Results none = Run(settings_);
    ExpectSame(all.dw, none.dw, "weight gradient");
    for (int i = 0; i < inferred_->spec.inputs; ++i) {
        settings_.dx_wanted = 1u << i;
        const Results one = Run(settings_);
        EXPECT_EQ(one.dx[i], all.dx[i]);
    }
}

TEST_P(LayersConformance, BitsDoNotDependOnThreads) {
    if (!Computes()) {
        return;
    }
    for (const bool accumulate : {false, true}) {
        settings_.accumulate = accumulate;
        settings_.threads = 1;
        const Results one = Run(settings_);
        for (const int threads : {2, 3}) {
            settings_.threads = threads;
            ExpectSame(one, Run(settings_));
        }
    }
}

/* Recorded work is replayed with the numbers of another step: it must not need them. */
TEST_P(LayersConformance, WorkThatDependsOnTheStepIsDeclared) {
    if (!Computes() || inferred_->spec.draws) {
        return;
    }
    const Results one = Run(settings_);
    settings_.at.step += 5;
    settings_.at.seed += 1;
    ExpectSame(one, Run(settings_));
}

/* The same tensor as two inputs: one gradient, which the first writes and the second adds to. */
TEST_P(LayersConformance, InputsThatAreOneTensorHaveBothGradients) {
    const crl_layer_spec &spec = inferred_->spec;
    if (spec.inputs < 2 || !(spec.gradient_inputs & 2u)) {
        return;
    }
    const Results apart = Run(settings_);
    settings_.one_dx = true;
    const Results together = Run(settings_);
    for (size_t i = 0; i < apart.dx[0].size(); ++i) {
        const float sum = apart.dx[0][i] + apart.dx[1][i];
        ASSERT_NEAR(together.dx[0][i], sum, 1e-6 + 4 * Unit(GetParam().compute) * std::abs(sum))
            << "element " << i;
    }
}

/* What backward makes again instead of keeping it. */
TEST_P(LayersConformance, ForwardAgainGivesTheSameBits) {
    if (Computes()) {
        settings_.again = true;
        Run(settings_);
    }
}

TEST_P(LayersConformance, LossScalesItsGradient) {
    if (!inferred_->layer->is_loss) {
        return;
    }
    const Results plain = Run(settings_);
    settings_.loss_scale = 4;
    const Results scaled = Run(settings_);
    EXPECT_EQ(scaled.loss.sum, plain.loss.sum);
    for (size_t i = 0; i < plain.dx[0].size(); ++i) {
        ASSERT_NEAR(scaled.dx[0][i], 4 * plain.dx[0][i],
                    (1e-6 + Unit(GetParam().compute)) * std::abs(scaled.dx[0][i]) + 1e-7)
            << "element " << i;
    }
}

TEST_P(LayersConformance, LossAddsToWhatIsThere) {
    if (!inferred_->layer->is_loss) {
        return;
    }
    const Results alone = Run(settings_);
    settings_.loss = {1.5, 2.25, 3, 4};
    const Results added = Run(settings_);
    EXPECT_EQ(added.loss.sum, 1.5 + alone.loss.sum);
    EXPECT_EQ(added.loss.weight, 2.25 + alone.loss.weight);
    EXPECT_EQ(added.loss.correct, 3 + alone.loss.correct);
    EXPECT_EQ(added.loss.rows, 4 + alone.loss.rows);
}

} // namespace
} // namespace layer_test
