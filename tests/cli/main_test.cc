// SPDX-License-Identifier: Apache-2.0
#include "tests/cli/command.h"

namespace {

using CliMain = cli::Command;
using CliArgs = cli::Command;

TEST_F(CliMain, HelpListsEveryCommand) {
    const auto result = carole({"--help"});
    EXPECT_EQ(result.code, 0);
    EXPECT_EQ(result.err, "");
    for (const char *name : {"train", "eval", "generate", "plan", "data tokenize", "data check",
                             "schedule show", "schedule check", "config check", "info"})
        EXPECT_NE(result.out.find(std::string("\n  ") + name + " "), std::string::npos) << name;
}

TEST_F(CliMain, PrintsItsVersion) {
    const auto result = carole({"--version"});
    EXPECT_EQ(result.code, 0);
    EXPECT_EQ(result.out.rfind("carole 0.", 0), 0u) << result.out;
}

TEST_F(CliMain, SuggestsTheNearestCommand) {
    expect_failure(carole({"trian"}), 2, "unknown command 'trian', did you mean 'train'?");
    expect_failure(carole({"schedule", "chekc"}), 2, "did you mean 'schedule check'?");
    expect_failure(carole({"xyzzyplugh"}), 2, "unknown command 'xyzzyplugh'");
}

TEST_F(CliMain, NeedsACommand) {
    expect_failure(carole({}), 2, "no command given");
    expect_failure(carole({"data"}), 2, "'data' needs a second word");
}

TEST_F(CliMain, HelpOfAFamilyListsItsCommands) {
    const auto result = carole({"schedule", "--help"});
    EXPECT_EQ(result.code, 0);
    EXPECT_NE(result.out.find("schedule show"), std::string::npos);
    EXPECT_EQ(result.out.find("train"), std::string::npos);
}

TEST_F(CliMain, HelpMayComeFirst) {
    EXPECT_EQ(carole({"help"}).out, carole({"--help"}).out);
    EXPECT_EQ(carole({"help", "train"}).out, carole({"train", "--help"}).out);
    EXPECT_EQ(carole({"help", "data"}).out, carole({"data", "--help"}).out);
    EXPECT_EQ(carole({"help", "data", "check"}).out, carole({"data", "check", "--help"}).out);
    expect_failure(carole({"help", "trian"}), 2, "did you mean 'train'?");
}

TEST_F(CliMain, HelpOfACommandShowsOptionsAndDefaults) {
    const auto result = carole({"generate", "--help"});
    EXPECT_EQ(result.code, 0);
    EXPECT_NE(result.out.find("Usage: carole generate"), std::string::npos) << result.out;
    EXPECT_NE(result.out.find("--top-k"), std::string::npos);
    EXPECT_NE(result.out.find("default 200"), std::string::npos);
}

TEST_F(CliArgs, RejectsAnUnknownOption) {
    expect_failure(carole({"train", "--bogus", "x.yaml"}), 2, "unrecognized option '--bogus'");
}

TEST_F(CliArgs, RejectsAMissingArgument) {
    expect_failure(carole({"train"}), 2, "train: CONFIG is missing");
    expect_failure(carole({"schedule", "check"}), 2, "schedule check: FILE.csv is missing");
}

TEST_F(CliArgs, RejectsAMissingOption) {
    expect_failure(carole({"data", "tokenize", "x.txt"}), 2, "--out is missing");
    expect_failure(carole({"schedule", "show", "--stages", "4"}), 2, "--micro-batches is missing");
}

TEST_F(CliArgs, RejectsAnArgumentTooMany) {
    expect_failure(carole({"train", "a.yaml", "b.yaml"}), 2, "unexpected argument 'b.yaml'");
    expect_failure(carole({"info", "x"}), 2, "unexpected argument 'x'");
}

TEST_F(CliArgs, RejectsAValueThatIsNoNumber) {
    expect_failure(carole({"generate", "x.yaml", "--tokens", "2x"}), 2, "--tokens");
    expect_failure(carole({"generate", "x.yaml", "--tokens", "-1"}), 2, "--tokens");
    expect_failure(carole({"train", "x.yaml", "--np"}), 2, "--np");
}

TEST_F(CliArgs, RejectsAMissingConfigFile) {
    for (const char *command : {"train", "eval", "generate", "plan"}) {
        const auto result = carole({command, (folder / "none.yaml").string()});
        EXPECT_NE(result.code, 0);
        EXPECT_EQ(cli::lines(result.err).size(), 1u) << result.err;
        EXPECT_NE(result.err.find("none.yaml"), std::string::npos) << result.err;
    }
}

TEST_F(CliMain, OneRankOfAJobSpeaks) {
    const std::vector<std::string> second = {"OMPI_COMM_WORLD_SIZE=2", "OMPI_COMM_WORLD_RANK=1"};
    for (const auto &words : std::vector<std::vector<std::string>>{
             {"--help"}, {"trian"}, {"train", "--bogus"}, {"train"}, {"train", "none.yaml"}}) {
        const auto result = carole(words, second);
        EXPECT_EQ(result.out, "") << words[0];
        EXPECT_EQ(result.err, "") << words[0];
        EXPECT_EQ(result.code == 0, words[0] == "--help");
    }
}

TEST_F(CliMain, InfoTellsWhatIsThere) {
    const auto result = carole({"info"});
    EXPECT_EQ(result.code, 0);
    for (const char *text : {"MPI", "CUDA", "cores", "memory", "softmax_cross_entropy", "1f1b",
                             "balance", "adamw", "llmc", "gpt2", "local"})
        EXPECT_NE(result.out.find(text), std::string::npos) << text;
}

TEST_F(CliMain, InfoPrintsOptionsOfOnePlugin) {
    const auto result = carole({"info", "--layer", "linear"});
    EXPECT_EQ(result.code, 0);
    EXPECT_NE(result.out.find("out"), std::string::npos);
    expect_failure(carole({"info", "--layer", "liner"}), 2, "did you mean 'linear'?");
}

TEST_F(CliMain, ConfigReferenceNamesEverySection) {
    const auto result = carole({"config", "reference"});
    EXPECT_EQ(result.code, 0);
    for (const char *section : {"model", "data", "parallel", "train", "optimizer", "numerics",
                                "comm", "run", "micro_batch", "beta2", "vocabulary"})
        EXPECT_NE(result.out.find(section), std::string::npos) << section;
}

TEST_F(CliMain, ConfigReferenceIsWhatDocsHave) {
    EXPECT_EQ(carole({"config", "reference"}).out, cli::read_file(CRL_SOURCE_DIR "/docs/config.md"))
        << "run: carole config reference > docs/config.md";
}

TEST_F(CliMain, AFullDiskIsAFailure) {
    if (access("/dev/full", W_OK) != 0)
        GTEST_SKIP() << "no /dev/full here";
    const auto result = run({"sh", "-c", CRL_BINARY_DIR "/carole info >/dev/full"});
    EXPECT_EQ(result.code, 1);
    EXPECT_NE(result.err.find("standard output"), std::string::npos);
}

} // namespace
