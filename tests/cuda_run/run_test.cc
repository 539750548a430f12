// SPDX-License-Identifier: Apache-2.0
// Training on the emulated CUDA backend: the numbers of the CPU, the same bits in every layout and
// over every wire, and nothing that the emulation finds wrong with the order of work.
#include <gtest/gtest.h>

#include <cmath>
#include <string>

#include "tests/cuda_on_cpu/cuda_on_cpu.h"
#include "tests/layouts/job.h"

namespace {

using job::Outcome;
using job::Sets;
using job::Train;
using job::Width;

// The GPT of the layout tests, but for what an emulated thread costs.
Sets Gpt(const Scratch &scratch) {
    const Sets gpt = job::Gpt(scratch);
    write_text(scratch / "tokens.bin", data_files::Llmc(job::Tokens(29 * 8 + 1, 31)));
    return gpt + Sets{{"model.layers", "2"},
                      {"model.channels", "16"},
                      {"model.context", "8"},
                      {"model.vocabulary", "31"},
                      {"train.steps", "4"},
                      {"train.global_batch", "8"},
                      {"train.micro_batch", "1"},
                      {"optimizer.warmup_steps", "2"}};
}

Sets Mlp(const Scratch &scratch) {
    job::WriteImages(scratch, 40);
    return {{"model.type", "mlp"},
            {"model.hidden", "[16]"},
            {"data.train", "[" + (scratch / "images") + "," + (scratch / "labels") + "]"},
            {"train.steps", "6"},
            {"train.global_batch", "16"},
            {"train.micro_batch", "4"},
            {"optimizer.type", "sgd"},
            {"optimizer.learning_rate", "0.01"},
            {"comm.deadline", "60"},
            {"run.threads", "1"},
            {"run.directory", scratch / "run"}};
}

const Sets kCuda = {{"run.device", "cuda"}};

class CudaRun : public testing::Test {
  protected:
    void SetUp() override { cuda_on_cpu::set_devices(1); }
    void TearDown() override {
        EXPECT_EQ(cuda_on_cpu::take_problems(), "");
        EXPECT_EQ(cuda_on_cpu::what_lives(), "");
        cuda_on_cpu::set_streams(cuda_on_cpu::Streams::kLate);
    }
    static Outcome Run(const Sets &sets) {
        Outcome outcome = Train(sets + kCuda);
        EXPECT_EQ(outcome.status, CRL_STATUS_OK) << outcome.message << "\nwith " << sets.Text();
        EXPECT_EQ(cuda_on_cpu::take_problems(), "") << sets.Text();
        return outcome;
    }
    Scratch scratch_;
};

void ExpectNear(const Outcome &cuda, const Outcome &cpu, double tolerance) {
    ASSERT_EQ(cuda.loss.size(), cpu.loss.size());
    for (size_t i = 0; i < cpu.loss.size(); i++) {
        EXPECT_NEAR(cuda.loss[i], cpu.loss[i], tolerance * cpu.loss[i]) << "step " << i + 1;
    }
}

TEST_F(CudaRun, LossesAreTheCpus) {
    for (const Sets &sets : {Gpt(scratch_) + Sets{{"train.steps", "10"}}, Mlp(scratch_)}) {
        const Outcome cpu = Train(sets);
        ASSERT_EQ(cpu.status, CRL_STATUS_OK) << cpu.message;
        const Outcome cuda = Run(sets);
        ExpectNear(cuda, cpu, 1e-5);
        EXPECT_NE(cuda.result.parameter_hash, 0u);
    }
}

class CudaPrecision : public CudaRun, public testing::WithParamInterface<const char *> {
  protected:
    Sets Base() { return Gpt(scratch_) + Sets{{"numerics.precision", GetParam()}}; }
};
INSTANTIATE_TEST_SUITE_P(, CudaPrecision, testing::Values("f32", "bf16", "f16"),
                         [](const auto &info) { return std::string(info.param); });

TEST_P(CudaPrecision, LayoutsGiveTheSameBits) {
    const std::string one = Run(Base()).Bits();
    EXPECT_EQ(Run(Base()).Bits(), one) << "again";
    const struct {
        int pipeline, data;
        const char *schedule;
    } layouts[] = {{1, 2, "1f1b"},        {2, 1, "1f1b"},  {2, 1, "gpipe"},
                   {2, 2, "1f1b"},        {4, 1, "1f1b"},  {1, 4, "gpipe"},
                   {2, 1, "interleaved"}, {2, 2, "zb-h1"}, {4, 2, "1f1b"}};
    for (const auto &layout : layouts) {
        const Sets sets = Base() + Width(layout.pipeline, layout.data) +
                          Sets{{"parallel.schedule", layout.schedule}};
        EXPECT_EQ(Run(sets).Bits(), one) << sets.Text();
    }
}

TEST_P(CudaPrecision, WiresGiveTheSameBits) {
    const std::string one = Run(Base()).Bits();
    for (const char *wire : {"shared", "staged", "nccl"}) {
        cuda_on_cpu::set_devices(std::string(wire) == "nccl" ? 4 : 1);
        for (const char *schedule : {"1f1b", "zb-h1"}) {
            const Sets sets =
                Base() + Width(2, 2) + Sets{{"comm.wire", wire}, {"parallel.schedule", schedule}};
            EXPECT_EQ(Run(sets).Bits(), one) << sets.Text();
        }
        cuda_on_cpu::set_devices(1);
    }
}

TEST_F(CudaRun, OrderOfStreamsChangesNothing) {
    const std::string one = Run(Gpt(scratch_)).Bits();
    using cuda_on_cpu::Streams;
    for (Streams order : {Streams::kForward, Streams::kReverse, Streams::kRandom, Streams::kNow}) {
        cuda_on_cpu::set_streams(order, 7);
        for (const char *wire : {"shared", "staged"}) {
            EXPECT_EQ(Run(Gpt(scratch_) + Width(2, 2) + Sets{{"comm.wire", wire}}).Bits(), one)
                << int(order) << wire;
        }
    }
}

TEST_F(CudaRun, RecomputingAndLateValidationGiveTheSameBits) {
    const std::string one = Run(Gpt(scratch_)).Bits();
    EXPECT_EQ(Run(Gpt(scratch_) + Width(2, 1) + Sets{{"parallel.recompute", "full"}}).Bits(), one);
    EXPECT_EQ(Run(Gpt(scratch_) + Width(1, 2) + Sets{{"optimizer.validate", "after"}}).Bits(), one);
}

TEST_F(CudaRun, ReplayedStepsAreThoseThatWereQueued) {
    // Without dropout one rank replays its full steps; two ranks have messages and do not.
    const Sets sets = Gpt(scratch_) + Sets{{"model.dropout", "0"}, {"train.steps", "9"}};
    const std::string one = Run(sets).Bits();
    EXPECT_EQ(Run(sets + Width(2, 1)).Bits(), one);
    EXPECT_EQ(
        Run(sets + Sets{{"numerics.f32", "[lnf]"}, {"numerics.precision", "f16"}}).Bits(),
        Run(sets + Width(2, 1) + Sets{{"numerics.f32", "[lnf]"}, {"numerics.precision", "f16"}})
            .Bits());
}

TEST_F(CudaRun, GoesOnFromACheckpoint) {
    const Sets base = Gpt(scratch_) + Sets{{"optimizer.rate_schedule", "constant"}};
    const Outcome whole = Run(base);
    Run(base + Width(2, 1) + Sets{{"train.steps", "2"}});
    const Outcome rest = Run(base + Width(1, 2) + Sets{{"run.resume", "auto"}});
    EXPECT_EQ(rest.result.parameter_hash, whole.result.parameter_hash);
    // What the GPU saved, the CPU goes on with.
    const Outcome cpu = Train(base + Sets{{"run.resume", "auto"}, {"train.steps", "6"}});
    EXPECT_EQ(cpu.status, CRL_STATUS_OK) << cpu.message;
}

TEST_F(CudaRun, AllocatesNothingAfterTheFirstSteps) {
    for (const Sets &layout : {Width(1, 1), Width(2, 2)}) {
        const Outcome outcome = Run(Gpt(scratch_) + layout);
        EXPECT_EQ(outcome.result.late_allocations, 0) << layout.Text();
    }
}

TEST_F(CudaRun, ATokenOutsideTheVocabularyEndsTheRun) {
    write_text(scratch_ / "wild.bin", data_files::Llmc(job::Tokens(29 * 8 + 1, 200)));
    const Outcome outcome = Train(Gpt(scratch_) + kCuda + Width(2, 1) +
                                  Sets{{"data.train", "[" + (scratch_ / "wild.bin") + "]"}});
    EXPECT_EQ(outcome.status, CRL_STATUS_INVALID);
    EXPECT_NE(outcome.message.find("expected 0 to 30"), std::string::npos) << outcome.message;
}

} // namespace
