// SPDX-License-Identifier: Apache-2.0
// Costs from files: they decide cuts and automatic schedules, never the bits.
#include <gtest/gtest.h>

#include "engine/run/layout.h"
#include "tests/layouts/job.h"

namespace {

using job::Sets;
using job::Width;

class Costs : public testing::Test {
  protected:
    // Counted costs of the GPT of job.h as a file.
    std::string Profile() const {
        const std::string path = scratch_ / "profile.yaml";
        std::string command = std::string(CRL_BINARY_DIR "/carole profile ") +
                              (scratch_ / "config.yaml") + " --counted --out " + path;
        write_text(scratch_ / "config.yaml", "# all from the command line\n");
        for (const std::string &text : job::Gpt(scratch_).Texts()) {
            command += " --set " + job::Quoted(text);
        }
        const job::Printed printed = job::Shell(command);
        EXPECT_EQ(printed.code, 0) << printed.text;
        return path;
    }

    static std::string Machine() { return CRL_SOURCE_DIR "/configs/machines/cpu-2-cores.yaml"; }

    std::string Refused(const Sets &sets) const {
        const job::Outcome outcome = job::Train(job::Gpt(scratch_) + Width(2, 1) + sets);
        EXPECT_EQ(outcome.status, CRL_STATUS_INVALID) << sets.Text();
        return outcome.message;
    }

    Scratch scratch_;
};

TEST_F(Costs, FromFilesGiveTheSameBits) {
    const std::string one = job::Train(job::Gpt(scratch_)).Bits();
    const std::string profile = Profile();
    for (const Sets &costs :
         {Sets{{"parallel.profile", profile}}, Sets{{"parallel.machine", Machine()}},
          Sets{{"parallel.profile", profile}, {"parallel.machine", Machine()}}}) {
        for (const char *schedule : {"1f1b", "auto", "zb-2p"}) {
            const Sets sets = Width(2, 2) + job::Schedule(schedule) + costs;
            EXPECT_EQ(job::Train(job::Gpt(scratch_) + sets).Bits(), one) << sets.Text();
        }
    }
}

// 0 bytes per second means that only the latency counts.
TEST_F(Costs, LinksWithoutARateCostTheirLatency) {
    std::string text = read_text(Machine());
    const size_t within = text.find("within:");
    const size_t rate = text.find("  bytes_per_s:", within);
    ASSERT_NE(rate, std::string::npos);
    text.replace(rate, text.find('\n', rate) - rate, "  bytes_per_s: 0");
    write_text(scratch_ / "machine.yaml", text);
    const job::Outcome outcome = job::Train(
        job::Gpt(scratch_) + Width(2, 1) + Sets{{"parallel.machine", scratch_ / "machine.yaml"}});
    ASSERT_EQ(outcome.status, CRL_STATUS_OK) << outcome.message;
    EXPECT_EQ(outcome.Bits(), job::Train(job::Gpt(scratch_)).Bits());
}

TEST_F(Costs, OfAProfileDecideTheCut) {
    const std::string profile = Profile();
    std::string text = read_text(profile);
    // The last block takes a second per phase: it gets a stage of its own.
    const size_t at = text.find("h3.mlp.fc");
    ASSERT_NE(at, std::string::npos);
    const size_t forward = text.find("forward:", at);
    ASSERT_NE(forward, std::string::npos) << text.substr(at, 200);
    text.replace(forward, text.find('\n', forward) - forward, "forward: 1 s");
    write_text(profile, text);
    const job::Settings settings(job::Gpt(scratch_) + Width(2, 1) +
                                 Sets{{"parallel.profile", profile}});
    crl_layout *layout = nullptr;
    ASSERT_EQ(crl_layout_create(&layout, settings.get(), crl_builtins(), nullptr), CRL_STATUS_OK)
        << crl_error_message();
    const int cut = layout->plan->stage[1].first;
    const int slow = crl_graph_find(layout->graph, "h3.mlp.fc");
    EXPECT_TRUE(cut == slow || cut == slow + 1) << cut << " " << slow;
    crl_layout_destroy(layout);
}

TEST_F(Costs, FilesOfSomethingElseAreRefused) {
    const std::string profile = Profile();
    EXPECT_NE(Refused({{"parallel.profile", profile}, {"train.micro_batch", "4"}})
                  .find("profile.yaml: has no micro-batches of 4, train.micro_batch"),
              std::string::npos);
    EXPECT_NE(Refused({{"parallel.profile", profile}, {"model.layers", "3"}})
                  .find("profile.yaml: unit "),
              std::string::npos);
    EXPECT_NE(Refused({{"parallel.profile", Machine()}}).find("cpu-2-cores.yaml:"),
              std::string::npos);
    EXPECT_NE(Refused({{"parallel.machine", profile}}).find("profile.yaml:"), std::string::npos);
    for (const char *key : {"parallel.profile", "parallel.machine"}) {
        EXPECT_NE(Refused({{key, "missing.yaml"}}).find(std::string(key) + ": missing.yaml"),
                  std::string::npos);
    }
}

} // namespace
