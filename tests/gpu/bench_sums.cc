// SPDX-License-Identifier: Apache-2.0
// All-reduces of f32 between ranks that are threads with one device among them: one JSON line for
// each algorithm and size, the median of rank 0. Asserts nothing.
//   bench_sums cpu|cuda RANKS WIRE [tiny]
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <vector>

#include "engine/base/thread.h"
#include "engine/comm/collective.h"
#include "engine/comm/collective_internal.h"
#include "engine/comm/wire.h"
#include "tests/gpu/bench_device.h"

namespace gpu_bench {
namespace {

struct Job {
    const char *device, *wire;
    bool tiny;
};

// Every member has a lane of its own.
struct Lanes {
    std::vector<int> first;
    int count = 1;
    explicit Lanes(int ranks) {
        while (count < ranks)
            count *= 2;
        for (int r = 0; r <= ranks; r++)
            first.push_back(r * count / ranks);
    }
};

struct Sums {
    crl_comm *comm;
    const Device &on;
    const Lanes &lanes;
    float *data;
    int rounds;
};

crl_status time_sum(const Sums &s, const crl_allreduce_algorithm *algorithm, int64_t count,
                    double *out_s) {
    const crl_group group = {s.comm, nullptr, s.comm->ranks, s.comm->rank, 7};
    crl_allreduce_config config = {};
    config.group = &group;
    config.reduce = s.on.backend()->f32->reduce;
    config.stream = s.on.stream();
    config.max_count = count;
    config.lanes = s.lanes.count;
    config.lane_first = s.lanes.first.data();
    algorithm = crl_allreduce_on(s.comm, algorithm);
    crl_allreduce *allreduce = nullptr;
    CRL_TRY(algorithm->create(&allreduce, &config));
    std::vector<double> seconds;
    for (int round = 0; round < s.rounds; round++) {
        crl_lane_node node[CRL_MAX_LANE_NODES];
        const int me = s.comm->rank;
        const int nodes = crl_lane_split(s.lanes.first[me], s.lanes.first[me + 1], node);
        for (int i = 0; i < nodes; i++)
            node[i].data = s.data;
        CRL_TRY(crl_barrier(&group));
        CRL_TRY(crl_comm_wait_stream(s.comm, "benchmark", nullptr, nullptr));
        const int64_t begin = crl_clock_ns();
        CRL_TRY(algorithm->start(allreduce, node, nodes, s.data, count));
        CRL_TRY(crl_allreduce_wait(algorithm, allreduce, s.comm, "benchmark"));
        CRL_TRY(crl_comm_wait_stream(s.comm, "benchmark", nullptr, nullptr));
        seconds.push_back((double)(crl_clock_ns() - begin) * 1e-9);
    }
    algorithm->destroy(allreduce);
    std::sort(seconds.begin(), seconds.end());
    *out_s = seconds[seconds.size() / 2];
    return CRL_STATUS_OK;
}

crl_status time_sizes(const Job &job, crl_comm *comm, const Device &on) {
    const Lanes lanes(comm->ranks);
    const int64_t most = job.tiny ? 4096 : (int64_t)256 << 20;
    const Memory data(on, (size_t)most);
    for (int64_t bytes = job.tiny ? 4096 : 64 << 10; bytes <= most; bytes *= 16) {
        const Sums sums = {comm, on, lanes, (float *)data.data(),
                           job.tiny           ? 1
                           : bytes > 16 << 20 ? 9
                                              : 31};
        for (const auto *algorithm : {&crl_allreduce_tree, &crl_allreduce_ring}) {
            double s = 0;
            CRL_TRY(time_sum(sums, algorithm, bytes / 4, &s));
            if (comm->rank == 0)
                std::printf("{\"sum\":\"%s\",\"ranks\":%d,\"wire\":\"%s\",\"bytes\":%lld,"
                            "\"us\":%.1f}\n",
                            algorithm->name, comm->ranks, job.wire, (long long)bytes, s * 1e6);
        }
    }
    return CRL_STATUS_OK;
}

crl_status run(void *argument, crl_comm *host) {
    const Job &job = *(const Job *)argument;
    crl_kernels_set_threads(1);
    const Device on(job.device, host->rank, host->ranks);
    CRL_TRY(crl_comm_reserve(host, 256));
    crl_wire_config config = {};
    config.host = host;
    config.device = on.device();
    config.stream = on.stream();
    config.requests = 256;
    config.reduce = on.backend()->f32->reduce;
    const crl_wire_kind *kind = nullptr;
    CRL_TRY(crl_wire_find(&kind, job.wire, &config));
    crl_comm comm = {};
    CRL_TRY(crl_comm_on_device(&comm, host, kind, &config));
    const crl_status status = time_sizes(job, &comm, on);
    if (status != CRL_STATUS_OK)
        crl_comm_abort(&comm);
    crl_comm_leave_device(&comm);
    return status;
}

} // namespace
} // namespace gpu_bench

int main(int argc, char **argv) {
    using namespace gpu_bench;
    Job job = {argc > 1 ? argv[1] : "cuda", argc > 3 ? argv[3] : "shared",
               argc > 4 && std::strcmp(argv[4], "tiny") == 0};
    const int ranks = argc > 2 ? std::atoi(argv[2]) : 2;
    {
        const Device there(job.device); // or 77, before threads are started
    }
    if (crl_comm_launch(&crl_transport_local, ranks, 60000000000, run, &job) != CRL_STATUS_OK) {
        std::fprintf(stderr, "%s\n", crl_error_message());
        return 1;
    }
    return 0;
}
