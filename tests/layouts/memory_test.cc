// SPDX-License-Identifier: Apache-2.0
// Memory: what is predicted is what is reserved, nothing is allocated from step 2 on by anybody's
// malloc, and 1F1B keeps as many activations for 64 micro-batches as for 8.
//
// This program's malloc and its relatives count, so that allocations of libraries are seen too.
// Left out are those of the OpenMP runtime, which makes and frees a descriptor for every parallel
// region of a single thread.
#include <link.h>
#include <execinfo.h>
#include <gtest/gtest.h>
#include <malloc.h>

#include <atomic>

#include "engine/base/alloc.h"
#include "engine/comm/transport.h"
#include "engine/run/layout.h"
#include "tests/layouts/job.h"

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr bool kCounts = false; // the sanitizer's malloc is in the way
#else
constexpr bool kCounts = true;
#endif

namespace {

using job::Schedule;
using job::Sets;
using job::Width;

enum { kFrames = 24 };

// What the interposed functions count, while on, in threads that run ranks.
struct Counter {
    std::atomic<bool> on{false};
    std::atomic<int> calls{0};
    std::atomic<int> library_calls{0};
    std::atomic<size_t> largest_bytes{0}; // of any thread, always
    void *frame[kFrames];                 // where the first one came from
    int frames = 0;
};
Counter counter;
thread_local bool is_rank_thread = false;
thread_local bool is_counting = false;

// Where the code of the libraries lies whose own bookkeeping is not ours to avoid.
struct Libraries {
    static constexpr int kMost = 8;
    uintptr_t first[kMost], last[kMost];
    int count = 0;

    void Find() {
        count = 0;
        dl_iterate_phdr(
            [](dl_phdr_info *info, size_t, void *self) {
                static_cast<Libraries *>(self)->Add(info);
                return 0;
            },
            this);
    }
    void Add(const dl_phdr_info *info) {
        for (const char *name : {"libgomp", "libdnnl", "libstdc++"}) {
            if (info->dlpi_name && strstr(info->dlpi_name, name) && count < kMost) {
                first[count] = info->dlpi_addr;
                last[count] = info->dlpi_addr;
                for (int i = 0; i < info->dlpi_phnum; i++) {
                    const auto &part = info->dlpi_phdr[i];
                    const uintptr_t end = info->dlpi_addr + part.p_vaddr + part.p_memsz;
                    last[count] = part.p_type == PT_LOAD && end > last[count] ? end : last[count];
                }
                count++;
            }
        }
    }
    bool Contain(const void *address) const {
        const uintptr_t at = reinterpret_cast<uintptr_t>(address);
        for (int i = 0; i < count; i++) {
            if (first[i] <= at && at < last[i]) {
                return true;
            }
        }
        return false;
    }
};
Libraries libraries;

[[maybe_unused]] void Count(size_t bytes, const void *caller) {
    size_t largest = counter.largest_bytes.load();
    while (bytes > largest && !counter.largest_bytes.compare_exchange_weak(largest, bytes)) {
    }
    if (is_rank_thread && counter.on && !is_counting) {
        is_counting = true;
        if (libraries.Contain(caller)) {
            counter.library_calls++;
        } else if (counter.calls++ == 0) {
            counter.frames = backtrace(counter.frame, kFrames);
        }
        is_counting = false;
    }
}

std::string Origin() {
    std::string text;
    char **line = backtrace_symbols(counter.frame, counter.frames);
    for (int i = 0; i < counter.frames; i++) {
        text += std::string("\n  ") + line[i];
    }
    free(line);
    return text;
}

} // namespace

