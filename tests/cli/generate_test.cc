// SPDX-License-Identifier: Apache-2.0
#include "tests/cli/command.h"

namespace {

class CliGenerate : public cli::Command {
  protected:
    void SetUp() override {
        std::string text;
        for (int i = 0; i < 400; i++)
            text += "abcdefg"; // 7 letters in windows of 16: every letter at every position
        cli::write_file(folder / "t.txt", text);
        ASSERT_EQ(carole({"data", "tokenize", folder / "t.txt", "--out", folder / "t.bin"}).code,
                  0);
        config = folder / "config.yaml";
        cli::write_file(config, "model:\n  type: gpt\n  layers: 2\n  heads: 2\n  channels: 32\n"
                                "  context: 16\n  vocabulary: 256\ndata:\n  train: [" +
                                    (folder / "t.bin").string() +
                                    "]\n  tokenizer: bytes\nparallel:\n  pipeline: 2\n"
                                    "train:\n  steps: 80\n  global_batch: 8\n  micro_batch: 4\n"
                                    "optimizer:\n  learning_rate: 0.01\nrun:\n  threads: 1\n"
                                    "  directory: " +
                                    (folder / "run").string() + "\n");
    }
    std::string config;
};

TEST_F(CliGenerate, ContinuesWhatItHasLearned) {
    const auto trained = carole({"train", config, "--quiet"});
    ASSERT_EQ(trained.code, 0) << trained.err;
    const auto result =
        carole({"generate", config, "--prompt", "abcd", "--tokens", "40", "--temperature", "0"});
    ASSERT_EQ(result.code, 0) << result.err;
    EXPECT_EQ(result.out, "abcdefgabcdefgabcdefgabcdefgabcdefgabcdefgab\n");
    const std::vector<std::string> draw = {"generate",      config, "--tokens", "20",
                                           "--temperature", "1.5",  "--seed",   "5"};
    EXPECT_EQ(carole(draw).out, carole(draw).out);
    EXPECT_NE(carole({"generate", config, "--checkpoint", folder / "none"}).code, 0);
}

TEST_F(CliGenerate, NeedsATokenizer) {
    expect_failure(carole({"generate", config, "--set", "data.tokenizer=none"}), 1,
                   "data.tokenizer is 'none'");
    expect_failure(carole({"generate", config, "--set", "data.tokenizer=byte"}), 2, "'bytes'");
}

TEST_F(CliGenerate, NeedsACheckpoint) {
    expect_failure(carole({"generate", config}), 1, "run");
}

} // namespace
