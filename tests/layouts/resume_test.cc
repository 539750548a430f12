// SPDX-License-Identifier: Apache-2.0
// Going on from a checkpoint: only where the numbers would be those of an uninterrupted run.
#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>

#include "tests/layouts/job.h"

namespace {

namespace fs = std::filesystem;
using job::Outcome;
using job::Sets;
using job::Train;
using job::Width;

class LayoutsResumed : public testing::Test {
  protected:
    // Two steps under the default lanes, and their checkpoint.
    void SetUp() override {
        base_ = job::Gpt(scratch_);
        base_.Erase("numerics.lanes");
        base_ += {{"train.steps", "2"}};
        const Outcome first = Train(base_);
        ASSERT_EQ(first.status, CRL_STATUS_OK) << first.message;
        hash_ = first.result.parameter_hash;
    }
    std::string Step(int step) const {
        char name[32];
        snprintf(name, sizeof name, "run/checkpoints/step-%08d", step);
        return scratch_ / name;
    }
    Outcome Resume(const Sets &sets) const {
        return Train(base_ + Sets{{"train.steps", "4"}, {"run.resume", Step(2)}} + sets);
    }
    std::string Refused(const Sets &sets) const {
        const Outcome outcome = Resume(sets);
        EXPECT_NE(outcome.status, CRL_STATUS_OK) << sets.Text();
        return outcome.message;
    }

    Scratch scratch_;
    Sets base_;
    uint64_t hash_ = 0;
};

TEST_F(LayoutsResumed, RefusesAnotherOptimizer) {
    Sets sgd = base_ + Sets{{"run.resume", Step(2)}, {"optimizer.type", "sgd"}};
    const Outcome outcome = Train(sgd);
    EXPECT_EQ(outcome.status, CRL_STATUS_INVALID);
    EXPECT_EQ(outcome.message, Step(2) + ": trained with optimizer.type adamw, config has sgd (to "
                                         "use only its weights: run.initialize)");
}

TEST_F(LayoutsResumed, RefusesOtherBatchesAndSeeds) {
    EXPECT_EQ(Refused({{"train.seed", "2"}}),
              Step(2) + ": trained with train.seed 1, config has 2 (to use only its weights: "
                        "run.initialize)");
    EXPECT_NE(Refused({{"train.micro_batch", "4"}}).find("train.micro_batch 2"), std::string::npos);
}

// Trained alone there is one lane; two replicas cannot share it, so the bits would change.
TEST_F(LayoutsResumed, LanesChangeOnlyWhenAskedFor) {
    EXPECT_EQ(Refused(Width(1, 2)), Step(2) + ": trained with 1 lanes, the layout has 2 (to go on "
                                              "with other bits: numerics.lanes)");
    EXPECT_EQ(Resume(Width(2, 1)).status, CRL_STATUS_OK);
    const Outcome asked = Resume(Width(1, 2) + Sets{{"numerics.lanes", "2"}});
    EXPECT_EQ(asked.status, CRL_STATUS_OK) << asked.message;
}

TEST_F(LayoutsResumed, FewMicroBatchesKeepTheirLanes) {
    const Sets few = {{"train.global_batch", "2"}, {"run.directory", scratch_ / "few"}};
    const Outcome first = Train(base_ + few + Width(1, 2));
    ASSERT_EQ(first.status, CRL_STATUS_OK) << first.message;
    const Outcome second =
        Train(base_ + few + Width(1, 2) + Sets{{"run.resume", "auto"}, {"train.steps", "3"}});
    EXPECT_EQ(second.status, CRL_STATUS_OK) << second.message;
    EXPECT_EQ(second.loss.size(), 1u);
}

TEST_F(LayoutsResumed, StepsThatAreDoneAreNotDoneAgain) {
    for (const char *steps : {"2", "1"}) {
        const Outcome outcome = Resume({{"train.steps", steps}});
        ASSERT_EQ(outcome.status, CRL_STATUS_OK) << outcome.message;
        EXPECT_EQ(outcome.loss.size(), 0u);
        EXPECT_EQ(outcome.result.steps, 2);
        EXPECT_EQ(outcome.result.parameter_hash, hash_);
    }
}

// A fresh start would later remove what may still be saved.
TEST_F(LayoutsResumed, BrokenIsNotFresh) {
    fs::resize_file(Step(2) + "/model.safetensors", 100);
    const Outcome outcome = Train(base_ + Sets{{"run.resume", "auto"}} + Width(2, 1));
    EXPECT_EQ(outcome.status, CRL_STATUS_INVALID);
    EXPECT_EQ(outcome.rank, 0);
    EXPECT_NE(outcome.message.find("no complete checkpoint, 1 broken"), std::string::npos)
        << outcome.message;
    fs::remove_all(scratch_ / "run/checkpoints");
    EXPECT_EQ(Train(base_ + Sets{{"run.resume", "auto"}}).result.steps, 2);
}

TEST_F(LayoutsResumed, StepBelowZero) {
    write_text(Step(2) + "/state.json",
               "{\"format\": 1, \"step\": -3, \"seed\": 1, \"global_batch\": 16, "
               "\"micro_batch\": 2, \"lanes\": 1, \"optimizer\": \"adamw\"}");
    EXPECT_EQ(Refused({}), Step(2) + ": step is -3, expected 0 or more");
}

TEST_F(LayoutsResumed, LossScaleThatCannotBe) {
    const std::string facts = "{\"format\": 1, \"step\": 2, \"seed\": 1, \"global_batch\": 16, "
                              "\"micro_batch\": 2, \"lanes\": 1, \"optimizer\": \"adamw\", "
                              "\"loss_scale_good\": 0, ";
    write_text(Step(2) + "/state.json", facts + "\"loss_scale\": 8.0, \"skipped\": 3}");
    EXPECT_EQ(Refused({}), Step(2) + ": skipped is 3, expected 0 to 2 steps");
    write_text(Step(2) + "/state.json", facts + "\"loss_scale\": 0.5, \"skipped\": 0}");
    EXPECT_EQ(Refused({}), Step(2) + ": loss_scale is 0.5, expected 1 or more");
}

TEST_F(LayoutsResumed, FactsHoldTheOptionsOfTheModel) {
    std::string facts(1 << 14, '\0');
    FILE *file = fopen((Step(2) + "/state.json").c_str(), "r");
    ASSERT_NE(file, nullptr);
    facts.resize(fread(facts.data(), 1, facts.size(), file));
    fclose(file);
    EXPECT_NE(facts.find("\"dropout\": \"0.1\""), std::string::npos) << facts;
    EXPECT_NE(facts.find("\"vocabulary\": \"61\""), std::string::npos) << facts;
}

// The share of the time nobody computes counts the tail of a rank that is done early as well.
TEST_F(LayoutsResumed, BubbleLiesBetweenNoneAndAll) {
    const job::Settings settings(base_ + Width(4, 1));
    ASSERT_EQ(settings.status(), CRL_STATUS_OK);
    std::vector<double> bubbles;
    crl_run_events events = {};
    events.context = &bubbles;
    events.stepped = [](void *context, const crl_step_report *report) {
        static_cast<std::vector<double> *>(context)->push_back(report->bubble);
    };
    crl_run_result result;
    ASSERT_EQ(crl_train(&result, settings.get(), crl_builtins(), &events), CRL_STATUS_OK);
    ASSERT_EQ(bubbles.size(), 2u);
    for (double bubble : bubbles) {
        EXPECT_GT(bubble, 0);
        EXPECT_LT(bubble, 1);
    }
}

} // namespace
