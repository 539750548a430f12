// SPDX-License-Identifier: Apache-2.0
// The promise: the layout never changes the numbers. Every test trains one model in many layouts
// and compares the bits of all losses and of all parameters with those of one rank.
#include <gtest/gtest.h>

#include <random>

#include "tests/layouts/job.h"

namespace {

using job::Cuts;
using job::Schedule;
using job::Sets;
using job::Train;
using job::Width;

class Layouts : public testing::Test {
  protected:
    Sets Gpt() const { return job::Gpt(scratch_); }

    // The bits of a run; a run that fails is a failure of the test.
    static std::string Bits(const Sets &sets) {
        const job::Outcome outcome = Train(sets);
        EXPECT_EQ(outcome.status, CRL_STATUS_OK) << outcome.message << "\nwith " << sets.Text();
        EXPECT_EQ(outcome.result.late_allocations, 0) << "with " << sets.Text();
        EXPECT_EQ(outcome.result.late_primitives, 0) << "with " << sets.Text();
        return outcome.Bits();
    }

    // Trains in all of these layouts and in one rank.
    static void Same(const Sets &base, const std::vector<Sets> &layouts) {
        const std::string one = Bits(base);
        for (const Sets &layout : layouts) {
            EXPECT_EQ(Bits(base + layout), one) << "with " << layout.Text();
        }
    }

