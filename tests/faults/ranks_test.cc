// SPDX-License-Identifier: Apache-2.0
// A rank of a training run fails, loses its messages or stalls. The run must end on all ranks
// within the deadline, with a message that names that rank. Ranks are threads; the local transport
// is wrapped. Every run of this file returning at all is part of the test.
#include <gtest/gtest.h>

#include <atomic>
#include <condition_variable>
#include <mutex>

#include "engine/base/thread.h"
#include "engine/comm/transport.h"
#include "engine/run/dataset.h"
#include "engine/run/tally.h"
#include "tests/layouts/job.h"

namespace {

using job::Schedule;
using job::Sets;
using job::Width;

enum class Fault { kNone, kFail, kLose, kStall };

// What goes wrong: `rank` behaves from its send number `after` on, of those with that tag.
struct Plan {
    Fault fault = Fault::kNone;
    int rank = -1;
    int after = 0;
    int tag = -1; // any
};

// One for the whole program: transports have no room for a context.
struct Stage {
    Plan plan;
    std::mutex mutex;
    std::condition_variable changed;
    bool others_ended = false;
    std::atomic<bool> happened{false};
    crl_rank_fn run = nullptr;
    void *argument = nullptr;
};
Stage stage;
thread_local int my_rank = -1;
thread_local int my_sends = 0;

bool Wrong() {
    return my_rank == stage.plan.rank && my_sends >= stage.plan.after;
}

void ReleaseStalled() {
    const std::lock_guard<std::mutex> lock(stage.mutex);
    stage.others_ended = true;
    stage.changed.notify_all();
}

crl_status FaultySend(crl_endpoint *endpoint, int peer, int tag, const void *data, size_t bytes,
                      crl_request *request) {
    const bool counts = stage.plan.tag < 0 || tag == stage.plan.tag;
    const bool wrong = counts && Wrong();
    my_sends += counts && my_rank == stage.plan.rank;
    if (!wrong || stage.plan.fault == Fault::kNone) {
        return crl_transport_local.send(endpoint, peer, tag, data, bytes, request);
    }
    stage.happened = true;
    if (stage.plan.fault == Fault::kLose) {
        return CRL_STATUS_OK; // a request at rest is done
    }
    if (stage.plan.fault == Fault::kFail) {
        const crl_status status = CRL_FAIL(IO, "cable to rank %d is cut", peer);
        crl_transport_local.abort(endpoint, crl_error_get());
        return status;
    }
    std::unique_lock<std::mutex> lock(stage.mutex);
    stage.changed.wait(lock, [] { return stage.others_ended; });
    lock.unlock();
    return crl_transport_local.send(endpoint, peer, tag, data, bytes, request);
}

void FaultyAbort(crl_endpoint *endpoint, const crl_error *error) {
    crl_transport_local.abort(endpoint, error);
    ReleaseStalled();
}

crl_status RunRank(void *, crl_endpoint *endpoint, int rank, int ranks) {
    my_rank = rank;
    my_sends = 0;
    const crl_status status = stage.run(stage.argument, endpoint, rank, ranks);
    ReleaseStalled(); // should the others never have waited for it
    return status;
}

crl_status FaultyLaunch(int ranks, crl_rank_fn run, void *argument) {
    stage.run = run;
    stage.argument = argument;
    return crl_transport_local.launch(ranks, RunRank, nullptr);
}

// A data set whose n-th read fails.
std::atomic<int> reads_left{-1};
const crl_dataset_format *true_format = nullptr;

crl_status FailingRead(const crl_dataset *dataset, int field, const int64_t *sample, int64_t n,
                       void *out) {
    if (reads_left.fetch_sub(1) == 0) {
        return CRL_FAIL(IO, "sample %lld: disk is gone", static_cast<long long>(sample[0]));
    }
    return true_format->read(dataset, field, sample, n, out);
}

class Registries {
  public:
    Registries() : transport_(crl_transport_local), registries_(*crl_builtins()) {
        transport_.launch = FaultyLaunch;
        transport_.send = FaultySend;
        transport_.abort = FaultyAbort;
        registries_.transports = transports_;
        for (const void *const *at = crl_builtins()->datasets; *at; at++) {
            const auto *format = static_cast<const crl_dataset_format *>(*at);
            if (std::string(format->name) == "llmc") {
                true_format = format;
                format_ = *format;
                format_.read = FailingRead;
            }
        }
        registries_.datasets = datasets_;
    }
    const crl_registries *get() const { return &registries_; }

  private:
    crl_transport transport_;
    crl_dataset_format format_ = {};
    const void *transports_[2] = {&transport_, nullptr};
    const void *datasets_[2] = {&format_, nullptr};
    crl_registries registries_;
};

class FaultsRanks : public testing::Test {
  protected:
    Sets Gpt() const {
        return job::Gpt(scratch_) + Sets{{"model.layers", "2"},
                                         {"model.channels", "16"},
                                         {"train.global_batch", "8"},
                                         {"train.steps", "3"},
                                         {"comm.deadline", "1"}};
    }

    static job::Outcome Train(const Sets &sets, const Plan &plan) {
        const Registries registries;
        stage.plan = plan;
        stage.others_ended = false;
        stage.happened = false;
        return job::Train(sets, registries.get());
    }

