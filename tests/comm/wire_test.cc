/* SPDX-License-Identifier: Apache-2.0 */
/* Wires over a device that does its work late: the bits of messages in host memory. */
#include <gtest/gtest.h>

#include "engine/base/registry.h"
#include "engine/kernels/kernels.h"
#include "tests/comm/wire_device.h"
#include "tests/comm/wire_scenarios.h"

using namespace comm_test;

namespace {

const wire_bench direct = {&crl_device_cpu, plain_reduce(), nullptr};

class CommWire : public testing::TestWithParam<const crl_wire_kind *> {
  protected:
    void SetUp() override {
        bench = {late(), late_reduce(), GetParam()};
        live = late_device::get().live();
    }
    void TearDown() override {
        late_device::get().hang(false);
        EXPECT_EQ(late_device::get().live(), live); /* everything given back */
    }
    /* The same bits on every rank as without a device, whatever the order of the device's work. */
    template <class Scenario, class... Arguments>
    void same_as_direct(int ranks, uint32_t seeds, Arguments... arguments) {
        outcome_bits expected, got;
        ASSERT_EQ(collect<Scenario>(ranks, direct, nullptr, &expected, arguments...), CRL_STATUS_OK)
            << crl_error_message();
        for (uint32_t seed = 0; seed < seeds; seed++) {
            late_device::get().seed(seed);
            ASSERT_EQ(collect<Scenario>(ranks, bench, nullptr, &got, arguments...), CRL_STATUS_OK)
                << crl_error_message();
            for (int rank = 0; rank < ranks; rank++) {
                const auto &a = expected[(size_t)rank], &b = got[(size_t)rank];
                ASSERT_EQ(a.size(), b.size());
                ASSERT_TRUE(a.empty() || memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0)
                    << GetParam()->name << ", rank " << rank << ", seed " << seed;
            }
        }
    }

    wire_bench bench;
    int64_t live;
};

} // namespace

TEST_P(CommWire, CarriesAPipelineBothWays) {
    for (int ranks = 2; ranks <= 5; ranks++) {
        same_as_direct<chain>(ranks, 6, (int64_t)1000);
    }
    same_as_direct<chain>(3, 1, (int64_t)0);
}

TEST_P(CommWire, CarriesManyTagsAndSizesInAnyOrder) {
    for (int ranks = 2; ranks <= 4; ranks++) {
        same_as_direct<crowd>(ranks, 3, false);
        same_as_direct<crowd>(ranks, 3, true);
    }
}

TEST_P(CommWire, SumsAreTheSameBits) {
    for (const void *const *row = crl_allreduce_algorithms; *row != nullptr; row++) {
        const auto *algorithm = static_cast<const crl_allreduce_algorithm *>(*row);
        for (int ranks = 2; ranks <= 5; ranks++) {
            for (int present : {8, 7, 1, 0}) {
                const sum_case at = {algorithm, 8, present, 1003, present == 7};
                same_as_direct<lane_total>(ranks, 1, at);
            }
        }
    }
}

TEST_P(CommWire, GathersAndScatters) {
    for (int ranks = 1; ranks <= 4; ranks++) {
        same_as_direct<shards>(ranks, 2, (int64_t)100);
    }
}

INSTANTIATE_TEST_SUITE_P(Kinds, CommWire, testing::Values(&crl_wire_staged, &crl_wire_shared),
                         [](const auto &kind) { return std::string(kind.param->name); });
