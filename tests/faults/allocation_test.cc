// SPDX-License-Identifier: Apache-2.0
// Memory runs out at every single allocation of a run: preparing, the first step, validation and
// the checkpoint. It must end with one error on all ranks, with everything given back, and with no
// half-written checkpoint.
#include <gtest/gtest.h>

#include <filesystem>

#include "engine/base/alloc.h"
#include "engine/run/checkpoint.h"
#include "tests/layouts/job.h"

namespace {

using job::Schedule;
using job::Sets;
using job::Width;

// Settings are loaded outside the watch: they are tests/base's business.
struct Watched {
    crl_status status;
    std::string message;
    bool reached; // the allocation that was to fail
    int64_t allocations;
    int64_t leaked, leaked_bytes;
};

Watched Train(const crl_settings *settings, int64_t fail_at) {
    crl_alloc_watch watch = {};
    crl_run_result result = {};
    crl_error_clear();
    watch.fail_at = fail_at;
    crl_alloc_watch *const before = crl_alloc_attach(&watch);
    const crl_status status = crl_train(&result, settings, crl_builtins(), nullptr);
    crl_alloc_attach(before);
    return {status,
            status ? crl_error_message() : "",
            fail_at > 0 && watch.fail_at <= 0,
            watch.allocations,
            watch.allocations - watch.frees,
            watch.live_bytes};
}

class FaultsAllocation : public testing::Test {
  protected:
    Sets Small() const {
        job::WriteImages(scratch_, 13);
        return job::Mlp(scratch_, scratch_ / "images", scratch_ / "labels") +
               Sets{{"model.hidden", "[6]"},
                    {"train.steps", "1"},
                    {"train.global_batch", "8"},
                    {"train.micro_batch", "2"},
                    {"comm.deadline", "20"}};
    }

    Sets SmallGpt() const {
        return job::Gpt(scratch_) + Sets{{"model.layers", "1"},
                                         {"model.channels", "8"},
                                         {"train.steps", "1"},
                                         {"train.global_batch", "4"},
                                         {"comm.deadline", "20"}};
    }

    void ExpectNoHalfCheckpoint() const {
        const std::string folder = scratch_ / "run/checkpoints";
        if (!std::filesystem::exists(folder)) {
            return;
        }
        for (const auto &entry : std::filesystem::directory_iterator(folder)) {
            EXPECT_NE(entry.path().filename().string()[0], '.') << entry.path();
            if (entry.is_directory()) {
                EXPECT_TRUE(std::filesystem::exists(entry.path() / "state.json")) << entry.path();
                EXPECT_TRUE(std::filesystem::exists(entry.path() / "model.safetensors"));
            }
        }
    }

    // Lets allocation 1, 1 + stride, ... fail until a run has fewer.
    void FailEach(const Sets &sets, int64_t stride) {
        const job::Settings settings(sets);
        ASSERT_EQ(settings.status(), CRL_STATUS_OK) << crl_error_message();
        const Watched good = Train(settings.get(), 0);
        ASSERT_EQ(good.status, CRL_STATUS_OK) << good.message;
        ASSERT_EQ(good.leaked, 0);
        std::filesystem::remove_all(scratch_ / "run");
        bool reached = true;
        int64_t n = 1;
        for (; reached && n < 10 * good.allocations; n += stride) {
            const Watched run = Train(settings.get(), n);
            reached = run.reached;
            SCOPED_TRACE("allocation " + std::to_string(n) + " of about " +
                         std::to_string(good.allocations) + ": " + run.message);
            ASSERT_EQ(run.status, reached ? CRL_STATUS_NOMEM : CRL_STATUS_OK);
            ASSERT_EQ(run.leaked, 0) << run.leaked_bytes << " bytes";
            ASSERT_EQ(run.leaked_bytes, 0);
            ASSERT_EQ(run.message.find('\n'), std::string::npos);
            if (reached) {
                ASSERT_FALSE(run.message.empty());
            }
            ExpectNoHalfCheckpoint();
            std::filesystem::remove_all(scratch_ / "run");
        }
        EXPECT_FALSE(reached) << "still failing at " << n;
        EXPECT_GT(n, good.allocations / 2);
    }

    Scratch scratch_;
};

TEST_F(FaultsAllocation, EveryOneFailsOnOneRank) {
    FailEach(Small(), 1);
}

TEST_F(FaultsAllocation, EveryOneFailsOnOneRankWithAttention) {
    FailEach(SmallGpt(), 1);
}

TEST_F(FaultsAllocation, FailsOnTwoStagesTimesTwoReplicas) {
    FailEach(Small() + Width(2, 2), 1);
}

TEST_F(FaultsAllocation, FailsOnInterleavedStages) {
    FailEach(SmallGpt() + Width(2, 1) + Schedule("interleaved"), 7);
}

// A user's own schedule on replicas of unequal widths, updated before the norm is known.
TEST_F(FaultsAllocation, FailsWithAScheduleOfOnesOwn) {
    write_text(scratch_ / "own.csv", "0F0,0F1,0B0,0F2,0B1,0F3,0B2,0B3\n"
                                     "1F0,1I0,1F1,1W0,1B1,1F2,1B2,1F3,1B3\n");
    FailEach(SmallGpt() + Sets{{"parallel.schedule", scratch_ / "own.csv"},
                               {"parallel.replicas", "[2, 1]"},
                               {"train.micro_batch", "1"},
                               {"train.steps", "3"},
                               {"optimizer.validate", "after"},
                               {"optimizer.clip", "0.5"}},
             5);
}

// Of a resumed run: what loading a checkpoint allocates.
TEST_F(FaultsAllocation, EveryOneFailsWhileResuming) {
    const Sets sets = Small();
    ASSERT_EQ(job::Train(sets).status, CRL_STATUS_OK) << crl_error_message();
    std::filesystem::rename(scratch_ / "run", scratch_ / "before");
    FailEach(sets + Sets{{"run.resume", scratch_ / "before"}, {"train.steps", "2"}}, 1);
}

} // namespace