    Scratch scratch_;
};

TEST_F(FaultsRanks, NothingHappensWithoutAFault) {
    const job::Outcome outcome = Train(Gpt() + Width(2, 2) + Sets{{"comm.deadline", "30"}}, {});
    EXPECT_EQ(outcome.status, CRL_STATUS_OK) << outcome.message;
}

// At every message of a whole run, on every rank: none is left to wait for the deadline.
TEST_F(FaultsRanks, FailureIsReportedWithItsRank) {
    const Sets sets = Gpt() + Width(2, 2) + Sets{{"comm.deadline", "30"}, {"train.steps", "2"}};
    for (int rank = 0; rank < 4; rank++) {
        bool happened = true;
        int after = 0;
        for (; happened; after++) {
            const job::Outcome outcome = Train(sets, {Fault::kFail, rank, after});
            happened = stage.happened;
            SCOPED_TRACE("rank " + std::to_string(rank) + ", message " + std::to_string(after));
            ASSERT_EQ(outcome.status, happened ? CRL_STATUS_IO : CRL_STATUS_OK) << outcome.message;
            if (happened) {
                ASSERT_EQ(outcome.rank, rank) << outcome.message;
                ASSERT_NE(outcome.message.find("is cut"), std::string::npos) << outcome.message;
            }
        }
        EXPECT_GT(after, 20) << "rank " << rank;
    }
}

// The first to lose patience need not be the one that waits for the rank itself, but it says who
// does.
TEST_F(FaultsRanks, LostMessagesEndAtTheDeadline) {
    for (const Plan &plan :
         {Plan{Fault::kLose, 0, 0}, Plan{Fault::kLose, 1, 20}, Plan{Fault::kLose, 3, 7}}) {
        const int64_t begin_ns = crl_clock_ns();
        const job::Outcome outcome = Train(Gpt() + Width(2, 2), plan);
        const std::string name = "rank " + std::to_string(plan.rank);
        EXPECT_TRUE(stage.happened);
        EXPECT_EQ(outcome.status, CRL_STATUS_TIMEOUT);
        EXPECT_TRUE(outcome.message.find("from " + name) != std::string::npos ||
                    outcome.message.find("waits for " + name + " (") != std::string::npos)
            << name << ": " << outcome.message;
        EXPECT_GE(crl_clock_ns() - begin_ns, 1000000000); // not before it either
    }
}

TEST_F(FaultsRanks, StalledRankIsNamed) {
    for (const Plan &plan :
         {Plan{Fault::kStall, 0, 0}, Plan{Fault::kStall, 1, 20}, Plan{Fault::kStall, 3, 7}}) {
        const job::Outcome outcome = Train(Gpt() + Width(2, 2), plan);
        EXPECT_TRUE(stage.happened);
        EXPECT_EQ(outcome.status, CRL_STATUS_TIMEOUT);
        EXPECT_NE(outcome.message.find("rank " + std::to_string(plan.rank) + " does not answer"),
                  std::string::npos)
            << "rank " << plan.rank << ": " << outcome.message;
    }
}

TEST_F(FaultsRanks, StallsInOtherLayouts) {
    for (const Sets &layout : {Width(1, 3), Width(2, 1) + Schedule("interleaved")}) {
        const job::Outcome outcome = Train(Gpt() + layout, {Fault::kStall, 1, 9});
        EXPECT_TRUE(stage.happened);
        EXPECT_EQ(outcome.status, CRL_STATUS_TIMEOUT) << layout.Text();
        EXPECT_NE(outcome.message.find("rank 1 does not answer"), std::string::npos)
            << layout.Text() << outcome.message;
    }
}

// The others have gone on to the next step; what they wait for there is the last one's norms.
TEST_F(FaultsRanks, RankThatIsGoneBeforeAnUpdateIsValidated) {
    const int norms = CRL_TAG_COLLECTIVE | (CRL_TALLY_NORMS + 1);
    const Sets sets = Gpt() + Sets{{"optimizer.validate", "after"}, {"optimizer.clip", "0"}};
    for (int rank : {0, 3}) {
        const int after = rank == 0 ? 2 : 1; // one step's: to both children, to the parent
        job::Outcome outcome = Train(sets + Width(2, 2), {Fault::kStall, rank, after, norms});
        EXPECT_TRUE(stage.happened);
        EXPECT_EQ(outcome.status, CRL_STATUS_TIMEOUT);
        EXPECT_NE(outcome.message.find("rank " + std::to_string(rank) + " does not answer"),
                  std::string::npos)
            << "rank " << rank << ": " << outcome.message;
        EXPECT_NE(outcome.message.find("the norms of the gradients"), std::string::npos)
            << outcome.message;
        EXPECT_EQ(outcome.loss.size(), 1u) << "rank " << rank; // step 2 has not been validated
        outcome = Train(sets + Width(2, 2), {Fault::kFail, rank, after, norms});
        EXPECT_EQ(outcome.status, CRL_STATUS_IO);
        EXPECT_EQ(outcome.rank, rank) << outcome.message;
    }
}

// Every read of a run fails once: whichever rank had asked for it says so.
TEST_F(FaultsRanks, UnreadableDataEndsTheRun) {
    const Sets sets =
        Gpt() + Width(2, 2) +
        Sets{{"comm.deadline", "30"}, {"data.validation", "[" + (scratch_ / "tokens.bin") + "]"}};
    bool reached = true;
    int n = 0;
    for (; reached; n++) {
        reads_left = n;
        const job::Outcome outcome = Train(sets, {});
        reached = reads_left < 0;
        SCOPED_TRACE("read " + std::to_string(n));
        ASSERT_EQ(outcome.status, reached ? CRL_STATUS_IO : CRL_STATUS_OK) << outcome.message;
        if (reached) {
            ASSERT_NE(outcome.message.find("disk is gone"), std::string::npos) << outcome.message;
            ASSERT_GE(outcome.rank, 0) << outcome.message;
        }
    }
    reads_left = -1;
    EXPECT_GT(n, 10);
}

} // namespace
