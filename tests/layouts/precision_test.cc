// SPDX-License-Identifier: Apache-2.0
// Mixed precision: the layout changes no bit in bf16 and f16 either; layers may stay in f32; a step
// whose gradient overflows in f16 is skipped by all ranks, and the loss scale follows.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <string>

#include "tests/layouts/job.h"

extern "C" {
#include "engine/run/layout_internal.h"
}

namespace {

using job::Cuts;
using job::Outcome;
using job::Sets;
using job::Train;
using job::Width;

Outcome Trained(const Sets &sets, const crl_registries *registries = crl_builtins()) {
    Outcome outcome = Train(sets, registries);
    EXPECT_EQ(outcome.status, CRL_STATUS_OK) << outcome.message << "\nwith " << sets.Text();
    return outcome;
}

class Precision : public testing::TestWithParam<const char *> {
  protected:
    Sets Base() const { return job::Gpt(scratch_) + Sets{{"numerics.precision", GetParam()}}; }
    Scratch scratch_;
};
INSTANTIATE_TEST_SUITE_P(, Precision, testing::Values("bf16", "f16"),
                         [](const auto &info) { return std::string(info.param); });

TEST_P(Precision, LayoutsGiveTheSameBits) {
    const Outcome one = Trained(Base());
    EXPECT_NE(one.Bits(), Trained(job::Gpt(scratch_)).Bits()) << "computes in f32";
    for (int pipeline : {1, 2, 4}) {
        for (int data : {1, 2, 4}) {
            for (const char *schedule : {"gpipe", "1f1b", "interleaved", "zb-h1"}) {
                const Sets layout = Width(pipeline, data) + Sets{{"parallel.schedule", schedule}};
                if (pipeline > 1 || std::string(schedule) != "interleaved") {
                    EXPECT_EQ(Trained(Base() + layout).Bits(), one.Bits()) << layout.Text();
                }
            }
        }
    }
}

TEST_P(Precision, RecomputingAndLateValidationGiveTheSameBits) {
    const std::string one = Trained(Base()).Bits();
    EXPECT_EQ(Trained(Base() + Sets{{"parallel.recompute", "full"}}).Bits(), one);
    EXPECT_EQ(Trained(Base() + Width(2, 2) + Sets{{"optimizer.validate", "after"}}).Bits(), one);
    EXPECT_EQ(Trained(Base() + Sets{{"run.threads", "2"}}).Bits(), one);
}

// Arrays of f32 come after those of 16 bits, and kernels want theirs aligned.
TEST_P(Precision, PartsOfAReservationAreAligned) {
    for (const char *hidden : {"[16]", "[48]", "[16, 16]"}) {
        const job::Settings settings(
            job::Mlp(scratch_, "x", "y") +
            Sets{{"numerics.precision", GetParam()}, {"model.hidden", hidden}});
        crl_layout *layout = nullptr;
        crl_memory_report report = {};
        ASSERT_EQ(crl_layout_create(&layout, settings.get(), crl_builtins(), nullptr),
                  CRL_STATUS_OK)
            << crl_error_message();
        ASSERT_EQ(crl_layout_memory(&report, layout, 0), CRL_STATUS_OK);
        crl_layout_destroy(layout);
        EXPECT_EQ(report.weights_bytes % 64, 0u) << hidden;
    }
}

// The memory limit of a layout counts the rounded weights, as the reservation does.
TEST_P(Precision, CutsCountRoundedWeights) {
    double bytes[2];
    for (int i = 0; i < 2; i++) {
        const job::Settings settings(i == 0 ? job::Gpt(scratch_) : Base());
        crl_layout *layout = nullptr;
        ASSERT_EQ(crl_layout_create(&layout, settings.get(), crl_builtins(), nullptr),
                  CRL_STATUS_OK);
        bytes[i] = 0;
        for (int n = 0; n < layout->graph->nodes; n++) {
            bytes[i] += crl_layout_state_bytes(layout, n);
        }
        crl_layout_destroy(layout);
    }
    EXPECT_GT(bytes[1], 1.05 * bytes[0]);
}

TEST_P(Precision, LossIsNearThatOfF32) {
    const Outcome rounded = Trained(Base()), exact = Trained(job::Gpt(scratch_));
    ASSERT_EQ(rounded.loss.size(), exact.loss.size());
    for (size_t i = 0; i < exact.loss.size(); i++) {
        EXPECT_NEAR(rounded.loss[i], exact.loss[i], 0.02 * exact.loss[i]) << "step " << i + 1;
    }
}

TEST_P(Precision, LayersCanStayInF32) {
    const Sets some = {{"numerics.f32", "[lnf, h1.*, attention]"}};
    const std::string one = Trained(Base() + some).Bits();
    EXPECT_NE(one, Trained(Base()).Bits());
    EXPECT_EQ(Trained(Base() + some + Width(2, 2)).Bits(), one);
    EXPECT_EQ(Trained(Base() + some + Width(4, 1)).Bits(), one);
    // All of them: what is left is f32's, in other nodes.
    const Outcome all = Trained(Base() + Sets{{"numerics.f32", "[*]"}});
    EXPECT_EQ(all.result.parameter_hash, Trained(job::Gpt(scratch_)).result.parameter_hash);
    const Outcome none = Train(Base() + Sets{{"numerics.f32", "[h9.*]"}});
    EXPECT_EQ(none.status, CRL_STATUS_INVALID);
    EXPECT_NE(none.message.find("h9.*"), std::string::npos) << none.message;
}

TEST_P(Precision, GoesOnFromACheckpoint) {
    const Sets base = Base() + Sets{{"optimizer.rate_schedule", "constant"}};
    const Outcome whole = Trained(base);
    Trained(base + Width(2, 1) + Sets{{"train.steps", "5"}});
    const Sets again = {{"run.resume", "auto"}};
    const Outcome rest = Trained(base + Width(1, 2) + again);
    EXPECT_EQ(rest.result.parameter_hash, whole.result.parameter_hash);
    const Outcome other = Train(job::Gpt(scratch_) + again);
    EXPECT_EQ(other.status, CRL_STATUS_INVALID);
    EXPECT_NE(other.message.find(std::string("trained with numerics.precision ") + GetParam() +
                                 ", config has f32"),
              std::string::npos)
        << other.message;
}

// Passes through; in backward of the first micro-batch of step kBurst its gradient is infinite.
constexpr uint32_t kBurst = 3;

crl_status InferBurst(crl_layer_spec *spec) {
    spec->outputs = 1;
    spec->output[0] = spec->input[0];
    spec->gradient_inputs = 1;
    return CRL_STATUS_OK;
}

crl_status ForwardBurst(const crl_layer_call *call) {
    return call->kernels->eltwise->copy(call->stream, call->x[0], call->y[0],
                                        crl_shape_elements(&call->spec->input[0].shape), false);
}

crl_status BackwardBurst(const crl_layer_call *call) {
    CRL_TRY(call->kernels->eltwise->copy(call->stream, call->dy[0], call->dx[0],
                                         crl_shape_elements(&call->spec->input[0].shape),
                                         call->dx_accumulate[0]));
    if (call->at.step == kBurst && call->at.first_sample == 0) {
        const uint16_t infinity = 0x7c00;
        memcpy(call->dx[0], &infinity, sizeof infinity);
    }
    return CRL_STATUS_OK;
}

crl_layer Burst() {
    crl_layer layer = {};
    layer.name = "burst";
    layer.help = "";
    layer.infer = InferBurst;
    layer.forward = ForwardBurst;
    layer.backward_input = BackwardBurst;
    return layer;
}
const crl_layer burst = Burst();

crl_status Build(crl_model *model, const void *) {
    const auto add = [&](const char *type, const char *name, const char *key, double number,
                         const char *text, const char *a = nullptr, const char *b = nullptr) {
        crl_layer_desc layer = {};
        layer.type = type;
        layer.name = name;
        layer.input[0] = a;
        layer.input[1] = b;
        if (key) {
            layer.options[0] = {key, number, text};
        }
        return crl_model_add(model, &layer);
    };
    CRL_TRY(add("input", "images", "dims", 0, "28,28"));
    crl_layer_desc labels = {};
    labels.type = "input";
    labels.name = "labels";
    labels.options[0] = {"dtype", 0, "i32"};
    labels.options[1] = {"dims", 0, ""};
    CRL_TRY(crl_model_add(model, &labels));
    CRL_TRY(add("flatten", "flat", nullptr, 0, nullptr, "images"));
    CRL_TRY(add("linear", "a", "out", 32, nullptr));
    CRL_TRY(add("relu", "ra", nullptr, 0, nullptr));
    CRL_TRY(add("linear", "b", "out", 32, nullptr));
    CRL_TRY(add("burst", "burst", nullptr, 0, nullptr));
    CRL_TRY(add("linear", "head", "out", 10, nullptr));
    return add("softmax_cross_entropy", "loss", nullptr, 0, nullptr, "head", "labels");
}
const crl_model_def model = {"bursting", "", nullptr, 0, Build};

class LossScale : public testing::Test {
  protected:
    LossScale() : registries_(*crl_builtins()) {
        for (const void *const *at = crl_builtins()->layers; *at; at++) {
            layers_.push_back(*at);
        }
        layers_.insert(layers_.end(), {&burst, nullptr});
        registries_.layers = layers_.data();
        registries_.models = models_;
        job::WriteImages(scratch_, 64);
        base_ = {{"model.type", "bursting"},
                 {"data.train", "[" + (scratch_ / "images") + "," + (scratch_ / "labels") + "]"},
                 {"numerics.precision", "f16"},
                 {"numerics.lanes", "4"},
                 {"train.steps", "6"},
                 {"train.global_batch", "16"},
                 {"train.micro_batch", "2"},
                 {"optimizer.type", "adamw"},
                 {"optimizer.learning_rate", "0.01"},
                 {"comm.deadline", "60"},
                 {"run.threads", "1"},
                 {"run.directory", scratch_ / "run"}};
    }
    Outcome Run(const Sets &sets) const { return Trained(base_ + sets, &registries_); }

