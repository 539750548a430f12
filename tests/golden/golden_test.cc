// SPDX-License-Identifier: Apache-2.0
// Losses, every gradient and the updates against an independent float64 computation: the golden
// files and the script that made them are beside this file. Errors are relative, in the L2 norm of
// each parameter: ||g - g0|| / ||g0||.
#include <gtest/gtest.h>

#include <map>

#include "cli/builtins.h"
#include "engine/base/alloc.h"
#include "engine/run/step.h"
#include "tests/golden/golden.h"

extern "C" {
#include "engine/run/run_internal.h"
}

namespace {

constexpr double kGradientError = 1e-5;
constexpr double kLossError = 1e-6;
constexpr int kMicroBatch = 2;

crl_status BuildWeightedMlp(crl_model *model, const void *) {
    const crl_layer_desc layers[] = {
        {"input", "images", {}, {{"dims", 0, "5,6"}}, {}},
        {"flatten", "flat", {}, {}, {}},
        {"linear", "fc1", {}, {{"out", 23, nullptr}}, {}},
        {"relu", "act1", {}, {}, {}},
        {"linear", "fc2", {}, {{"out", 19, nullptr}}, {}},
        {"relu", "act2", {}, {}, {}},
        {"linear", "head", {}, {{"out", 7, nullptr}}, {}},
        {"input", "labels", {}, {{"dtype", 0, "i32"}}, {}},
        {"softmax_cross_entropy",
         "loss",
         {"head", "labels"},
         {{"ignore_index", 2, nullptr}, {"label_weights", 0, "1,0.5,1,2,0,0.25,3"}},
         {}}};
    for (const crl_layer_desc &layer : layers) {
        CRL_TRY(crl_model_add(model, &layer));
    }
    return CRL_STATUS_OK;
}

const crl_model_def kWeightedMlp = {"weighted_mlp", "ignored and weighted labels", nullptr, 0,
                                    BuildWeightedMlp};

// What one golden run is, and what is asked of it.
struct Run {
    const golden::Case *golden;
    std::string optimizer;
    int pipeline, data;
    const crl_settings *settings;
};

// A dataset field of one step, padded with zeros to whole micro-batches.
using Field = std::vector<uint32_t>;

class Rank {
  public:
    explicit Rank(const Run *run) : run_(run) {}

    crl_status Train(crl_comm *comm) {
        const crl_status status = TrainAll(comm);
        crl_session_close(&session_, status != CRL_STATUS_OK);
        return status;
    }

  private:
    const crl_graph *graph() const { return session_.layout->graph; }

    void LoadParameters() {
        for (int p = 0; p < graph()->params; p++) {
            const std::string name = std::string("param/") + graph()->param[p].name;
            const std::vector<float> value = run_->golden->Read<float>(name);
            ASSERT_EQ(int64_t(value.size()), graph()->param[p].elements) << name;
            float *w = crl_params_weight(session_.rank->params, p);
            if (w) {
                memcpy(w, value.data(), value.size() * sizeof(float));
            }
        }
    }

    // The data of step `step` (from 1) as the loader would hand it to this rank.
    crl_loader_step Data(int step, int samples) {
        const int *value = nullptr;
        const int fields = crl_executor_fields(session_.rank->executor, &value);
        const int batch = int(run_->golden->Number("batch"));
        crl_loader_step data = {};
        data.samples = samples;
        for (int f = 0; f < fields; f++) {
            const char *name = graph()->value[value[f]].name;
            const Field all = run_->golden->Read<uint32_t>(std::string("field/") + name);
            const size_t sample = graph()->value[value[f]].bytes / 4 / kMicroBatch;
            Field &here = field_[f];
            here.assign(size_t(session_.layout->micro_batches) * kMicroBatch * sample, 0);
            const uint32_t *from = all.data() + size_t(step - 1) * size_t(batch) * sample;
            std::copy(from, from + size_t(samples) * sample, here.begin());
            data.data[f] =
                here.data() + size_t(session_.rank->micro_batches.first) * kMicroBatch * sample;
        }
        return data;
    }

    void CompareGradients() {
        for (int p = 0; p < graph()->params; p++) {
            if (crl_params_weight(session_.rank->params, p)) {
                const std::string name = graph()->param[p].name;
                EXPECT_LE(golden::Distance(crl_grad_sync_gradient(session_.rank->sync, p),
                                           run_->golden->Read<float>("grad/" + name)),
                          kGradientError)
                    << "gradient of " << name;
            }
        }
    }

    void CompareWeights() {
        for (int p = 0; p < graph()->params; p++) {
            const std::string name = graph()->param[p].name;
            const float *w = crl_params_weight(session_.rank->params, p);
            if (w) {
                EXPECT_LE(golden::Distance(w, run_->golden->Read<float>("final/" + run_->optimizer +
                                                                        "/" + name)),
                          kGradientError)
                    << name << " after the last step";
            }
        }
    }