#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
extern "C" {
void *__libc_malloc(size_t);
void *__libc_calloc(size_t, size_t);
void *__libc_realloc(void *, size_t);
void *__libc_memalign(size_t, size_t);

void *malloc(size_t bytes) {
    Count(bytes, __builtin_return_address(0));
    return __libc_malloc(bytes);
}
void *calloc(size_t count, size_t bytes) {
    Count(count * bytes, __builtin_return_address(0));
    return __libc_calloc(count, bytes);
}
void *realloc(void *memory, size_t bytes) {
    Count(bytes, __builtin_return_address(0));
    return __libc_realloc(memory, bytes);
}
void *memalign(size_t alignment, size_t bytes) {
    Count(bytes, __builtin_return_address(0));
    return __libc_memalign(alignment, bytes);
}
void *aligned_alloc(size_t alignment, size_t bytes) {
    Count(bytes, __builtin_return_address(0));
    return __libc_memalign(alignment, bytes);
}
int posix_memalign(void **out, size_t alignment, size_t bytes) {
    Count(bytes, __builtin_return_address(0));
    *out = __libc_memalign(alignment, bytes);
    return *out ? 0 : ENOMEM;
}
}
#endif

namespace {

// The local transport, whose ranks' threads are marked.
struct MarkedStart {
    crl_rank_fn run;
    void *argument;
};

crl_status RunMarked(void *argument, crl_endpoint *endpoint, int rank, int ranks) {
    const MarkedStart *start = static_cast<const MarkedStart *>(argument);
    is_rank_thread = true;
    const crl_status status = start->run(start->argument, endpoint, rank, ranks);
    is_rank_thread = false;
    return status;
}

crl_status LaunchMarked(int ranks, crl_rank_fn run, void *argument) {
    MarkedStart start = {run, argument};
    return crl_transport_local.launch(ranks, RunMarked, &start);
}

// The built-in registries with that transport under the name "local".
class Marked {
  public:
    Marked() : transport_(crl_transport_local), registries_(*crl_builtins()) {
        transport_.launch = LaunchMarked;
        registries_.transports = list_;
    }
    const crl_registries *get() const { return &registries_; }

  private:
    crl_transport transport_;
    const void *list_[2] = {&transport_, nullptr};
    crl_registries registries_;
};

class LayoutsMemory : public testing::Test {
  protected:
    // Trains 6 steps and counts from the end of step 1 of rank 0 to the end of its step 5: the last
    // one is left out because other ranks may be saving by then.
    static void ExpectNothingAllocated(const Sets &sets) {
        const Marked marked;
        const job::Settings settings(sets + Sets{{"train.steps", "6"}}, marked.get());
        ASSERT_EQ(settings.status(), CRL_STATUS_OK) << crl_error_message();
        void *warm[2];
        backtrace(warm, 2); // loads its library
        libraries.Find();
        ASSERT_GE(libraries.count, 2);
        counter.calls = counter.library_calls = 0;
        crl_run_events events = {};
        events.stepped = [](void *, const crl_step_report *report) {
            counter.on = report->step >= 1 && report->step < 5;
        };
        crl_run_result result = {};
        const crl_status status = crl_train(&result, settings.get(), marked.get(), &events);
        counter.on = false;
        ASSERT_EQ(status, CRL_STATUS_OK) << crl_error_message();
        EXPECT_EQ(result.late_allocations, 0) << sets.Text();
        EXPECT_EQ(result.late_primitives, 0) << sets.Text();
        EXPECT_EQ(counter.calls, 0) << sets.Text() << "\nfirst from" << Origin();
    }

    crl_memory_report Predict(const Sets &sets, int rank = 0) const {
        const job::Settings settings(sets);
        EXPECT_EQ(settings.status(), CRL_STATUS_OK) << crl_error_message();
        crl_layout *layout = nullptr;
        crl_memory_report report = {};
        EXPECT_EQ(crl_layout_create(&layout, settings.get(), crl_builtins(), nullptr),
                  CRL_STATUS_OK)
            << crl_error_message();
        EXPECT_EQ(crl_layout_memory(&report, layout, rank), CRL_STATUS_OK) << crl_error_message();
        crl_layout_destroy(layout);
        return report;
    }

