// SPDX-License-Identifier: Apache-2.0
// NCCL on the CPU. Operations of all ranks of a communicator meet by number: the k-th send from a
// to b with b's k-th receive from a, the k-th collective with everybody's k-th. Each is done once
// all its ranks' streams have come to it, so wrong orders on streams stand still as on a GPU, and
// different arguments are reported. Communicators never block: every call is "in progress" for some
// looks, and calling on meanwhile is reported.
#include "tests/cuda_on_cpu/nccl.h"

#include <cstring>
#include <map>
#include <memory>
#include <mutex>
#include <vector>

namespace nccl_on_cpu {
namespace {

enum class Kind { kSend, kReceive, kBroadcast, kAllGather, kAllReduce };
const char *const kNames[] = {"ncclSend", "ncclRecv", "ncclBroadcast", "ncclAllGather",
                              "ncclAllReduce"};

struct Operation {
    Kind kind;
    const void *from;
    void *to;
    size_t count, size; // elements, bytes each
    int peer;           // or root
    int rank;
};

// What all ranks do as one: a pair of send and receive, or a collective.
struct Meeting {
    std::vector<std::shared_ptr<Operation>> reached;
    size_t expected;
    bool done = false, broken = false; // broken: one of its ranks has aborted
};

struct Clique {
    int ranks, joined = 0, aborted = 0;
    // By kind of pair and number; collectives: -1, -1.
    std::map<std::tuple<int, int, int>, std::shared_ptr<Meeting>> meetings;
};

// A group of operations on one stream: passed when all are done.
struct Launch {
    std::vector<std::shared_ptr<Operation>> operations;
    std::vector<std::shared_ptr<Meeting>> meetings;
    bool reached = false;
};

std::mutex state; // of all below and of cliques; the machine is held before it, never after
std::map<std::string, std::shared_ptr<Clique>> cliques;
int ids, comms;

// What the library's calls take; streams that come to an operation hold the machine already.
struct Lock {
    std::shared_ptr<void> machine = hold();
    std::lock_guard<std::mutex> own{state};
};

} // namespace
} // namespace nccl_on_cpu

using namespace nccl_on_cpu;

struct ncclComm {
    std::shared_ptr<Clique> clique;
    int rank;
    int looks = 0; // until it is settled
    bool failed = false, finalized = false;
    std::shared_ptr<bool> aborted = std::make_shared<bool>(false);
    std::map<std::pair<int, int>, int> numbers; // of the next send or receive by peer, collective
    // What is to be put on the stream once it is settled.
    std::vector<std::pair<cudaStream_t, std::shared_ptr<Launch>>> pending;
    std::vector<std::weak_ptr<Launch>> launched;
};