    static void CompareStep(const crl_step_report &report, const json_t *expected) {
        const auto number = [expected](const char *key) {
            return json_number_value(json_object_get(expected, key));
        };
        EXPECT_NEAR(report.loss, number("loss"), kLossError * number("loss"))
            << "step " << report.step;
        EXPECT_NEAR(report.gradient_norm, number("gradient_norm"),
                    kGradientError * number("gradient_norm"))
            << "step " << report.step;
        EXPECT_NEAR(report.learning_rate, number("learning_rate"), 1e-15) << "step " << report.step;
    }

    crl_status TrainAll(crl_comm *comm) {
        const json_t *steps = json_object_get(run_->golden->Optimizer(run_->optimizer), "steps");
        const int count = int(json_array_size(steps));
        CRL_TRY(crl_session_open(&session_, run_->settings, crl_builtins(), comm, true));
        EXPECT_EQ(run_->golden->Count("param/"), graph()->params);
        LoadParameters();
        const crl_settings_optimizer *o = &run_->settings->optimizer;
        const crl_lr_config rate = {crl_lr_kind(o->rate_schedule), o->learning_rate,
                                    o->minimum_rate, o->warmup_steps, count};
        for (int step = 1; step <= count; step++) {
            const json_t *expected = json_array_get(steps, size_t(step - 1));
            const crl_loader_step data =
                Data(step, int(json_integer_value(json_object_get(expected, "samples"))));
            const crl_step_request request = {step, crl_lr_at(&rate, step), &data, false, true};
            CRL_TRY(crl_stepper_train(&session_.stepper, &request));
            const crl_step_report &report = session_.stepper.report;
            CompareStep(report, expected);
            if (step == 1) {
                CompareGradients();
                EXPECT_NEAR(report.loss * json_number_value(json_object_get(expected, "weight")),
                            run_->golden->Number("loss_sum"),
                            kLossError * run_->golden->Number("loss_sum"));
            }
        }
        CompareWeights();
        return CRL_STATUS_OK;
    }

    const Run *run_;
    crl_session session_ = {};
    std::map<int, Field> field_;
};

void Compare(const std::string &name, const std::string &optimizer, int pipeline, int data) {
    SCOPED_TRACE(name + " " + optimizer + " " + std::to_string(pipeline) + " x " +
                 std::to_string(data));
    const golden::Case golden(name);
    std::vector<std::string> sets = golden::Texts(json_object_get(golden.facts(), "model"));
    for (const std::string &set :
         golden::Texts(json_object_get(golden.Optimizer(optimizer), "settings"))) {
        sets.push_back(set);
    }
    sets.push_back("train.steps=1000");
    sets.push_back("train.global_batch=" + std::to_string(int(golden.Number("batch"))));
    sets.push_back("train.micro_batch=" + std::to_string(kMicroBatch));
    sets.push_back("parallel.pipeline=" + std::to_string(pipeline));
    sets.push_back("parallel.data=" + std::to_string(data));
    sets.push_back("run.threads=1");
    std::vector<const char *> texts;
    for (const std::string &set : sets) {
        texts.push_back(set.c_str());
    }
    crl_settings *settings = nullptr;
    ASSERT_EQ(crl_settings_load(&settings, crl_builtins(), &kWeightedMlp, nullptr, texts.data(),
                                int(texts.size())),
              CRL_STATUS_OK)
        << crl_error_message();
    Run run = {&golden, optimizer, pipeline, data, settings};
    EXPECT_EQ(crl_session_launch(
                  settings, crl_builtins(), pipeline * data,
                  [](void *argument, crl_comm *comm) {
                      return Rank(static_cast<const Run *>(argument)).Train(comm);
                  },
                  &run),
              CRL_STATUS_OK)
        << crl_error_message();
    crl_settings_destroy(settings);
}

TEST(Golden, GptAdamW) {
    Compare("gpt", "adamw", 1, 1);
}
TEST(Golden, GptSgdNesterov) {
    Compare("gpt", "sgd", 1, 1);
}
TEST(Golden, MlpAdamW) {
    Compare("mlp", "adamw", 1, 1);
}
TEST(Golden, MlpSgdNesterov) {
    Compare("mlp", "sgd", 1, 1);
}
TEST(Golden, MlpIgnoredAndWeightedLabelsAdamW) {
    Compare("mlp_weighted", "adamw", 1, 1);
}
TEST(Golden, MlpIgnoredAndWeightedLabelsSgdNesterov) {
    Compare("mlp_weighted", "sgd", 1, 1);
}

TEST(Golden, EveryCaseInParallelLayouts) {
    for (const char *name : {"gpt", "mlp", "mlp_weighted"}) {
        Compare(name, "adamw", 3, 1);
        Compare(name, "sgd", 2, 2);
    }
}

} // namespace
