// SPDX-License-Identifier: Apache-2.0
// What Ctrl-C and a batch system's SIGTERM do: the step ends, a checkpoint is saved, and going on
// gives the bits of a run that was never stopped.
#include <regex>

#include "tests/cli/images.h"

namespace {

class CliStop : public cli::Command {
  protected:
    void SetUp() override {
        cli::write_images(folder, "train", 256);
        cli::write_images(folder, "test", 64);
        config = cli::write_config(folder, "model:\n  type: mlp\n  hidden: [16, 16]\n");
    }

    static std::string find(const std::string &text, const char *pattern) {
        std::smatch found;
        return std::regex_search(text, found, std::regex(pattern)) ? found[1].str() : "";
    }

    // Starts an endless run, sends SIGTERM when its output has `begun`, and, when `again`, a second
    // time as soon as it has said that it stops.
    cli::Result stop(const std::string &begun, bool again, const std::string &more) {
        return run({"sh", "-c",
                    "\"$0\" train \"$1\" --set train.steps=1000000 --set train.checkpoint_every=0 "
                    "$5 >\"$2\" 2>\"$2.err\" & p=$!; "
                    "until grep -q \"$3\" \"$2\"; do sleep 0.02; kill -0 $p || exit 99; done; "
                    "kill -TERM $p; "
                    "if [ \"$4\" = again ]; then "
                    "until grep -q 'stopping after' \"$2.err\"; do sleep 0.02; done; "
                    "kill -TERM $p; fi; wait $p; code=$?; cat \"$2.err\" >&2; exit $code",
                    CRL_BINARY_DIR "/carole", config, (folder / "log").string(), begun,
                    again ? "again" : "once", more});
    }

    std::string config;
};

TEST_F(CliStop, SavesAndGoesOnWithTheSameBits) {
    const cli::Result stopped = stop("^step 3/", false, "");
    EXPECT_EQ(stopped.code, 1) << stopped.err;
    const std::string step = find(stopped.err, "carole: stopped after step ([0-9]+) as asked");
    ASSERT_NE(step, "") << stopped.err;
    const std::string more = "train.steps=" + std::to_string(std::stoi(step) + 3);
    const cli::Result resumed = carole({"train", config, "--resume", "auto", "--set", more});
    ASSERT_EQ(resumed.code, 0) << resumed.err;
    EXPECT_NE(resumed.out.find("next step " + step), std::string::npos) << resumed.out;
    const cli::Result whole = carole(
        {"train", config, "--set", more, "--set", "run.directory=" + (folder / "whole").string()});
    ASSERT_EQ(whole.code, 0) << whole.err;
    const char *bits = "parameter bits ([0-9a-f]{16})";
    EXPECT_NE(find(whole.out, bits), "");
    EXPECT_EQ(find(resumed.out, bits), find(whole.out, bits));
}

TEST_F(CliStop, ASecondSignalEndsAtOnce) {
    // Steps of seconds: 256 micro-batches through wide layers.
    const cli::Result stopped =
        stop("^step 1/", true,
             "--set model.hidden=[2048,2048,2048] --set train.global_batch=256 "
             "--set train.micro_batch=1");
    EXPECT_EQ(stopped.code, 128 + SIGTERM) << stopped.err;
    EXPECT_NE(stopped.err.find("stopping after this step"), std::string::npos) << stopped.err;
}

} // namespace
