/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The NCCL wire over NCCL on the CPU (tests/cuda_on_cpu/nccl.cc) and a device that does its work
 * late: the bits of messages in host memory, no misuse of the library, and ends of jobs.
 */
#include <atomic>

#include <gtest/gtest.h>

#include "engine/device/cuda_stream.h"
#include "engine/kernels/kernels.h"
#define CRL_LATE_CUDA_STREAMS
#include "tests/comm/wire_device.h"
#include "tests/comm/wire_scenarios.h"
#include "tests/cuda_on_cpu/nccl.h"

using namespace comm_test;

namespace {
std::mutex problems_lock;
std::string problems;
std::atomic<int> failing{0};

std::string take_problems() {
    const std::lock_guard<std::mutex> lock(problems_lock);
    std::string all;
    all.swap(problems);
    return all;
}
} // namespace

void nccl_on_cpu::push(cudaStream_t stream, const std::string &, const std::vector<Range> &,
                       const std::vector<Range> &, std::function<bool()> pass) {
    late_device::get().push_gate(stream, std::move(pass));
}
std::shared_ptr<void> nccl_on_cpu::hold() {
    return late_device::get().hold();
}
bool nccl_on_cpu::fails(const char *) {
    return failing > 0 && --failing == 0;
}
void nccl_on_cpu::report(const std::string &problem) {
    const std::lock_guard<std::mutex> lock(problems_lock);
    problems += problem + "\n";
}

/* GPUs have the numbers that tests give to their streams. */
cudaError_t cudaDeviceGetPCIBusId(char *out, int bytes, int device) {
    snprintf(out, (size_t)bytes, "0000:%02x:00.0", device);
    return cudaSuccess;
}

namespace {

const wire_bench direct = {&crl_device_cpu, plain_reduce(), nullptr};

class CommNccl : public testing::Test {
  protected:
    void SetUp() override {
        live = late_device::get().live();
        failing = 0;
    }
    void TearDown() override {
        EXPECT_EQ(late_device::get().live(), live);
        EXPECT_EQ(nccl_on_cpu::live_comms(), 0);
        EXPECT_EQ(take_problems(), "");
    }
    template <class Scenario, class... Arguments>
    void same_as_direct(int ranks, uint32_t seeds, route_list (*routes)(int, int),
                        Arguments... arguments) {
        outcome_bits expected, got;
        ASSERT_EQ(collect<Scenario>(ranks, direct, nullptr, &expected, arguments...), CRL_STATUS_OK)
            << crl_error_message();
        for (uint32_t seed = 0; seed < seeds; seed++) {
            late_device::get().seed(seed);
            ASSERT_EQ(collect<Scenario>(ranks, bench, routes, &got, arguments...), CRL_STATUS_OK)
                << crl_error_message() << "\n"
                << take_problems();
            for (int rank = 0; rank < ranks; rank++) {
                const auto &a = expected[(size_t)rank], &b = got[(size_t)rank];
                ASSERT_EQ(a.size(), b.size());
                ASSERT_TRUE(a.empty() || memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0)
                    << "rank " << rank << ", seed " << seed;
            }
        }
    }
    /* Two ranks, one message each way on the given channels. */
    crl_status pair(int64_t deadline_ns, const std::function<crl_status(const wire_rank &)> &body,
                    std::vector<crl_status> *ended) {
        ended->assign(2, CRL_STATUS_OK);
        return launch(&crl_transport_local, 2, deadline_ns, [&](crl_comm *comm) -> crl_status {
            device_floats data;
            (*ended)[(size_t)comm->rank] =
                on_device(comm, bench, {{0, 0, 1, 0}, {1, 0, 1, 0}, {2, 1, 0, 0}},
                          [&](const wire_rank &at) { return body(at); });
            return (*ended)[(size_t)comm->rank];
        });
    }

    const wire_bench bench = {late(), late_reduce(), &crl_wire_nccl};
    int64_t live;
};

} // namespace

TEST_F(CommNccl, CarriesAPipelineBothWays) {
    for (int ranks = 2; ranks <= 5; ranks++) {
        same_as_direct<chain>(ranks, 6, chain::routes, (int64_t)1000);
    }
    same_as_direct<chain>(3, 1, chain::routes, (int64_t)0);
}

TEST_F(CommNccl, CarriesManyTagsAndSizesInAnyOrder) {
    for (int ranks = 2; ranks <= 3; ranks++) {
        same_as_direct<crowd>(ranks, 3, crowd::routes, false);
        same_as_direct<crowd>(ranks, 3, crowd::routes, true);
    }
}

TEST_F(CommNccl, TreeHasTheBitsOfMessages) {
    for (int ranks = 2; ranks <= 5; ranks++) {
        for (int present : {8, 7, 0}) {
            for (int64_t n : {16, 960, 1003}) {
                same_as_direct<lane_total>(
                    ranks, 1, nullptr, sum_case{&crl_allreduce_tree, 8, present, n, present == 7});
            }
        }
    }
}

