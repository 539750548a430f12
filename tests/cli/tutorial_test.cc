// SPDX-License-Identifier: Apache-2.0
// Installs the library, builds docs/tutorial with CMake and with pkg-config against it, and trains.
#include "tests/cli/images.h"

namespace {

using CliTutorial = cli::Command;

TEST_F(CliTutorial, BuildsAndTrainsWithTheInstalledPackage) {
    if (std::system("command -v cmake >/dev/null") != 0)
        GTEST_SKIP() << "no cmake here";
    const std::string root = folder.path(), prefix = root + "/prefix";
    auto result = run({"cmake", "--install", CRL_BINARY_DIR, "--prefix", prefix});
    ASSERT_EQ(result.code, 0) << result.err;

    result =
        run({"sh", "-c",
             "cmake -S " CRL_SOURCE_DIR "/docs/tutorial -B " + root +
                 "/build -DCMAKE_PREFIX_PATH=" + prefix + " && cmake --build " + root + "/build"});
    ASSERT_EQ(result.code, 0) << result.out << result.err;

    cli::write_images(folder, "train", 256);
    cli::write_images(folder, "test", 64);
    const std::string config =
        cli::write_config(folder, "model:\n  blocks: 3\n  width: 24\n", "  data: 2\n");
    result = run({root + "/build/resmlp", "train", config});
    ASSERT_EQ(result.code, 0) << result.out << result.err;
    EXPECT_NE(result.out.find("step 6/6"), std::string::npos) << result.out;
    EXPECT_NE(result.out.find("run folder"), std::string::npos) << result.out;
    result = run({root + "/build/resmlp", "plan", config, "--nodes"});
    EXPECT_NE(result.out.find("block2.fc1"), std::string::npos) << result.out << result.err;
    result = run({root + "/build/resmlp", "train", config, "--set", "model.blokcs=2"});
    EXPECT_EQ(result.code, 2);
    EXPECT_NE(result.err.find("resmlp: --set"), std::string::npos) << result.err;
    EXPECT_NE(result.err.find("'blocks'"), std::string::npos) << result.err;
}

TEST_F(CliTutorial, BuildsWithPkgConfig) {
    if (std::system("command -v pkg-config >/dev/null") != 0)
        GTEST_SKIP() << "no pkg-config here";
    const std::string root = folder.path(), prefix = root + "/prefix";
    auto result = run({"cmake", "--install", CRL_BINARY_DIR, "--prefix", prefix});
    ASSERT_EQ(result.code, 0) << result.err;
    result = run(
        {"sh", "-c",
         "pc=$(find " + prefix +
             " -name carole.pc) && lib=$(dirname $(dirname $pc)) && "
             "export PKG_CONFIG_PATH=$(dirname $pc) LD_LIBRARY_PATH=$lib && "
             "${CC:-cc} -Wall -Wextra -Werror " CRL_SOURCE_DIR "/docs/tutorial/resmlp.c -o " +
             root + "/resmlp $(pkg-config --cflags --libs carole) && " + root + "/resmlp --help"});
    ASSERT_EQ(result.code, 0) << result.out << result.err;
    EXPECT_NE(result.out.find("Model of this program: resmlp"), std::string::npos) << result.out;
}

} // namespace
