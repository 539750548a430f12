// SPDX-License-Identifier: Apache-2.0
// Devices of other kinds, on machines that may or may not have them.
#include <regex>

#include "tests/cli/images.h"

namespace {

class CliDevice : public cli::Command {
  protected:
    void SetUp() override {
        cli::write_images(folder, "train", 64);
        cli::write_images(folder, "test", 64);
        config = cli::write_config(folder, "model:\n  type: mlp\n  hidden: [16]\n");
    }
    // What the machine says of it: the line of that name under "this machine".
    std::string said_of(const std::string &device) {
        std::smatch found;
        const std::string out = carole({"info"}).out;
        return std::regex_search(out, found, std::regex("\n  " + device + " +([^\n]*; [^\n]*)"))
                   ? found[1].str()
                   : "";
    }
    std::string config;
};

TEST_F(CliDevice, InfoSaysOfCudaWhatIsThereAndWhatIsMissing) {
    const bool built =
        carole({"info"}).out.find("\n  CUDA                   yes\n") != std::string::npos;
    const std::string said = said_of("cuda");
    EXPECT_EQ(said.empty(), !built);
    for (const char *library : {"cuBLASLt ", "cuDNN ", "NCCL "})
        EXPECT_EQ(said.find(library) != std::string::npos, built) << said;
}

TEST_F(CliDevice, ACpuIsAlwaysThere) {
    EXPECT_EQ(carole({"train", config, "--set", "run.device=cpu"}).code, 0);
}

// Where there is a GPU the run goes on: this is about the others.
TEST_F(CliDevice, WhyThereIsNoGpuIsOneLine) {
    const std::string said = said_of("cuda");
    const auto result = carole({"train", config, "--set", "run.device=cuda"});
    if (said.empty())
        expect_failure(result, 2, "run.device: unknown device 'cuda'");
    else if (said.rfind("no ", 0) == 0)
        expect_failure(result, 1, "cuda: " + said.substr(0, said.find(';')));
    else
        GTEST_SKIP() << said;
}

} // namespace