/* Two ranks: there is one order of adding only. */
TEST_F(CommNccl, SumsOfTwoAreTheSameBits) {
    same_as_direct<lane_total>(2, 3, nullptr, sum_case{&crl_allreduce_ring, 2, 2, 1003, false});
    same_as_direct<lane_total>(2, 3, nullptr, sum_case{&crl_allreduce_halving, 2, 2, 100, true});
}

TEST_F(CommNccl, GathersAndScatters) {
    for (int ranks = 1; ranks <= 4; ranks++) {
        same_as_direct<shards>(ranks, 2, nullptr, (int64_t)100);
    }
}

/* Two sums at once on one communicator, the second one asked for first. */
TEST_F(CommNccl, SumsAreQueuedInTheOrderOfTheirStart) {
    const crl_status status =
        launch(&crl_transport_local, 3, 30000000000, [&](crl_comm *comm) -> crl_status {
            device_floats data[4], scratch[4];
            return on_device(comm, bench, {}, [&](const wire_rank &at) -> crl_status {
                const crl_group group = {at.tensors, nullptr, 3, comm->rank, 1};
                const int first[] = {0, 1, 2, 3};
                const auto *tree = crl_allreduce_on(at.tensors, &crl_allreduce_tree);
                crl_allreduce *sum[4] = {};
                crl_allreduce_config config = {};
                config.group = &group;
                config.reduce = bench.reduce;
                config.stream = at.stream;
                config.max_count = 100;
                config.lanes = 4;
                config.lane_first = first;
                for (int i = 0; i < 4; i++) {
                    config.channel = i;
                    CRL_TRY(scratch[i].make(at, 200));
                    config.scratch = scratch[i].data;
                    CRL_TRY(data[i].make(at, 100));
                    CRL_TRY(data[i].put(std::vector<float>(100, (float)(comm->rank + i))));
                    CRL_TRY(tree->create(&sum[i], &config));
                }
                for (int i = 0; i < 4; i++) {
                    crl_lane_node node = {comm->rank, 1, data[i].data};
                    CRL_TRY(tree->start(sum[i], &node, 1, nullptr, 100));
                }
                for (int i = 3; i >= 0; i--) {
                    CRL_TRY(crl_allreduce_wait(tree, sum[i], at.tensors, "sum"));
                    std::vector<float> got;
                    CRL_TRY(data[i].get(&got));
                    COMM_CLAIM(got[99] == (float)(3 + 3 * i), "%d: %f", i, (double)got[99]);
                    tree->destroy(sum[i]);
                }
                return CRL_STATUS_OK;
            });
        });
    EXPECT_EQ(status, CRL_STATUS_OK) << crl_error_message();
}

TEST_F(CommNccl, RefusesAMessageWithoutARoute) {
    std::vector<crl_status> ended;
    const crl_status status = pair(
        30000000000,
        [](const wire_rank &at) -> crl_status {
            crl_request request = {};
            CRL_TRY(crl_comm_recv(at.tensors, 1 - at.host->rank, 77, nullptr, 0, &request));
            return CRL_STATUS_OK;
        },
        &ended);
    EXPECT_EQ(status, CRL_STATUS_INVALID);
    EXPECT_NE(std::string(crl_error_message()).find("tag 77 has no route"), std::string::npos);
}

/* The peer never sends: the kernel of the receive would wait for ever. */
TEST_F(CommNccl, AMessageThatNeverComesHasADeadline) {
    device_floats data[2];
    std::vector<crl_status> ended;
    const crl_status status = pair(
        300000000,
        [&](const wire_rank &at) -> crl_status {
            crl_request request = {};
            CRL_TRY(data[at.host->rank].make(at, 10));
            if (at.host->rank == 1) {
                CRL_TRY(crl_comm_recv(at.tensors, 0, 0, data[1].data, 40, &request));
                CRL_TRY(crl_comm_wait(at.tensors, &request, "rain", nullptr, nullptr));
            }
            return crl_comm_wait_stream(at.tensors, "the losses", nullptr, nullptr);
        },
        &ended);
    EXPECT_EQ(status, CRL_STATUS_TIMEOUT);
    /* Rank 1 says it, or rank 0, which waits for it to leave. */
    EXPECT_NE(std::string(crl_error_message()).find("the losses"), std::string::npos)
        << crl_error_message();
    EXPECT_NE(ended[1], CRL_STATUS_OK);
}

