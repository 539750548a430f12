// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <cmath>

#include "engine/ir/machine.h"

namespace {

crl_machine sound() {
    crl_machine m = {};
    m.name = "toy";
    m.nodes = m.devices_per_node = 1;
    m.peak_flops_per_s = 1e9;
    m.efficiency = 0.5;
    m.half_flops = 1e6;
    m.memory_bytes_per_s = 1e8;
    m.launch_s = 0.25;
    return m;
}

} // namespace

TEST(IrMachine, AProductOfHalfFlopsReachesHalf) {
    crl_machine m = sound();
    m.launch_s = 0;
    EXPECT_DOUBLE_EQ(crl_machine_product_s(&m, 1e6), 2 * 1e6 / (1e9 * 0.5));
    EXPECT_NEAR(crl_machine_product_s(&m, 1e15) / (1e15 / (1e9 * 0.5)), 1, 1e-8);
}

TEST(IrMachine, NothingTakesLessThanItsLaunch) {
    const crl_machine m = sound();
    EXPECT_DOUBLE_EQ(crl_machine_traffic_s(&m, 0), 0.25);
    EXPECT_DOUBLE_EQ(crl_machine_traffic_s(&m, 1e8), 1.25);
    EXPECT_GT(crl_machine_product_s(&m, 1), 0.25);
}

TEST(IrMachine, ALinkWithoutBandwidthHasLatencyOnly) {
    const crl_link both = {0.5, 1e6}, latency = {0.5, 0};
    EXPECT_DOUBLE_EQ(crl_link_s(&both, 2e6), 2.5);
    EXPECT_DOUBLE_EQ(crl_link_s(&latency, 2e6), 0.5);
}

TEST(IrMachine, RefusesWhatNoPlannerCanReasonWith) {
    crl_machine m = sound();
    EXPECT_EQ(crl_machine_check(&m), CRL_STATUS_OK);
    m.nodes = 0;
    EXPECT_EQ(crl_machine_check(&m), CRL_STATUS_INVALID);
    EXPECT_STREQ(crl_error_message(), "machine toy: nodes is 0, expected 1 to 1e+30");
    m = sound();
    m.sum_overlap = 1.5;
    EXPECT_EQ(crl_machine_check(&m), CRL_STATUS_INVALID);
    EXPECT_STREQ(crl_error_message(), "machine toy: overlap of sums is 1.5, expected 0 to 1");
    m = sound();
    m.within.latency_s = NAN;
    EXPECT_EQ(crl_machine_check(&m), CRL_STATUS_INVALID);
}
