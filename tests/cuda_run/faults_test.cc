// SPDX-License-Identifier: Apache-2.0
// Each call of CUDA's runtime and libraries fails once: the run ends with one line that says so and
// leaves nothing behind, or goes on as if nothing had happened.
#include <gtest/gtest.h>

#include <string>

#include "tests/cuda_on_cpu/cuda_on_cpu.h"
#include "tests/layouts/job.h"

namespace {

using job::Outcome;
using job::Sets;
using job::Width;

class CudaFaults : public testing::TestWithParam<const char *> {
  protected:
    void SetUp() override {
        cuda_on_cpu::set_devices(2);
        cuda_on_cpu::set_deadline(2000);
    }
    void TearDown() override {
        cuda_on_cpu::set_devices(1);
        cuda_on_cpu::set_deadline(20000);
        cuda_on_cpu::fail_at(0);
    }
    Sets Small() {
        const Sets gpt = job::Gpt(scratch_);
        write_text(scratch_ / "tokens.bin", data_files::Llmc(job::Tokens(9 * 4 + 1, 13)));
        return gpt + Sets{{"run.device", "cuda"},     {"model.layers", "2"},
                          {"model.channels", "8"},    {"model.heads", "1"},
                          {"model.context", "4"},     {"model.vocabulary", "13"},
                          {"train.steps", "2"},       {"train.global_batch", "2"},
                          {"train.micro_batch", "1"}, {"optimizer.warmup_steps", "1"},
                          {"comm.deadline", "10"},    {"numerics.precision", GetParam()}};
    }
    // Trains with every `stride`-th call failing, one in each run.
    void FailEach(const Sets &sets, int64_t runs) {
        cuda_on_cpu::fail_at(0);
        const Outcome whole = job::Train(sets);
        ASSERT_EQ(whole.status, CRL_STATUS_OK) << whole.message;
        const int64_t calls = cuda_on_cpu::calls(), stride = 1 + calls / runs;
        for (int64_t n = 1 + calls % stride; n <= calls; n += stride) {
            cuda_on_cpu::fail_at(n);
            const Outcome outcome = job::Train(sets);
            Judge(outcome, whole,
                  "call " + std::to_string(n) + " of " + std::to_string(calls) + ", " +
                      cuda_on_cpu::failed_call());
            if (HasFailure())
                return;
        }
    }
    static void Judge(const Outcome &outcome, const Outcome &whole, const std::string &where) {
        SCOPED_TRACE(where + ": " + outcome.message);
        if (outcome.status == CRL_STATUS_OK) {
            EXPECT_EQ(outcome.Bits(), whole.Bits());
        } else {
            EXPECT_TRUE(outcome.status == CRL_STATUS_DEVICE || outcome.status == CRL_STATUS_NOMEM ||
                        outcome.status == CRL_STATUS_UNSUPPORTED)
                << "status " << outcome.status;
            EXPECT_EQ(outcome.message.find('\n'), std::string::npos);
            EXPECT_FALSE(outcome.message.empty());
        }
        EXPECT_EQ(cuda_on_cpu::take_problems(), "");
        EXPECT_EQ(cuda_on_cpu::what_lives(), "");
    }
    Scratch scratch_;
};
INSTANTIATE_TEST_SUITE_P(, CudaFaults, testing::Values("f32", "bf16"),
                         [](const auto &info) { return std::string(info.param); });

TEST_P(CudaFaults, OfOneRank) {
    FailEach(Small(), 60);
}

TEST_P(CudaFaults, OfTwoRanks) {
    for (const char *wire : {"shared", "staged", "nccl"})
        FailEach(Small() + Width(2, 1) + Sets{{"comm.wire", wire}}, 30);
}

} // namespace