    Scratch scratch_;
    crl_registries registries_;
    std::vector<const void *> layers_;
    const void *models_[2] = {&model, nullptr};
    Sets base_;
};

TEST_F(LossScale, AnOverflowIsSkippedByAllRanksAndHalvesIt) {
    const Outcome before = Run({{"train.steps", "2"}}), at = Run({{"train.steps", "3"}});
    EXPECT_EQ(before.result.skipped, 0);
    EXPECT_EQ(before.result.loss_scale, 1024);
    EXPECT_EQ(at.result.skipped, 1);
    EXPECT_EQ(at.result.loss_scale, 512);
    EXPECT_EQ(at.result.parameter_hash, before.result.parameter_hash) << "the step was made";
    const Outcome all = Run({});
    EXPECT_EQ(all.result.skipped, 1);
    EXPECT_EQ(all.result.loss_scale, 512);
    EXPECT_NE(all.result.parameter_hash, at.result.parameter_hash);
    for (const Sets &layout : {Width(2, 1) + Cuts("[b]"), Width(2, 2) + Cuts("[b]"), Width(1, 4),
                               Width(3, 2), Width(2, 1) + Sets{{"parallel.schedule", "zb-h1"}}}) {
        for (const char *validate : {"before", "after"}) {
            const Outcome other = Run(layout + Sets{{"optimizer.validate", validate}});
            EXPECT_EQ(other.Bits(), all.Bits()) << layout.Text() << validate;
            EXPECT_EQ(other.result.skipped, 1) << layout.Text();
            EXPECT_EQ(other.result.loss_scale, 512) << layout.Text();
        }
    }
}

TEST_F(LossScale, ItGrowsAgainAndACheckpointKeepsIt) {
    const Sets window = {{"numerics.loss_scale_window", "2"}};
    const Outcome whole = Run(window); // doubles after 2, halves at 3, doubles after 5
    EXPECT_EQ(whole.result.loss_scale, 2048);
    Run(window + Width(2, 1) + Sets{{"train.steps", "4"}});
    const Outcome rest = Run(window + Width(1, 2) + Sets{{"run.resume", "auto"}});
    EXPECT_EQ(rest.result.loss_scale, 2048);
    EXPECT_EQ(rest.result.skipped, 1);
    EXPECT_EQ(rest.result.parameter_hash, whole.result.parameter_hash);
}

TEST_F(LossScale, AFixedOneIsNotChosen) {
    const Outcome outcome = Train(base_ + Sets{{"numerics.loss_scale", "1024"}}, &registries_);
    EXPECT_EQ(outcome.status, CRL_STATUS_INVALID);
    EXPECT_NE(outcome.message.find("step 3: gradient norm is"), std::string::npos)
        << outcome.message;
}

TEST_F(LossScale, WhatCannotBeHalvedEndsTheRun) {
    const Outcome outcome = Train(base_ + Sets{{"numerics.loss_scale_initial", "1"}}, &registries_);
    EXPECT_EQ(outcome.status, CRL_STATUS_INVALID);
    EXPECT_EQ(outcome.message, "step 3: gradients overflow with a loss scale of 1, expected finite "
                               "ones; steps skipped: 1");
}

TEST_F(LossScale, IsAPowerOfTwo) {
    const Outcome three = Train(base_ + Sets{{"numerics.loss_scale", "3"}}, &registries_);
    EXPECT_NE(three.message.find("loss_scale is 3, expected a power of two"), std::string::npos);
    const Outcome bf16 = Train(
        base_ + Sets{{"numerics.loss_scale", "2"}, {"numerics.precision", "bf16"}}, &registries_);
    EXPECT_NE(bf16.message.find("expected it with precision f16"), std::string::npos);
}

} // namespace
