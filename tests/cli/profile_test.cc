// SPDX-License-Identifier: Apache-2.0
#include "engine/run/machine.h"
#include "engine/run/profile_file.h"
#include "tests/cli/command.h"

namespace {

class CliProfile : public cli::Command {
  protected:
    CliProfile() {
        config_ = folder / "config.yaml";
        cli::write_file(config_, "model:\n  type: gpt\n  layers: 2\n  heads: 2\n  channels: 16\n"
                                 "  context: 8\n  vocabulary: 32\n"
                                 "parallel:\n  pipeline: 2\n  schedule: 1f1b\n"
                                 "train:\n  micro_batch: 2\n  global_batch: 4\n  steps: 1\n"
                                 "run:\n  threads: 1\n");
    }
    std::vector<std::string> Words(std::vector<std::string> more) const {
        std::vector<std::string> words = {"profile", config_};
        words.insert(words.end(), more.begin(), more.end());
        return words;
    }
    void ExpectFiles(const std::string &profile, const std::string &machine, int ranks) {
        crl_profile_list list = {};
        ASSERT_EQ(crl_profile_file_read(&list, profile.c_str()), CRL_STATUS_OK)
            << crl_error_message();
        ASSERT_EQ(list.count, 2);
        EXPECT_EQ(list.item[0]->micro_batch, 1);
        EXPECT_EQ(list.item[1]->micro_batch, 4);
        EXPECT_GE(crl_profile_find(list.item[0], "h1.attn"), 0);
        crl_profile_list_fini(&list);
        crl_machine_file file = {};
        ASSERT_EQ(crl_machine_file_read(&file, machine.c_str(), nullptr, 0), CRL_STATUS_OK)
            << crl_error_message();
        EXPECT_EQ(file.machine.devices_per_node, ranks);
        EXPECT_GT(file.machine.message_s, 0);
        crl_machine_file_fini(&file);
    }
    std::string config_;
};

TEST_F(CliProfile, MeasuresAndWritesWhatThePlannerReads) {
    const std::string out = folder / "profile.yaml", machine = folder / "machine.yaml";
    const auto result = carole(
        Words({"--ranks", "2", "--micro-batches", "4,1", "--out", out, "--machine-out", machine}));
    ASSERT_EQ(result.code, 0) << result.err;
    EXPECT_NE(result.out.find("micro-batches of 4: measured, 2 ranks"), std::string::npos)
        << result.out;
    EXPECT_NE(result.out.find("links (local): "), std::string::npos) << result.out;
    ExpectFiles(out, machine, 2);
}

TEST_F(CliProfile, MeasuresOverMpi) {
#ifndef CRL_WITH_MPI
    GTEST_SKIP() << "built without MPI";
#endif
    const std::string out = folder / "profile.yaml", machine = folder / "machine.yaml";
    const auto result = carole(Words({"--ranks", "2", "--transport", "mpi", "--micro-batches",
                                      "1,4", "--out", out, "--machine-out", machine}));
    ASSERT_EQ(result.code, 0) << result.err;
    EXPECT_NE(result.out.find("links (mpi): "), std::string::npos) << result.out;
    ExpectFiles(out, machine, 2);
}

TEST_F(CliProfile, CountsTheSameEveryTime) {
    const auto first = carole(Words({"--counted"})), again = carole(Words({"--counted"}));
    ASSERT_EQ(first.code, 0) << first.err;
    EXPECT_EQ(first.out, again.out);
    EXPECT_NE(first.out.find("micro-batches of 2: counted for nominal CPU core"), std::string::npos)
        << first.out;
}

TEST_F(CliProfile, CountsForAMachineOfAFile) {
    const std::string machine = folder / "machine.yaml";
    cli::write_file(machine, "machine:\n  name: slow\ncompute:\n  memory: 1GiB\n"
                             "  peak_flops_per_s: 1e6\n  memory_bytes_per_s: 1e9\n");
    const auto result = carole(Words({"--counted", "--machine", machine}));
    ASSERT_EQ(result.code, 0) << result.err;
    EXPECT_NE(result.out.find("counted for slow"), std::string::npos) << result.out;
    /* head: 2 flops x 2 samples x 8 tokens x 16 channels x 32 tokens at 1e6 a second */
    EXPECT_NE(result.out.find("head                    16.4 ms"), std::string::npos) << result.out;
}

TEST_F(CliProfile, RefusalsAreOneLine) {
    expect_failure(carole(Words({"--micro-batches", "1,x"})), 2, "--micro-batches: size 'x'");
    expect_failure(carole(Words({"--micro-batches", "2,2"})), 2, "2 is there twice");
    expect_failure(carole(Words({"--counted", "--ranks", "2"})), 2, "--ranks means nothing");
    expect_failure(carole(Words({"--machine", "x"})), 2, "is for --counted");
    expect_failure(carole(Words({"--counted", "--machine", "/nonexistent"})), 2,
                   "/nonexistent: no such file");
    expect_failure(carole(Words({"--counted", "--out", "/nonexistent/profile"})), 1,
                   "/nonexistent/profile: ");
    expect_failure(carole(Words({"--ranks", "2", "--micro-batches", "5000000"})), 1,
                   "memory: the 2 ranks on this machine reserve ");
    expect_failure(carole({"profile", "/nonexistent"}), 2, "/nonexistent: no such file");
}

} // namespace
