// SPDX-License-Identifier: Apache-2.0
// Settings that do not fit together: refused where they are given, before anything is reserved.
#include <gtest/gtest.h>

#include "engine/run/layout.h"
#include "tests/layouts/job.h"

namespace {

using job::Cuts;
using job::Sets;
using job::Width;

std::string Refused(const Sets &sets) {
    const job::Settings settings(sets);
    EXPECT_EQ(settings.status(), CRL_STATUS_INVALID) << sets.Text();
    return settings.status() ? crl_error_message() : "";
}

class LayoutsSettings : public testing::Test {
  protected:
    Sets Gpt() const { return job::Gpt(scratch_); }

    std::string Failed(const Sets &sets) const {
        const job::Outcome outcome = job::Train(Gpt() + sets);
        EXPECT_NE(outcome.status, CRL_STATUS_OK) << sets.Text();
        return outcome.message;
    }

    Scratch scratch_;
};

TEST_F(LayoutsSettings, NesterovNeedsMomentum) {
    const Sets sets = {
        {"model.type", "mlp"}, {"optimizer.type", "sgd"}, {"optimizer.nesterov", "true"}};
    EXPECT_EQ(Refused(sets), "--set:2:1: optimizer.nesterov: nesterov with momentum 0 and "
                             "dampening 0, expected momentum above 0 and dampening 0");
    EXPECT_EQ(job::Settings(sets + Sets{{"optimizer.momentum", "0.9"}}).status(), CRL_STATUS_OK);
}

TEST_F(LayoutsSettings, AllProblemsAtOnce) {
    EXPECT_EQ(Refused({{"model.type", "mlp"},
                       {"data.format", "idy"},
                       {"data.tokenizer", "bites"},
                       {"numerics.lanes", "3"},
                       {"train.global_batch", "4"}}),
              "--set:4:1: numerics.lanes: lanes are 3, expected a power of two not below the "
              "data-parallel width 1\n"
              "train.micro_batch (default): micro_batch is 8, expected at most global_batch 4\n"
              "--set:1:1: data.format: unknown dataset format 'idy', did you mean 'idx'? (choices: "
              "llmc, idx, u16)\n"
              "--set:2:1: data.tokenizer: unknown tokenizer 'bites', did you mean 'bytes'? "
              "(choices: bytes, gpt2)");
}

TEST_F(LayoutsSettings, DevicesWiresAndPrecisions) {
    const Sets mlp = {{"model.type", "mlp"}};
    EXPECT_EQ(Refused(mlp + Sets{{"comm.wire", "nccll"}})
                  .find("--set:1:1: comm.wire: unknown wire 'nccll'"),
              0u);
    EXPECT_EQ(Refused(mlp + Sets{{"run.device", "cpo"}})
                  .find("--set:2:1: run.device: unknown device 'cpo', did you mean 'cpu'?"),
              0u);
    Refused(mlp + Sets{{"numerics.precision", "f8"}});
    Refused(mlp + Sets{{"numerics.tf32", "maybe"}});
    Refused(mlp + Sets{{"numerics.loss_scale_window", "0"}});
    Refused(mlp + Sets{{"numerics.loss_scale_initial", "0.5"}});
    Refused(mlp + Sets{{"numerics.loss_scale_initial", "1000"}});
    const job::Settings settings(mlp + Sets{{"numerics.precision", "f16"},
                                            {"numerics.loss_scale_window", "7"},
                                            {"numerics.f32", "[loss, fc*]"},
                                            {"numerics.tf32", "true"},
                                            {"comm.wire", "staged"}});
    ASSERT_EQ(settings.status(), CRL_STATUS_OK) << crl_error_message();
    EXPECT_EQ(crl_settings_compute(settings.get()), CRL_DTYPE_F16);
    EXPECT_EQ(settings.get()->numerics.loss_scale_window, 7);
    EXPECT_EQ(settings.get()->numerics.f32.count, 2);
    EXPECT_TRUE(settings.get()->numerics.tf32);
    EXPECT_EQ(settings.get()->backend, &crl_backend_cpu);
}

TEST_F(LayoutsSettings, CutsSayWhereTheyWereGiven) {
    const std::string message = Failed(Width(2, 1) + Cuts("[h9.ln1]"));
    EXPECT_NE(message.find("parallel.cuts: manual: cut 'h9.ln1'"), std::string::npos) << message;
    EXPECT_EQ(message.find("--set:"), 0u) << message;
}

TEST_F(LayoutsSettings, CutsNeedAPartitionerThatUsesThem) {
    EXPECT_EQ(Refused({{"model.type", "mlp"},
                       {"parallel.cuts", "[head]"},
                       {"parallel.partitioner", "uniform"}}),
              "--set:2:1: parallel.cuts: cuts are given, but partitioner uniform chooses its own");
}

TEST_F(LayoutsSettings, MoreThanTheMachineHas) {
    const std::string message = Failed(Width(2, 1) + Sets{{"model.layers", "48"},
                                                          {"model.channels", "16384"},
                                                          {"model.heads", "16"},
                                                          {"model.vocabulary", "50257"}});
    EXPECT_NE(message.find("memory: the 2 ranks on this machine reserve "), std::string::npos)
        << message;
}

TEST_F(LayoutsSettings, NoEndOfTraining) {
    EXPECT_EQ(Failed({{"train.steps", "0"}}),
              "train.steps and train.epochs are both 0, expected one of them");
    EXPECT_EQ(Failed({{"train.steps", "0"}, {"train.epochs", "1000000000"}}),
              "train.epochs: 1000000000 epochs of 5 steps, expected at most 4294967295 in all");
}

// Sizes whose bytes overflow end in a message, not in a small reservation.
TEST_F(LayoutsSettings, SizesThatOverflow) {
    const Sets wide = {{"model.channels", "16777216"}, {"model.vocabulary", "16777216"}};
    for (const Sets &sets : {wide, wide + Sets{{"model.layers", "400"}},
                             wide + Sets{{"model.layers", "400"}, {"numerics.lanes", "8"}},
                             Sets{{"train.global_batch", "1000000000"},
                                  {"train.micro_batch", "1000000000"},
                                  {"model.channels", "4096"},
                                  {"model.context", "4096"},
                                  {"model.layers", "100"}}}) {
        const job::Outcome outcome = job::Train(Gpt() + sets);
        EXPECT_TRUE(outcome.status == CRL_STATUS_INVALID || outcome.status == CRL_STATUS_NOMEM)
            << outcome.message << "\nwith " << sets.Text();
    }
    EXPECT_EQ(Failed({{"train.global_batch", "1000000000"}, {"train.micro_batch", "1"}}),
              "layout: a step has 1000000000 micro-batches, expected at most 65535");
    EXPECT_EQ(Failed(Width(65535, 65535) + Sets{{"numerics.lanes", "0"}}),
              "layout: 4294836225 ranks, expected at most 65535");
}

TEST_F(LayoutsSettings, EvaluationCountsRanksToo) {
    const job::Settings settings(Gpt() + Width(65536 / 2, 65536 / 2) +
                                 Sets{{"numerics.lanes", "0"}, {"data.validation", "[x]"}});
    ASSERT_EQ(settings.status(), CRL_STATUS_OK) << crl_error_message();
    crl_evaluation_report report = {};
    EXPECT_EQ(crl_evaluate(&report, settings.get(), crl_builtins(), scratch_.path().c_str()),
              CRL_STATUS_INVALID);
    EXPECT_STREQ(crl_error_message(), "layout: 1073741824 ranks, expected at most 65535");
}

TEST_F(LayoutsSettings, LayoutsCountRanksToo) {
    const job::Settings settings(Gpt() + Width(4, 65535) + Sets{{"numerics.lanes", "0"}});
    ASSERT_EQ(settings.status(), CRL_STATUS_OK) << crl_error_message();
    crl_layout *layout = nullptr;
    EXPECT_EQ(crl_layout_create(&layout, settings.get(), crl_builtins(), nullptr),
              CRL_STATUS_INVALID);
    EXPECT_STREQ(crl_error_message(), "layout: 262140 ranks, expected at most 65535");
    crl_layout_destroy(layout);
}

TEST_F(LayoutsSettings, TokensOutsideTheVocabulary) {
    const std::string message = Failed(Sets{{"model.vocabulary", "50"}} + Width(2, 1));
    EXPECT_NE(message.find("expected 0 to 49"), std::string::npos) << message;
    EXPECT_EQ(message.find("node wte, samples "), 0u) << message;
}

} // namespace
