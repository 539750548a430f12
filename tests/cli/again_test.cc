// SPDX-License-Identifier: Apache-2.0
// What `carole train` says of the folder and the files it finds.
#include "engine/base/file.h"
#include "tests/cli/images.h"

namespace {

class CliAgain : public cli::Command {
  protected:
    void SetUp() override {
        cli::write_images(folder, "train", 256);
        cli::write_images(folder, "test", 64);
        config = cli::write_config(folder, "model:\n  type: mlp\n  hidden: [16, 16]\n");
        const auto first = carole({"train", config});
        ASSERT_EQ(first.code, 0) << first.err;
        EXPECT_EQ(first.err, "");
    }

    std::string config;
};

TEST_F(CliAgain, WarnsThatAFreshRunReplacesTheEarlierOne) {
    const auto second = carole({"train", config});
    EXPECT_EQ(second.code, 0);
    EXPECT_EQ(second.err, "warning: replaces an earlier run, which got to " +
                              (folder / "run/checkpoints/step-00000006").string() +
                              " (--resume auto goes on from it)\n");
}

TEST_F(CliAgain, SaysWhenNothingIsLeftToDo) {
    const auto second = carole({"train", config, "--resume", "auto"});
    EXPECT_EQ(second.code, 0);
    EXPECT_EQ(second.err, "");
    EXPECT_NE(second.out.find("finished step 6: nothing left to do, parameter bits "),
              std::string::npos)
        << second.out;
}

TEST_F(CliAgain, AFolderThatAnotherRunHoldsIsLeftAlone) {
    int lock = -1;
    ASSERT_EQ(crl_file_lock(&lock, (folder / "run/lock").c_str()), CRL_STATUS_OK);
    const auto second = carole({"train", config, "--resume", "auto", "--set", "train.steps=9"});
    close(lock);
    EXPECT_EQ(second.code, 1);
    EXPECT_NE(second.err.find("run: in use by another run"), std::string::npos) << second.err;
    EXPECT_EQ(carole({"train", config, "--resume", "auto"}).code, 0);
}

TEST_F(CliAgain, MissingDataIsSaidBeforeAnyMemoryIsReserved) {
    // 2^40 weights: no machine has the memory.
    expect_failure(carole({"train", config, "--set", "data.validation=[none-images, none-labels]",
                           "--set", "model.hidden=[1048576, 1048576]"}),
                   1, "carole: none-images: no such file");
}

} // namespace
