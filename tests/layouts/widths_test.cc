// SPDX-License-Identifier: Apache-2.0
// A width per stage: any replicas of any position, the same bits.
#include <gtest/gtest.h>

#include <random>

#include "tests/layouts/job.h"

namespace {

using job::Schedule;
using job::Sets;
using job::Train;

Sets Replicas(const std::string &widths) { return {{"parallel.replicas", widths}}; }

std::string Bits(const Sets &sets) {
    const job::Outcome outcome = Train(sets);
    EXPECT_EQ(outcome.status, CRL_STATUS_OK) << outcome.message << "\nwith " << sets.Text();
    EXPECT_EQ(outcome.result.late_allocations, 0) << "with " << sets.Text();
    EXPECT_EQ(outcome.result.late_primitives, 0) << "with " << sets.Text();
    return outcome.Bits();
}

class Widths : public testing::Test {
  protected:
    Scratch scratch_;
};

TEST_F(Widths, GiveTheBitsOfOneRank) {
    const Sets base = job::Gpt(scratch_);
    const std::string one = Bits(base);
    for (const char *widths : {"[3, 1]", "[1, 3]", "[2, 1, 1]", "[1, 2, 1]", "[3, 2]", "[2, 4]",
                               "[4, 2, 1, 3]", "[4, 4]"}) {
        for (const char *schedule : {"1f1b", "gpipe"}) {
            EXPECT_EQ(Bits(base + Replicas(widths) + Schedule(schedule)), one)
                << widths << " " << schedule;
        }
    }
    EXPECT_EQ(Bits(base + Replicas("[3, 1]") + Schedule("interleaved")), one);
    EXPECT_EQ(Bits(base + Replicas("[1, 2, 1]") + Schedule("interleaved")), one);
}

TEST_F(Widths, ManyLanesAndFewMicroBatches) {
    const Sets base = job::Gpt(scratch_) + Sets{{"numerics.lanes", "8"}};
    const std::string eight = Bits(base);
    for (const char *widths : {"[7, 1]", "[1, 7]", "[5, 3]", "[8, 3]"}) {
        EXPECT_EQ(Bits(base + Replicas(widths)), eight) << widths;
    }
    const Sets few = job::Gpt(scratch_) + Sets{{"train.micro_batch", "7"}};
    EXPECT_EQ(Bits(few + Replicas("[4, 1]")), Bits(few));
}

TEST_F(Widths, EvaluateAndResumeAlike) {
    const Sets validation = {{"data.validation", "[" + (scratch_ / "tokens.bin") + "]"},
                             {"train.evaluate_batch", "3"}};
    const job::Outcome one = Train(job::Gpt(scratch_) + validation);
    for (const char *widths : {"[3, 1]", "[1, 3, 2]"}) {
        const job::Outcome wide = Train(job::Gpt(scratch_) + validation + Replicas(widths));
        ASSERT_EQ(wide.status, CRL_STATUS_OK) << wide.message;
        EXPECT_EQ(wide.result.evaluation.loss, one.result.evaluation.loss) << widths;
    }
    const Sets stops = {{"train.checkpoint_every", "5"}, {"train.keep", "0"}};
    EXPECT_EQ(Bits(job::Gpt(scratch_) + Replicas("[3, 1]") + stops), one.Bits());
    const Sets goes_on = {{"run.resume", scratch_ / "run/checkpoints/step-00000005"}};
    for (const char *widths : {"[1, 2]", "[2, 1, 3]", "[4]"}) {
        const job::Outcome rest = Train(job::Gpt(scratch_) + Replicas(widths) + goes_on);
        ASSERT_EQ(rest.status, CRL_STATUS_OK) << rest.message;
        EXPECT_EQ(rest.result.parameter_hash, one.result.parameter_hash) << widths;
    }
}

TEST_F(Widths, ImagesToo) {
    job::WriteImages(scratch_, 203);
    const Sets mlp = job::Mlp(scratch_, scratch_ / "images", scratch_ / "labels");
    const std::string one = Bits(mlp);
    EXPECT_EQ(Bits(mlp + Replicas("[3, 1]")), one);
    EXPECT_EQ(Bits(mlp + Replicas("[1, 4, 2]") + Schedule("gpipe")), one);
}

TEST_F(Widths, RandomOnes) {
    const unsigned seed = std::random_device{}();
    SCOPED_TRACE("seed " + std::to_string(seed));
    std::mt19937 random(seed);
    const Sets base = job::Gpt(scratch_) + Sets{{"numerics.lanes", "8"}, {"train.steps", "3"}};
    const std::string one = Bits(base);
    for (int i = 0; i < 8; i++) {
        std::string widths = "[" + std::to_string(random() % 4 + 1);
        const int positions = int(random() % 3 + 1);
        for (int p = 1; p < positions; p++) {
            widths += ", " + std::to_string(random() % 4 + 1);
        }
        EXPECT_EQ(Bits(base + Replicas(widths + "]")), one) << widths;
    }
}

TEST_F(Widths, RefusesWhatMakesNoSense) {
    const Sets base = job::Gpt(scratch_);
    auto message = [&](const Sets &sets) {
        const job::Outcome outcome = Train(base + sets);
        EXPECT_EQ(outcome.status, CRL_STATUS_INVALID);
        return outcome.message;
    };
    EXPECT_NE(message(Replicas("[3, x]")).find("replicas has 'x', expected numbers"),
              std::string::npos);
    EXPECT_NE(message(Replicas("[3, 0]")).find("replicas has '0'"), std::string::npos);
    EXPECT_NE(message(Replicas("[3, 1]") + Sets{{"parallel.pipeline", "3"}})
                  .find("replicas has 2 numbers, expected one for each of the 3"),
              std::string::npos);
    EXPECT_NE(message(Replicas("[3, 1]") + Sets{{"parallel.data", "2"}})
                  .find("data is 2: expected one of them"),
              std::string::npos);
    EXPECT_NE(message(Replicas("[5, 1]")).find("lanes are 4, expected a power of two not below"),
              std::string::npos);
}

} // namespace
