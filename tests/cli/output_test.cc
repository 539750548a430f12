// SPDX-License-Identifier: Apache-2.0
// Where the output of a run goes when its caller left no place for it.
#include <jansson.h>

#include "tests/cli/images.h"

namespace {

using CliOutput = cli::Command;

// What is meant for a closed terminal must not end up in the file that got its descriptor.
TEST_F(CliOutput, NoFileGetsTheTextOfAClosedTerminal) {
    cli::write_images(folder, "train", 256);
    cli::write_images(folder, "test", 64);
    const std::string config =
        cli::write_config(folder, "model:\n  type: mlp\n  hidden: [16, 16]\n");
    const auto result = run({"sh", "-c", CRL_BINARY_DIR "/carole train " + config + " >&-"});
    EXPECT_EQ(result.code, 1);
    EXPECT_NE(result.err.find("standard output: write failed"), std::string::npos) << result.err;
    const auto log = cli::lines(cli::read_file(folder / "run/log.jsonl"));
    EXPECT_GE(log.size(), 8u);
    for (const std::string &line : log) {
        json_t *one = json_loads(line.c_str(), 0, nullptr);
        EXPECT_NE(one, nullptr) << line;
        json_decref(one);
    }
}

} // namespace