    Scratch scratch_;
};

TEST_F(Layouts, PipelineTimesScheduleTimesReplicas) {
    std::vector<Sets> layouts;
    for (int pipeline : {1, 2, 4}) {
        for (const char *schedule : {"gpipe", "1f1b", "interleaved"}) {
            for (int data : {1, 2, 4}) {
                layouts.push_back(Width(pipeline, data) + Schedule(schedule));
            }
        }
    }
    Same(Gpt(), layouts);
}

TEST_F(Layouts, EverySchedule) {
    std::vector<Sets> layouts;
    for (const crl_schedule *schedule : job::Schedules()) {
        for (int pipeline : {1, 2, 3, 4}) {
            layouts.push_back(Width(pipeline, 1) + Schedule(schedule->name));
        }
        layouts.push_back(Width(2, 2) + Schedule(schedule->name));
        layouts.push_back(Sets{{"parallel.replicas", "[3, 1]"}} + Schedule(schedule->name));
        layouts.push_back(Sets{{"parallel.replicas", "[1, 2, 1]"}} + Schedule(schedule->name));
    }
    Same(Gpt(), layouts);
}

TEST_F(Layouts, UnevenCuts) {
    Same(Gpt(), {Width(2, 1) + Cuts("[h0.ln1]"), Width(2, 2) + Cuts("[lnf]"),
                 Width(2, 1) + Cuts("[h1.attn.proj]"), Width(2, 2) + Cuts("[h2.mlp.gelu]"),
                 Width(3, 1) + Cuts("[h0.attn.proj, h0.ln2]"),
                 Width(4, 2) + Cuts("[h0.ln1, h3.ln2, head]") + Schedule("gpipe"),
                 Width(2, 2) + Cuts("[h0.ln2, h1.ln1, h3.mlp.proj]") + Schedule("interleaved")});
}

TEST_F(Layouts, OddWidths) {
    Same(Gpt(), {Width(3, 1), Width(1, 3), Width(3, 3), Width(2, 3) + Schedule("gpipe"),
                 Width(3, 2) + Schedule("interleaved"), Width(5, 1), Width(6, 1)});
}

TEST_F(Layouts, ThreadsOfARank) {
    const Sets two = {{"run.threads", "2"}};
    Same(Gpt(), {two, Width(2, 1) + two, Width(1, 2) + two, Width(2, 2) + two});
}

TEST_F(Layouts, SizesOfBuckets) {
    std::vector<Sets> layouts;
    for (const char *bucket : {"64", "4KiB", "37777", "1GiB"}) {
        layouts.push_back(Width(2, 2) + Sets{{"comm.bucket", bucket}});
        layouts.push_back(Width(1, 4) + Sets{{"comm.bucket", bucket}});
    }
    Same(Gpt(), layouts);
}

TEST_F(Layouts, MicroBatchesThatReplicasDoNotDivide) {
    for (int micro_batches : {7, 5, 3}) {
        const Sets sets = {{"train.global_batch", std::to_string(2 * micro_batches)}};
        Same(Gpt() + sets, {Width(1, 2), Width(1, 3), Width(1, 4), Width(2, 2), Width(4, 3),
                            Width(2, 4) + Schedule("gpipe"), Width(2, 3) + Schedule("interleaved"),
                            Width(4, 1) + Schedule("interleaved")});
    }
}

TEST_F(Layouts, FewerMicroBatchesThanStagesOrReplicas) {
    for (const char *batch : {"4", "2", "1"}) {
        const Sets sets = {{"train.global_batch", batch},
                           {"train.micro_batch", batch[0] == '1' ? "1" : "2"}};
        Same(Gpt() + sets, {Width(4, 1), Width(4, 1) + Schedule("gpipe"),
                            Width(2, 1) + Schedule("interleaved"), Width(1, 4), Width(2, 4)});
    }
}

TEST_F(Layouts, LastMicroBatchOfAStepIsSmaller) {
    const Sets sets = {{"train.global_batch", "13"}, {"train.micro_batch", "3"}};
    Same(Gpt() + sets, {Width(2, 1), Width(1, 4), Width(2, 2), Width(4, 2)});
}

TEST_F(Layouts, UnshuffledAndUntied) {
    const Sets sets = {{"data.shuffle", "false"}, {"model.tied", "false"}, {"model.bias", "false"}};
    Same(Gpt() + sets, {Width(2, 2), Width(4, 1), Width(1, 4)});
}

TEST_F(Layouts, SgdWithMomentum) {
    Sets sets = Gpt();
    sets.Erase("optimizer.weight_decay");
    sets +=
        {{"optimizer.type", "sgd"}, {"optimizer.momentum", "0.9"}, {"optimizer.nesterov", "true"}};
    Same(sets, {Width(2, 2), Width(4, 1), Width(1, 4)});
}

// Ring and halving add two partial sums as the tree does; wider they may differ, but not much.
TEST_F(Layouts, AllReduceAlgorithms) {
    const Sets ring = {{"comm.allreduce", "ring"}}, halving = {{"comm.allreduce", "halving"}};
    const Sets segments = {{"comm.segment", "1KiB"}};
    Same(Gpt(), {Width(1, 2) + ring, Width(2, 2) + ring, Width(1, 2) + ring + segments,
                 Width(1, 2) + halving, Width(2, 2) + halving});
    const job::Outcome one = Train(Gpt());
    for (const Sets &sets : {Width(1, 4) + ring, Width(1, 3) + ring, Width(2, 4) + halving}) {
        const job::Outcome wide = Train(Gpt() + sets);
        ASSERT_EQ(wide.status, CRL_STATUS_OK) << wide.message;
        EXPECT_NEAR(wide.result.loss, one.result.loss, 1e-4) << sets.Text();
    }
}

TEST_F(Layouts, LanesAreWhatDecidesTheBits) {
    EXPECT_NE(Bits(Gpt()), Bits(Gpt() + Sets{{"numerics.lanes", "1"}}));
    EXPECT_NE(Bits(Gpt()), Bits(Gpt() + Sets{{"train.seed", "2"}}));
    Same(Gpt() + Sets{{"numerics.lanes", "8"}}, {Width(1, 8), Width(2, 3), Width(1, 2)});
}

// Measured costs give other cuts from run to run.
TEST_F(Layouts, CutsByMeasuredCosts) {
    const Sets profile = {{"train.profile", "true"}};
    Same(Gpt(), {Width(2, 2) + profile, Width(4, 1) + profile + Schedule("interleaved")});
}

TEST_F(Layouts, ValidationLeavesTrainingAlone) {
    const Sets validation = {{"data.validation", "[" + (scratch_ / "tokens.bin") + "]"},
                             {"train.evaluate_every", "3"},
                             {"train.evaluate_batch", "5"}};
    Same(Gpt(), {validation, Width(2, 2) + validation, Width(4, 1) + validation});
}

// Whatever a user may write: widths, schedules, cuts, batches, lanes, buckets.
TEST_F(Layouts, RandomOnes) {
    constexpr int kRuns = 15, kLayouts = 3;
    const uint32_t seed = 1;
    std::mt19937 random(seed);
    const auto one_of = [&random](std::initializer_list<const char *> texts) {
        return std::string(texts.begin()[random() % texts.size()]);
    };
    const std::vector<std::string> nodes = {"drop",    "h0.ln1",      "h0.attn",      "h0.res1",
                                            "h1.ln2",  "h1.mlp.gelu", "h2.attn.drop", "h2.mlp.proj",
                                            "h3.res2", "lnf",         "head"};
    for (int i = 0; i < kRuns; i++) {
        const int micro_batch = 1 + int(random() % 3);
        Sets base =
            Gpt() + Sets{{"train.steps", "6"},
                         {"train.global_batch", std::to_string(micro_batch + random() % 16)},
                         {"train.micro_batch", std::to_string(micro_batch)},
                         {"numerics.lanes", one_of({"4", "8", "16"})},
                         {"data.shuffle", one_of({"true", "false"})},
                         {"model.tied", one_of({"true", "false"})}};
        std::vector<Sets> layouts;
        for (int l = 0; l < kLayouts; l++) {
            const int pipeline = 1 + int(random() % 4), data = 1 + int(random() % 4);
            const std::string schedule = one_of({"gpipe", "1f1b", "interleaved"});
            const int stages = pipeline * (schedule == "interleaved" ? 2 : 1);
            Sets layout = Width(pipeline, data) + Schedule(schedule) +
                          Sets{{"comm.bucket", one_of({"64", "1000", "64KiB", "4MiB"})},
                               {"parallel.partitioner", one_of({"uniform", "balance"})}};
            if (random() % 2 == 0) {
                std::vector<std::string> cuts = nodes;
                while (int(cuts.size()) >= stages) {
                    cuts.erase(cuts.begin() + long(random() % cuts.size()));
                }
                std::string list;
                for (const std::string &cut : cuts) {
                    list += (list.empty() ? "" : ", ") + cut;
                }
                layout += Cuts("[" + list + "]");
            }
            layouts.push_back(layout);
        }
        SCOPED_TRACE("seed " + std::to_string(seed) + ", run " + std::to_string(i));
        Same(base, layouts);
    }
}

// -- stop and resume ------------------------------------------------------------------------------

class LayoutsResume : public Layouts {
  protected:
    // Ten steps in `first`, leaving a checkpoint of step 5; then steps 6 to 10 in `second`.
    void StopAndGoOn(const Sets &first, const Sets &second) {
        Sets sets = Gpt() + first;
        sets += {{"train.checkpoint_every", "5"}, {"train.keep", "0"}};
        const job::Outcome whole = Train(sets);
        ASSERT_EQ(whole.status, CRL_STATUS_OK) << whole.message;
        Sets rest = Gpt();
        rest.Erase("numerics.lanes"); // taken from the checkpoint
        rest += second;
        rest += {{"run.resume", scratch_ / "run/checkpoints/step-00000005"},
                 {"run.directory", scratch_ / "second"}};
        const job::Outcome resumed = Train(rest);
        ASSERT_EQ(resumed.status, CRL_STATUS_OK) << resumed.message;
        ASSERT_EQ(resumed.loss.size(), 5u);
        EXPECT_EQ(resumed.result.parameter_hash, whole.result.parameter_hash)
            << first.Text() << "-> " << second.Text();
        EXPECT_EQ(std::vector<double>(whole.loss.begin() + 5, whole.loss.end()), resumed.loss);
    }
};

TEST_F(LayoutsResume, InAnotherLayout) {
    StopAndGoOn(Width(2, 2), Width(1, 1));
    StopAndGoOn(Width(1, 1), Width(4, 2) + Schedule("gpipe"));
    StopAndGoOn(Width(1, 4), Width(2, 3) + Schedule("interleaved"));
    StopAndGoOn(Width(4, 1), Width(2, 1) + Cuts("[h0.ln1]"));
}

TEST_F(LayoutsResume, AutoContinuesTheNewest) {
    const Sets constant = {{"optimizer.rate_schedule", "constant"}};
    const job::Outcome whole = Train(Gpt() + constant);
    const Sets there = {{"run.directory", scratch_ / "auto"}, {"run.resume", "auto"}};
    const job::Outcome first =
        Train(Gpt() + constant + Width(2, 1) + there + Sets{{"train.steps", "5"}});
    ASSERT_EQ(first.status, CRL_STATUS_OK) << first.message;
    ASSERT_EQ(first.loss.size(), 5u);
    const job::Outcome second = Train(Gpt() + constant + Width(1, 2) + there);
    ASSERT_EQ(second.status, CRL_STATUS_OK) << second.message;
    EXPECT_EQ(second.loss.size(), 5u);
    EXPECT_EQ(second.result.parameter_hash, whole.result.parameter_hash);
}

// -- the MLP --------------------------------------------------------------------------------------

class LayoutsMlp : public Layouts {
  protected:
    Sets Mlp(const std::string &images, const std::string &labels) const {
        return job::Mlp(scratch_, images, labels);
    }

