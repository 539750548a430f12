/* SPDX-License-Identifier: Apache-2.0 */
/* All wires on the emulated CUDA device, which also checks that whatever one stream reads has been
 * waited for where another one wrote it: the bits of messages in host memory. */
#include <gtest/gtest.h>

#include "engine/kernels/cuda/cuda.h"
#include "tests/comm/wire_scenarios.h"
#include "tests/cuda_on_cpu/cuda_on_cpu.h"
#include "tests/cuda_on_cpu/nccl.h"

using namespace comm_test;

namespace {

const wire_bench direct = {&crl_device_cpu, plain_reduce(), nullptr};

/* Every rank takes a device of its own, where there are that many. */
struct on_cuda {
    template <class Scenario, class... Arguments>
    static crl_status collect(int ranks, const wire_bench &bench, route_list (*routes)(int, int),
                              outcome_bits *out, Arguments... arguments) {
        out->assign((size_t)ranks, {});
        return launch(&crl_transport_local, ranks, 60000000000, [&](crl_comm *comm) -> crl_status {
            CRL_TRY(crl_device_choose(bench.device, comm->rank, ranks));
            Scenario scenario;
            const route_list list = routes != nullptr ? routes(comm->rank, ranks) : route_list();
            return on_device(comm, bench, list, [&](const wire_rank &at) {
                return scenario.run(at, arguments..., &(*out)[(size_t)comm->rank]);
            });
        });
    }
};

class CommWireOnCuda : public testing::TestWithParam<const crl_wire_kind *> {
  protected:
    void SetUp() override { bench = {&crl_device_cuda, crl_backend_cuda.f32->reduce, GetParam()}; }
    void TearDown() override {
        EXPECT_EQ(cuda_on_cpu::take_problems(), "");
        EXPECT_EQ(nccl_on_cpu::live_comms(), 0);
        cuda_on_cpu::set_devices(1);
    }
    template <class Scenario, class... Arguments>
    void same_as_direct(int ranks, route_list (*routes)(int, int), Arguments... arguments) {
        outcome_bits expected, got;
        ASSERT_EQ(collect<Scenario>(ranks, direct, nullptr, &expected, arguments...), CRL_STATUS_OK)
            << crl_error_message();
        for (int devices : {ranks, 1}) {
            if (devices == 1 && GetParam() == &crl_wire_nccl) {
                continue;
            }
            cuda_on_cpu::set_devices(devices);
            ASSERT_EQ(on_cuda::collect<Scenario>(ranks, bench, routes, &got, arguments...),
                      CRL_STATUS_OK)
                << crl_error_message() << "\n"
                << cuda_on_cpu::take_problems();
            for (int rank = 0; rank < ranks; rank++) {
                const auto &a = expected[(size_t)rank], &b = got[(size_t)rank];
                ASSERT_EQ(a.size(), b.size());
                ASSERT_TRUE(a.empty() || memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0)
                    << GetParam()->name << ", rank " << rank << ", devices " << devices;
            }
        }
    }

    wire_bench bench;
};

} // namespace

TEST_P(CommWireOnCuda, CarriesAPipelineBothWays) {
    for (int ranks = 2; ranks <= 3; ranks++) {
        same_as_direct<chain>(ranks, chain::routes, (int64_t)1000);
    }
}

TEST_P(CommWireOnCuda, CarriesManyTagsAndSizesInAnyOrder) {
    same_as_direct<crowd>(2, crowd::routes, false);
    same_as_direct<crowd>(2, crowd::routes, true);
}

TEST_P(CommWireOnCuda, TreeHasTheSameBits) {
    for (int ranks = 2; ranks <= 3; ranks++) {
        for (int present : {8, 7}) {
            same_as_direct<lane_total>(ranks, nullptr,
                                       sum_case{&crl_allreduce_tree, 8, present, 1003, false});
        }
    }
}

TEST_P(CommWireOnCuda, GathersAndScatters) {
    same_as_direct<shards>(3, nullptr, (int64_t)100);
}

INSTANTIATE_TEST_SUITE_P(Kinds, CommWireOnCuda,
                         testing::Values(&crl_wire_staged, &crl_wire_shared, &crl_wire_nccl),
                         [](const auto &kind) { return std::string(kind.param->name); });