namespace nccl_on_cpu {
namespace {

// Between start and end of a group, by rank's thread.
struct Group {
    int depth = 0;
    std::vector<std::tuple<ncclComm_t, cudaStream_t, std::shared_ptr<Operation>>> operations;
};
thread_local Group group;

std::string describe(const Operation &o) {
    return std::string(kNames[(int)o.kind]) + " of " + std::to_string(o.count * o.size) +
           " bytes with " + std::to_string(o.peer) + " by rank " + std::to_string(o.rank);
}

bool is_pair(const Operation &o) {
    return o.kind == Kind::kSend || o.kind == Kind::kReceive;
}

// The meeting that the operation is part of, by its number on this communicator.
std::shared_ptr<Meeting> meeting_of(ncclComm_t comm, const Operation &o) {
    const int from = o.kind == Kind::kSend ? o.rank : is_pair(o) ? o.peer : -1;
    const int to = o.kind == Kind::kSend ? o.peer : is_pair(o) ? o.rank : -1;
    const int number = comm->numbers[{from, to}]++;
    std::shared_ptr<Meeting> &meeting = comm->clique->meetings[{from, to, number}];
    if (!meeting) {
        meeting = std::make_shared<Meeting>();
        meeting->expected = is_pair(o) ? 2 : (size_t)comm->clique->ranks;
    }
    return meeting;
}

bool agree(const Operation &a, const Operation &b) {
    const bool same = is_pair(a) ? a.kind != b.kind : a.kind == b.kind && a.peer == b.peer;
    return same && a.count == b.count && a.size == b.size;
}

// In order of ranks: one of the orders that NCCL may take.
void add_all(const std::vector<const Operation *> &by_rank) {
    std::vector<float> sum(by_rank[0]->count);
    for (const Operation *o : by_rank) {
        for (size_t i = 0; i < sum.size(); i++) {
            sum[i] += static_cast<const float *>(o->from)[i];
        }
    }
    for (const Operation *o : by_rank) {
        memcpy(o->to, sum.data(), sum.size() * sizeof(float));
    }
}

void perform(const Meeting &meeting) {
    const std::vector<std::shared_ptr<Operation>> &all = meeting.reached;
    const size_t bytes = all[0]->count * all[0]->size;
    if (is_pair(*all[0])) {
        const bool sends = all[0]->kind == Kind::kSend;
        memcpy(all[sends ? 1 : 0]->to, all[sends ? 0 : 1]->from, bytes);
        return;
    }
    std::vector<const Operation *> by_rank(all.size());
    for (const auto &o : all) {
        by_rank[(size_t)o->rank] = o.get();
    }
    for (const Operation *o : by_rank) {
        for (size_t r = 0; o->kind == Kind::kAllGather && r < by_rank.size(); r++) {
            memmove(static_cast<char *>(o->to) + r * bytes, by_rank[r]->from, bytes);
        }
        if (o->kind == Kind::kBroadcast && o->rank != o->peer) {
            memcpy(o->to, by_rank[(size_t)o->peer]->from, bytes);
        }
    }
    if (all[0]->kind == Kind::kAllReduce) {
        add_all(by_rank);
    }
}

// A stream has come to the operation.
void reach(const std::shared_ptr<Operation> &o, Meeting *meeting) {
    for (const auto &other : meeting->reached) {
        if (!agree(*o, *other)) {
            report(describe(*o) + " meets " + describe(*other));
            return; // as on a GPU, they never get through
        }
    }
    meeting->reached.push_back(o);
    if (!meeting->broken && meeting->reached.size() == meeting->expected) {
        perform(*meeting);
        meeting->done = true;
    }
}

bool pass(Launch *launch) {
    const std::lock_guard<std::mutex> lock(state);
    bool done = true;
    for (size_t i = 0; i < launch->operations.size(); i++) {
        if (!launch->reached) {
            reach(launch->operations[i], launch->meetings[i].get());
        }
    }
    launch->reached = true;
    for (const auto &meeting : launch->meetings) {
        done = done && meeting->done;
    }
    return done;
}

bool usable(ncclComm_t comm, const char *call) {
    if (*comm->aborted || comm->finalized) {
        report(std::string(call) + " on a communicator that has ended");
        return false;
    }
    if (comm->looks > 0 || !comm->pending.empty()) {
        report(std::string(call) + " on a communicator that is in progress");
        return false;
    }
    return true;
}

// All operations of a group: a launch on each stream.
ncclResult_t close_group() {
    const Lock lock;
    ncclResult_t result = ncclInProgress;
    std::map<ncclComm_t, std::shared_ptr<Launch>> launches;
    for (const auto &[comm, stream, operation] : group.operations) {
        std::shared_ptr<Launch> &launch = launches[comm];
        if (!launch) {
            if (!usable(comm, "an operation")) {
                result = ncclInvalidUsage;
                break;
            }
            launch = std::make_shared<Launch>();
            comm->pending.push_back({stream, launch});
            comm->launched.push_back(launch);
            comm->failed = comm->failed || fails("an operation of NCCL");
            comm->looks = 1 + comm->numbers.empty() * 2;
        } else if (comm->pending.back().first != stream) {
            report("a group with two streams on one communicator");
        }
        launch->operations.push_back(operation);
        launch->meetings.push_back(meeting_of(comm, *operation));
    }
    group.operations.clear();
    return result;
}

ncclResult_t add(ncclComm_t comm, cudaStream_t stream, const Operation &what) {
    auto operation = std::make_shared<Operation>(what);
    operation->rank = comm->rank;
    if (what.peer < 0 || what.peer >= comm->clique->ranks) {
        return ncclInvalidArgument;
    }
    group.operations.push_back({comm, stream, operation});
    return group.depth > 0 ? ncclSuccess : close_group();
}

void put_on_stream(ncclComm_t comm, cudaStream_t stream, const std::shared_ptr<Launch> &launch) {
    std::vector<Range> reads, writes;
    const size_t ranks = (size_t)comm->clique->ranks;
    for (const auto &o : launch->operations) {
        const size_t bytes = o->count * o->size;
        if (o->from && (o->kind != Kind::kBroadcast || o->rank == o->peer))
            reads.push_back({o->from, bytes});
        if (o->to && (o->kind != Kind::kBroadcast || o->rank != o->peer))
            writes.push_back({o->to, o->kind == Kind::kAllGather ? bytes * ranks : bytes});
    }
    push(stream, kNames[(int)launch->operations[0]->kind], reads, writes,
         [launch, aborted = comm->aborted] { return *aborted || pass(launch.get()); });
}

size_t size_of(ncclDataType_t type) {
    return type == ncclFloat ? 4 : 1;
}

} // namespace

int live_comms() {
    const Lock lock;
    return comms;
}

} // namespace nccl_on_cpu

ncclResult_t ncclGetVersion(int *version) {
    *version = 22809;
    return ncclSuccess;
}

ncclResult_t ncclGetUniqueId(ncclUniqueId *id) {
    const Lock lock;
    memset(id, 0, sizeof *id);
    snprintf(id->internal, sizeof id->internal, "id %d", ids++);
    return fails("ncclGetUniqueId") ? ncclSystemError : ncclSuccess;
}

