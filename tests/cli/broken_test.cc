// SPDX-License-Identifier: Apache-2.0
// Every broken config of tests/cli/broken gives exactly the lines that expected.txt has for it.
#include <map>

#include "cli/builtins.h"
#include "engine/base/registry.h"
#include "tests/cli/command.h"

namespace {

using CliBroken = cli::Command;

const std::string kFolder = CRL_SOURCE_DIR "/tests/cli/broken/";

// `@transports` stands for those of this build.
std::map<std::string, std::vector<std::string>> expected_lines() {
    std::map<std::string, std::vector<std::string>> expected;
    const std::string mark = "@transports";
    char transports[256];
    crl_registry_names(crl_builtins()->transports, transports, sizeof transports);
    for (std::string line : cli::lines(cli::read_file(kFolder + "expected.txt"))) {
        if (const size_t at = line.find(mark); at != std::string::npos)
            line.replace(at, mark.size(), transports);
        expected[line.substr(0, line.find(':'))].push_back(line);
    }
    return expected;
}

TEST_F(CliBroken, EveryConfigIsRefusedWithItsPlaces) {
    auto expected = expected_lines();
    int files = 0;
    for (const auto &entry : std::filesystem::directory_iterator(kFolder)) {
        if (entry.path().extension() != ".yaml")
            continue;
        files++;
        const std::string name = entry.path().filename();
        SCOPED_TRACE(name);
        const auto result = run(
            {"sh", "-c", "cd " + kFolder + " && " CRL_BINARY_DIR "/carole config check " + name});
        std::string wanted;
        for (const std::string &line : expected[name])
            wanted += "carole: " + line + "\n";
        EXPECT_NE(wanted, "") << "expected.txt has nothing for it";
        EXPECT_EQ(result.err, wanted);
        EXPECT_EQ(result.out, "");
        EXPECT_EQ(result.code, 2);
    }
    EXPECT_GE(files, 30);
    EXPECT_EQ(files, (int)expected.size());
}

TEST_F(CliBroken, TrainingRefusesThemToo) {
    for (const char *name : {"unknown_key.yaml", "several_at_once.yaml", "tab.yaml"}) {
        const auto result = carole({"train", kFolder + name});
        EXPECT_EQ(result.code, 2) << result.err;
        EXPECT_NE(result.err.find(std::string(name) + ":"), std::string::npos);
    }
}

TEST_F(CliBroken, AWrongSetNamesItself) {
    const std::string config = CRL_SOURCE_DIR "/configs/fashion-mlp.yaml";
    for (const char *set : {"train.stepz=3", "nothing", "train.steps=x", "=", "a.b.c=1"}) {
        const auto result = carole({"config", "check", config, "--set", set});
        EXPECT_NE(result.code, 0) << set;
        EXPECT_EQ(cli::lines(result.err).size(), 1u) << result.err;
        EXPECT_NE(result.err.find("--set"), std::string::npos) << result.err;
    }
}

} // namespace