TEST_F(CommNccl, EndsWhenARankDies) {
    device_floats data[2];
    std::vector<crl_status> ended;
    const crl_status status = pair(
        30000000000,
        [&](const wire_rank &at) -> crl_status {
            crl_request request = {};
            CRL_TRY(data[at.host->rank].make(at, 10));
            if (at.host->rank == 0) {
                return CRL_FAIL(IO, "rank 0 has had enough");
            }
            CRL_TRY(crl_comm_recv(at.tensors, 0, 0, data[1].data, 40, &request));
            CRL_TRY(crl_comm_wait(at.tensors, &request, "rain", nullptr, nullptr));
            return crl_comm_wait_stream(at.tensors, "the losses", nullptr, nullptr);
        },
        &ended);
    EXPECT_EQ(status, CRL_STATUS_IO);
    EXPECT_STREQ(crl_error_message(), "rank 0 has had enough");
    EXPECT_EQ(ended[1], CRL_STATUS_ABORTED);
}

/* Every call of the library fails once: a failure on all ranks, or none. */
TEST_F(CommNccl, SurvivesEveryFailureOfTheLibrary) {
    bool passed = false;
    for (int n = 1; !passed; n++) {
        ASSERT_LT(n, 500);
        failing = n;
        outcome_bits bits;
        const crl_status status = collect<chain>(3, bench, chain::routes, &bits, (int64_t)100);
        passed = status == CRL_STATUS_OK;
        ASSERT_TRUE(passed || status == CRL_STATUS_DEVICE) << crl_error_message();
        ASSERT_EQ(nccl_on_cpu::live_comms(), 0) << n;
    }
}

TEST_F(CommNccl, SurvivesEveryFailingAllocation) {
    bool passed = false;
    for (int64_t n = 1; !passed; n++) {
        ASSERT_LT(n, 2000);
        crl_alloc_watch watch = {};
        watch.fail_at = n;
        crl_alloc_watch *before = crl_alloc_attach(&watch);
        outcome_bits bits;
        const crl_status status = collect<chain>(2, bench, chain::routes, &bits, (int64_t)100);
        crl_alloc_attach(before);
        ASSERT_EQ(watch.live_bytes, 0) << n;
        passed = status == CRL_STATUS_OK;
        ASSERT_TRUE(passed || status == CRL_STATUS_NOMEM) << crl_error_message();
    }
}

/* Routes whose orders do not agree: found out, instead of wrong data or a standstill for ever. */
TEST_F(CommNccl, OrdersThatDisagreeAreReported) {
    device_floats data[2][2];
    std::vector<crl_status> ended;
    const crl_status status = pair(
        300000000,
        [&](const wire_rank &at) -> crl_status {
            const int rank = at.host->rank;
            crl_request request[2] = {};
            CRL_TRY(data[rank][0].make(at, 10));
            CRL_TRY(data[rank][1].make(at, 20));
            for (int i = 0; i < 2; i++) {
                const int tag = rank == 0 ? i : 1 - i;
                const size_t bytes = 40 * (size_t)(tag + 1);
                CRL_TRY(
                    rank == 0
                        ? crl_comm_send(at.tensors, 1, tag, data[0][tag].data, bytes, &request[i])
                        : crl_comm_recv(at.tensors, 0, tag, data[1][tag].data, bytes, &request[i]));
            }
            for (crl_request &each : request) {
                CRL_TRY(crl_comm_wait(at.tensors, &each, "it", nullptr, nullptr));
            }
            return crl_comm_wait_stream(at.tensors, "it", nullptr, nullptr);
        },
        &ended);
    EXPECT_EQ(status, CRL_STATUS_TIMEOUT);
    EXPECT_NE(take_problems().find("80 bytes"), std::string::npos);
}

TEST_F(CommNccl, IsUsableWhereEveryRankHasAGpuOfItsOwn) {
    crl_device cuda = *late();
    cuda.name = "cuda";
    for (bool own : {true, false}) {
        std::atomic<int> usable{0};
        const crl_status status =
            launch(&crl_transport_local, 3, 30000000000, [&](crl_comm *comm) -> crl_status {
                crl_stream stream = {};
                stream.device = own ? comm->rank : comm->rank / 2;
                crl_wire_config config = {};
                config.host = comm;
                config.device = &cuda;
                config.stream = &stream;
                const crl_status can = crl_wire_nccl.usable(&config);
                usable += can == CRL_STATUS_OK;
                COMM_CLAIM(own ||
                               strstr(crl_error_message(), "ranks 0 and 1 share GPU 0000:00:00.0"),
                           "%s", crl_error_message());
                COMM_CLAIM(can == CRL_STATUS_OK || can == CRL_STATUS_UNSUPPORTED, "%d", (int)can);
                config.device = late();
                COMM_CLAIM(crl_wire_nccl.usable(&config) == CRL_STATUS_UNSUPPORTED, "late");
                return CRL_STATUS_OK;
            });
        EXPECT_EQ(status, CRL_STATUS_OK) << crl_error_message();
        EXPECT_EQ(usable, own ? 3 : 0);
    }
}