    Scratch scratch_;
};

TEST_F(LayoutsMemory, NothingIsAllocatedFromStepTwoOn) {
    if (!kCounts) {
        GTEST_SKIP() << "a sanitizer's malloc cannot be counted";
    }
    ExpectNothingAllocated(job::Gpt(scratch_));
    ExpectNothingAllocated(job::Gpt(scratch_) + Sets{{"run.threads", "2"}});
    for (const crl_schedule *schedule : job::Schedules()) {
        ExpectNothingAllocated(job::Gpt(scratch_) + Width(2, 2) + Schedule(schedule->name));
    }
    ExpectNothingAllocated(job::Gpt(scratch_) + Sets{{"parallel.replicas", "[3, 1]"}});
    for (const char *algorithm : {"tree", "ring", "halving"}) {
        ExpectNothingAllocated(job::Gpt(scratch_) + Width(1, 4) +
                               Sets{{"comm.allreduce", algorithm}, {"comm.bucket", "4KiB"}});
    }
    job::WriteImages(scratch_, 203);
    ExpectNothingAllocated(job::Mlp(scratch_, scratch_ / "images", scratch_ / "labels") +
                           Width(2, 2));
}

TEST_F(LayoutsMemory, TheCounterSeesAllocations) {
    if (!kCounts) {
        GTEST_SKIP() << "a sanitizer's malloc cannot be counted";
    }
    libraries.Find();
    counter.calls = counter.library_calls = 0;
    is_rank_thread = counter.on = true;
    void *volatile memory = malloc(10);
    free(memory);
    memory = aligned_alloc(64, 64);
    free(memory);
    delete new std::string(100, 'x');
    is_rank_thread = counter.on = false;
    EXPECT_EQ(counter.calls, 2);
    EXPECT_GE(counter.library_calls, 1); // of operator new
}

TEST_F(LayoutsMemory, PredictedIsReserved) {
    std::vector<Sets> layouts = {Width(1, 1),
                                 Width(2, 2),
                                 Width(4, 1),
                                 Width(1, 3),
                                 Sets{{"parallel.replicas", "[3, 1]"}},
                                 Sets{{"parallel.replicas", "[1, 2, 1]"}}};
    for (const crl_schedule *schedule : job::Schedules()) {
        layouts.push_back(Width(2, 2) + Schedule(schedule->name));
    }
    for (const Sets &layout : layouts) {
        const Sets sets = job::Gpt(scratch_) + layout + Sets{{"train.steps", "2"}};
        const crl_memory_report predicted = Predict(sets);
        EXPECT_EQ(predicted.total_bytes, predicted.weights_bytes + predicted.gradients_bytes +
                                             predicted.optimizer_bytes +
                                             predicted.activations_bytes +
                                             predicted.workspace_bytes + predicted.comm_bytes);
        const job::Outcome outcome = job::Train(sets);
        ASSERT_EQ(outcome.status, CRL_STATUS_OK) << outcome.message;
        EXPECT_EQ(outcome.result.reserved_bytes, int64_t(predicted.total_bytes)) << layout.Text();
    }
}

// The reservation is one allocation of the predicted size, the largest of the run, and everything
// else together is small: programs, graphs, buffers of samples, and a checkpoint's pieces.
TEST_F(LayoutsMemory, ReservationIsThePeakOfARank) {
    Sets sets = job::Gpt(scratch_);
    sets += {{"model.channels", "128"}, {"train.micro_batch", "8"}, {"train.steps", "2"}};
    const crl_memory_report predicted = Predict(sets);
    ASSERT_GT(predicted.total_bytes, size_t(16) << 20);
    crl_alloc_watch watch = {};
    counter.largest_bytes = 0;
    crl_alloc_watch *const before = crl_alloc_attach(&watch);
    const job::Outcome outcome = job::Train(sets);
    crl_alloc_attach(before);
    ASSERT_EQ(outcome.status, CRL_STATUS_OK) << outcome.message;
    EXPECT_GE(watch.peak_bytes, int64_t(predicted.total_bytes));
    EXPECT_LE(watch.peak_bytes, int64_t(predicted.total_bytes) + (6 << 20));
    EXPECT_EQ(watch.live_bytes, 0);
    EXPECT_EQ(watch.allocations, watch.frees);
    if (kCounts) {
        EXPECT_GE(counter.largest_bytes, predicted.total_bytes);
        EXPECT_LE(counter.largest_bytes, predicted.total_bytes + 4096);
    }
}

// What a partitioner cannot know is in the limit too: lanes, scratch, a schedule that holds all.
TEST_F(LayoutsMemory, LimitIsThatOfTheWholeReservation) {
    const Sets layout = job::Gpt(scratch_) + Width(2, 1) + Schedule("gpipe");
    size_t most = 0;
    for (int rank = 0; rank < 2; rank++) {
        most = std::max(most, Predict(layout, rank).total_bytes);
    }
    const auto limit = [](size_t bytes) {
        return Sets{{"parallel.memory_limit", std::to_string(bytes)}};
    };
    const job::Outcome enough = job::Train(layout + limit(most));
    EXPECT_EQ(enough.status, CRL_STATUS_OK) << enough.message;
    const job::Outcome less = job::Train(layout + limit(most - 1));
    EXPECT_EQ(less.status, CRL_STATUS_UNSUPPORTED);
    EXPECT_NE(less.message.find("parallel.memory_limit: a rank needs " + std::to_string(most)),
              std::string::npos)
        << less.message;
}

// Micro-batches: as many as the first stage can have under way, and many more.
// Schedules that keep a limit do with less where they have to, with the same bits.
TEST_F(LayoutsMemory, AutomaticSchedulesKeepTheLimit) {
    const Sets base = job::Gpt(scratch_) + Width(4, 1) + Sets{{"train.steps", "2"}};
    const auto reserved = [&](const Sets &sets) {
        size_t most = 0;
        for (int rank = 0; rank < 4; rank++) {
            most = std::max(most, Predict(base + sets, rank).total_bytes);
        }
        return most;
    };
    const size_t least = reserved(Schedule("1f1b"));
    const std::string bits = job::Train(base).Bits();
    for (const char *schedule : {"auto", "zb-1p", "zb-2p"}) {
        const size_t most = reserved(Schedule(schedule));
        for (const size_t limit : {most, most - 1, (most + least) / 2, least + least / 50}) {
            const Sets sets =
                Schedule(schedule) + Sets{{"parallel.memory_limit", std::to_string(limit)}};
            EXPECT_LE(reserved(sets), limit) << sets.Text();
            const job::Outcome outcome = job::Train(base + sets);
            ASSERT_EQ(outcome.status, CRL_STATUS_OK) << outcome.message << sets.Text();
            EXPECT_EQ(outcome.Bits(), bits) << sets.Text();
        }
    }
    EXPECT_GT(reserved(Schedule("auto")), least); // else nothing has been tried
}

TEST_F(LayoutsMemory, OneForwardOneBackwardDoesNotGrowWithMicroBatches) {
    for (int rank = 0; rank < 4; rank++) {
        const auto activations = [&](const char *schedule, int micro_batches) {
            return Predict(job::Gpt(scratch_) + Width(4, 1) + Schedule(schedule) +
                               Sets{{"train.global_batch", std::to_string(2 * micro_batches)}},
                           rank)
                .activations_bytes;
        };
        EXPECT_EQ(activations("1f1b", 8), activations("1f1b", 16)) << "rank " << rank;
        EXPECT_EQ(activations("1f1b", 8), activations("1f1b", 64)) << "rank " << rank;
        EXPECT_LT(activations("gpipe", 8), activations("gpipe", 16)) << "rank " << rank;
        EXPECT_LT(activations("gpipe", 16), activations("gpipe", 64)) << "rank " << rank;
    }
}

} // namespace
