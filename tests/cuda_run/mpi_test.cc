// SPDX-License-Identifier: Apache-2.0
// Ranks as processes: the command with the emulated backend under mpirun. Each process has one GPU,
// as if they shared it, and tensors go through the host.
#include <gtest/gtest.h>

#include <string>

#include "tests/layouts/job.h"

namespace {

using job::Sets;
using job::Width;

TEST(CudaMpi, StagedMessagesGiveTheSameBits) {
#ifndef CRL_WITH_MPI
    GTEST_SKIP() << "built without MPI";
#endif
    if (job::Shell("command -v mpirun").code != 0) {
        GTEST_SKIP() << "mpirun is not there (Debian: openmpi-bin)";
    }
    const Scratch scratch;
    const Sets base =
        job::Gpt(scratch) + Sets{{"run.device", "cuda"}, {"numerics.precision", "bf16"},
                                 {"model.layers", "2"},  {"model.channels", "16"},
                                 {"train.steps", "2"},   {"train.global_batch", "8"}};
    const job::Outcome one = job::Train(base);
    ASSERT_EQ(one.status, CRL_STATUS_OK) << one.message;
    char bits[64];
    snprintf(bits, sizeof bits, "parameter bits %016llx",
             static_cast<unsigned long long>(one.result.parameter_hash));
    for (const Sets &layout : {Width(2, 1), Width(1, 2)}) {
        const Sets sets =
            base + layout + Sets{{"comm.transport", "mpi"}, {"run.directory", scratch / "mpi"}};
        std::string command = job::Command(sets, scratch / "config.yaml");
        command.replace(0, command.find(' '), CRL_BINARY_DIR "/carole_on_emulated_cuda");
        const job::Printed printed =
            job::Shell(job::MpirunEnvironment() + std::string("timeout 100 ") +
                       job::Mpirun(2, "--mca pml ob1 --mca btl self,vader,tcp") + command);
        EXPECT_EQ(printed.code, 0) << sets.Text() << "\n" << printed.text;
        EXPECT_NE(printed.text.find(bits), std::string::npos) << "expected " << bits << "\n"
                                                              << printed.text;
    }
}

} // namespace
