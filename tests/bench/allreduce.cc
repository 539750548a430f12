/* SPDX-License-Identifier: Apache-2.0 */
/*
 * All-reduce bandwidth: every algorithm, and the transport's own, from 4 KiB to 64 MiB.
 *   bench_allreduce local 2          ranks as threads
 *   mpirun -n 2 bench_allreduce mpi  ranks as processes
 * Prints medians; asserts nothing.
 */
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <vector>

#include "cli/builtins.h"
#include "engine/base/alloc.h"
#include "engine/base/thread.h"
#include "engine/comm/collective_internal.h"
#include "engine/kernels/kernels.h"

static double median(std::vector<double> values) {
    std::sort(values.begin(), values.end());
    return values[values.size() / 2];
}

static int rounds_for(int64_t bytes) {
    return bytes <= 1 << 20 ? 41 : 9;
}

/* Seconds of one all-reduce of `count` floats: the median over rounds on this rank. */
static crl_status time_algorithm(crl_comm *comm, const crl_allreduce_algorithm *algorithm,
                                 std::vector<float> &data, double *out_s) {
    const int64_t count = (int64_t)data.size();
    const crl_group group = {comm, nullptr, comm->ranks, comm->rank, 7};
    std::vector<int> lanes(comm->ranks + 1);
    int tree_lanes = 1;
    while (tree_lanes < comm->ranks) {
        tree_lanes *= 2;
    }
    for (int r = 0; r <= comm->ranks; r++) {
        lanes[r] = r * tree_lanes / comm->ranks;
    }
    crl_allreduce_config config = {};
    config.group = &group;
    config.reduce = crl_kernels_cpu.reduce;
    config.max_count = count;
    config.lanes = tree_lanes;
    config.lane_first = lanes.data();
    crl_allreduce *allreduce = nullptr;
    CRL_TRY(algorithm->create(&allreduce, &config));
    std::vector<double> seconds;
    for (int round = 0; round < rounds_for(count * 4); round++) {
        crl_lane_node node[CRL_MAX_LANE_NODES];
        const int nodes = crl_lane_split(lanes[comm->rank], lanes[comm->rank + 1], node);
        for (int i = 0; i < nodes; i++) {
            node[i].data = data.data();
        }
        CRL_TRY(crl_barrier(&group));
        const int64_t begin = crl_clock_ns();
        CRL_TRY(algorithm->start(allreduce, node, nodes, data.data(), count));
        CRL_TRY(crl_allreduce_wait(algorithm, allreduce, comm, "benchmark"));
        seconds.push_back((double)(crl_clock_ns() - begin) * 1e-9);
    }
    algorithm->destroy(allreduce);
    *out_s = median(seconds);
    return CRL_STATUS_OK;
}

static crl_status time_native(crl_comm *comm, std::vector<float> &data, double *out_s) {
    const crl_group group = {comm, nullptr, comm->ranks, comm->rank, 7};
    std::vector<double> seconds;
    for (int round = 0; round < rounds_for((int64_t)data.size() * 4); round++) {
        CRL_TRY(crl_barrier(&group));
        const int64_t begin = crl_clock_ns();
        CRL_TRY(comm->transport->allreduce(comm->endpoint, data.data(), (int64_t)data.size()));
        seconds.push_back((double)(crl_clock_ns() - begin) * 1e-9);
    }
    *out_s = median(seconds);
    return CRL_STATUS_OK;
}

static crl_status run(void *, crl_comm *comm) {
    crl_kernels_set_threads(1);
    if (comm->rank == 0) {
        std::printf("| bytes | tree | ring | halving | native |  (%s, %d ranks; µs)\n",
                    comm->transport->name, comm->ranks);
    }
    for (int64_t bytes = 4096; bytes <= 64 << 20; bytes *= 4) {
        std::vector<float> data((size_t)bytes / 4, 0.0f);
        double s[4] = {0, 0, 0, 0};
        CRL_TRY(time_algorithm(comm, &crl_allreduce_tree, data, &s[0]));
        CRL_TRY(time_algorithm(comm, &crl_allreduce_ring, data, &s[1]));
        CRL_TRY(time_algorithm(comm, &crl_allreduce_halving, data, &s[2]));
        if (comm->transport->allreduce) {
            CRL_TRY(time_native(comm, data, &s[3]));
        }
        if (comm->rank == 0) {
            std::printf("| %lld | %.1f | %.1f | %.1f | %.1f |\n", (long long)bytes, s[0] * 1e6,
                        s[1] * 1e6, s[2] * 1e6, s[3] * 1e6);
            std::fflush(stdout);
        }
    }
    return CRL_STATUS_OK;
}

int main(int argc, char **argv) {
    const char *name = argc > 1 ? argv[1] : "local";
    const int ranks = argc > 2 ? std::atoi(argv[2]) : std::strcmp(name, "local") == 0 ? 2 : 0;
    for (const void *const *at = crl_builtins()->transports; *at; at++) {
        const auto *transport = static_cast<const crl_transport *>(*at);
        if (std::strcmp(transport->name, name) == 0) {
            if (crl_comm_launch(transport, ranks, 60000000000, run, nullptr) != CRL_STATUS_OK) {
                std::fprintf(stderr, "bench_allreduce: %s\n", crl_error_message());
                return 1;
            }
            return 0;
        }
    }
    std::fprintf(stderr, "bench_allreduce: no transport '%s' in this build\n", name);
    return 2;
}