ncclResult_t ncclCommInitRankConfig(ncclComm_t *out, int ranks, ncclUniqueId id, int rank,
                                    ncclConfig_t *config) {
    const Lock lock;
    std::shared_ptr<Clique> &clique = cliques[id.internal];
    if (!clique) {
        clique = std::make_shared<Clique>();
        clique->ranks = ranks;
    }
    if (config->blocking != 0 || clique->ranks != ranks || rank < 0 || rank >= ranks)
        report("ncclCommInitRankConfig: blocking, or another size than the others'");
    auto *comm = new ncclComm;
    comm->clique = clique;
    comm->rank = rank;
    comm->looks = 2;
    comm->failed = fails("ncclCommInitRankConfig");
    clique->joined++;
    comms++;
    *out = comm;
    return ncclInProgress;
}

// Operations go to their streams when the communicator is settled.
ncclResult_t ncclCommGetAsyncError(ncclComm_t comm, ncclResult_t *result) {
    std::vector<std::pair<cudaStream_t, std::shared_ptr<Launch>>> go;
    {
        const Lock lock;
        *result = comm->failed ? ncclSystemError : ncclSuccess;
        if (comm->failed)
            return ncclSuccess;
        const bool together = comm->clique->joined == comm->clique->ranks;
        comm->looks -= comm->looks > 0 && together;
        if (comm->looks > 0) {
            *result = ncclInProgress;
            return ncclSuccess;
        }
        go.swap(comm->pending);
    }
    for (auto &[stream, launch] : go)
        put_on_stream(comm, stream, launch);
    return ncclSuccess;
}

static bool is_through(ncclComm_t comm) {
    bool through = comm->pending.empty();
    for (const auto &weak : comm->launched) {
        const auto launch = weak.lock();
        for (size_t i = 0; launch && i < launch->meetings.size(); i++)
            through = through && launch->meetings[i]->done;
    }
    return through;
}

ncclResult_t ncclCommFinalize(ncclComm_t comm) {
    const Lock lock;
    if (!usable(comm, "ncclCommFinalize"))
        return ncclInvalidUsage;
    comm->finalized = true;
    comm->looks = 1;
    return ncclInProgress;
}

ncclResult_t ncclCommDestroy(ncclComm_t comm) {
    const Lock lock;
    if (!comm->finalized || comm->looks > 0)
        report("ncclCommDestroy before the end of ncclCommFinalize");
    if (!is_through(comm))
        report("ncclCommDestroy with operations under way");
    comms--;
    delete comm;
    return ncclSuccess;
}

ncclResult_t ncclCommAbort(ncclComm_t comm) {
    const Lock lock;
    *comm->aborted = true;
    for (const auto &weak : comm->launched) {
        const auto launch = weak.lock();
        for (size_t i = 0; launch && i < launch->meetings.size(); i++)
            launch->meetings[i]->broken = true;
    }
    comms--;
    delete comm;
    return ncclSuccess;
}

const char *ncclGetErrorString(ncclResult_t result) {
    return result == ncclSystemError ? "unhandled system error" : "invalid usage";
}

ncclResult_t ncclGroupStart() {
    group.depth++;
    return ncclSuccess;
}

ncclResult_t ncclGroupEnd() {
    if (group.depth == 0) {
        const Lock lock;
        report("ncclGroupEnd without ncclGroupStart");
        return ncclInvalidUsage;
    }
    if (--group.depth > 0 || group.operations.empty())
        return ncclSuccess;
    return close_group();
}

ncclResult_t ncclSend(const void *data, size_t count, ncclDataType_t type, int peer,
                      ncclComm_t comm, cudaStream_t stream) {
    return add(comm, stream, {Kind::kSend, data, nullptr, count, size_of(type), peer, 0});
}

ncclResult_t ncclRecv(void *data, size_t count, ncclDataType_t type, int peer, ncclComm_t comm,
                      cudaStream_t stream) {
    return add(comm, stream, {Kind::kReceive, nullptr, data, count, size_of(type), peer, 0});
}

ncclResult_t ncclBroadcast(const void *from, void *to, size_t count, ncclDataType_t type, int root,
                           ncclComm_t comm, cudaStream_t stream) {
    return add(comm, stream, {Kind::kBroadcast, from, to, count, size_of(type), root, 0});
}

ncclResult_t ncclAllGather(const void *from, void *to, size_t count, ncclDataType_t type,
                           ncclComm_t comm, cudaStream_t stream) {
    return add(comm, stream, {Kind::kAllGather, from, to, count, size_of(type), 0, 0});
}

ncclResult_t ncclAllReduce(const void *from, void *to, size_t count, ncclDataType_t type,
                           ncclRedOp_t, ncclComm_t comm, cudaStream_t stream) {
    return add(comm, stream, {Kind::kAllReduce, from, to, count, size_of(type), 0, 0});
}