    static void SameTraining(const Sets &base) {
        Same(base, {Width(2, 1), Width(1, 2), Width(2, 2), Width(3, 1), Width(1, 3), Width(1, 4),
                    Width(3, 2) + Schedule("gpipe"), Width(2, 2) + Schedule("interleaved"),
                    Width(2, 1) + Cuts("[head]"), Width(4, 4)});
    }
};

TEST_F(LayoutsMlp, Images) {
    job::WriteImages(scratch_, 203);
    SameTraining(Mlp(scratch_ / "images", scratch_ / "labels"));
}

TEST_F(LayoutsMlp, ValidationIsTheSameEverywhere) {
    job::WriteImages(scratch_, 203);
    Sets sets = Mlp(scratch_ / "images", scratch_ / "labels");
    sets += {{"train.evaluate_steps", "0"}};
    const job::Outcome one = Train(sets);
    ASSERT_EQ(one.status, CRL_STATUS_OK) << one.message;
    EXPECT_EQ(one.result.evaluation.samples, 203);
    for (const Sets &layout : {Width(2, 2), Width(1, 3), Width(4, 1)}) {
        const job::Outcome other = Train(sets + layout);
        ASSERT_EQ(other.status, CRL_STATUS_OK) << other.message;
        EXPECT_EQ(other.result.evaluation.loss, one.result.evaluation.loss) << layout.Text();
        EXPECT_EQ(other.result.evaluation.accuracy, one.result.evaluation.accuracy);
        EXPECT_EQ(other.result.evaluation.samples, 203);
    }
}

TEST_F(LayoutsMlp, CheckpointIsEvaluatedTheSameEverywhere) {
    job::WriteImages(scratch_, 203);
    Sets sets = Mlp(scratch_ / "images", scratch_ / "labels");
    sets += {{"train.evaluate_steps", "0"}};
    const job::Outcome one = Train(sets + Width(2, 2));
    ASSERT_EQ(one.status, CRL_STATUS_OK) << one.message;
    for (const Sets &layout : {Width(1, 1), Width(3, 1), Width(1, 4), Width(2, 2)}) {
        const job::Settings settings(sets + layout);
        crl_evaluation_report report = {};
        ASSERT_EQ(crl_evaluate(&report, settings.get(), crl_builtins(), (scratch_ / "run").c_str()),
                  CRL_STATUS_OK)
            << crl_error_message();
        EXPECT_EQ(report.loss, one.result.evaluation.loss) << layout.Text();
        EXPECT_EQ(report.accuracy, one.result.evaluation.accuracy) << layout.Text();
        EXPECT_EQ(report.step, 8);
    }
}

TEST_F(LayoutsMlp, FashionMnist) {
    const auto is_there = [](const std::string &path) {
        return access((path + "images-idx3-ubyte.gz").c_str(), R_OK) == 0;
    };
    std::string folder = CRL_BINARY_DIR "/data/fashion-mnist/train-";
    folder = is_there(folder) ? folder : CRL_SOURCE_DIR "/build/data/fashion-mnist/train-";
    if (!is_there(folder)) {
        GTEST_SKIP() << folder << "*: not there (scripts/prepare-data fashion-mnist build)";
    }
    // Every rank unpacks 47 MB: few layouts.
    Same(Mlp(folder + "images-idx3-ubyte.gz", folder + "labels-idx1-ubyte.gz") +
             Sets{{"data.validation", "[]"}},
         {Width(2, 2), Width(3, 1) + Schedule("gpipe"), Width(1, 4)});
}

} // namespace
