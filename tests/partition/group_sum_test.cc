// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include "partition/group_sum.h"

namespace {

crl_machine machine() {
    crl_machine m = {};
    m.within = {1e-6, 4e9};
    m.between = {1e-5, 1e9};
    return m;
}

} // namespace

TEST(PartitionGroupSum, NothingToSumAlone) {
    const crl_machine m = machine();
    EXPECT_EQ(crl_group_sum_s(&m, {1, 1}, 1e9), 0);
}

/* Four devices: 2 · 3 hops of a quarter each. */
TEST(PartitionGroupSum, RingGoesAroundTwice) {
    const crl_machine m = machine();
    EXPECT_DOUBLE_EQ(crl_group_ring_s(&m, {4, 1}, 8e9), 6 * (1e-6 + 2e9 / 4e9));
    EXPECT_DOUBLE_EQ(crl_group_ring_s(&m, {4, 2}, 8e9), 6 * (1e-5 + 2e9 / 1e9));
}

/* Four devices: a half, a quarter, a quarter, a half. */
TEST(PartitionGroupSum, HalvingHasFewerHops) {
    const crl_machine m = machine();
    EXPECT_DOUBLE_EQ(crl_group_halving_s(&m, {4, 1}, 8e9), 4 * 1e-6 + (4e9 + 2e9) * 2 / 4e9);
    /* A fifth one hands over everything first and gets everything back. */
    EXPECT_DOUBLE_EQ(crl_group_halving_s(&m, {5, 1}, 8e9),
                     4 * 1e-6 + (4e9 + 2e9) * 2 / 4e9 + 2 * (1e-6 + 8e9 / 4e9));
}

/* Two nodes of two: half a sum within, a sum of half between, half a sum within. */
TEST(PartitionGroupSum, NodesSumWithinAndBetween) {
    const crl_machine m = machine();
    EXPECT_DOUBLE_EQ(crl_group_nodes_s(&m, {4, 2}, 8e9),
                     2 * (1e-6 + 4e9 / 4e9) + 2 * (1e-5 + 2e9 / 1e9));
}

TEST(PartitionGroupSum, TakesTheFastest) {
    const crl_machine m = machine();
    EXPECT_EQ(crl_group_sum_s(&m, {4, 2}, 8e9), crl_group_nodes_s(&m, {4, 2}, 8e9));
    EXPECT_EQ(crl_group_sum_s(&m, {5, 1}, 8e9), crl_group_ring_s(&m, {5, 1}, 8e9));
    EXPECT_EQ(crl_group_sum_s(&m, {64, 1}, 8), crl_group_halving_s(&m, {64, 1}, 8));
}
