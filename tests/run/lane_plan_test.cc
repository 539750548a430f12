// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <random>
#include <string>
#include <vector>

#include "engine/run/lane_plan.h"

namespace {

struct Plan {
    Plan(int lanes, int micro_batches, crl_range own, const std::vector<int> &order) {
        const crl_lane_plan_config config = {lanes, micro_batches, own, order.data()};
        status = crl_lane_plan_create(&plan, &config);
    }
    ~Plan() { crl_lane_plan_destroy(plan); }
    Plan(const Plan &) = delete;
    Plan &operator=(const Plan &) = delete;
    crl_lane_plan *plan = nullptr;
    crl_status status;
};

std::vector<int> Ascending(int first, int last) {
    std::vector<int> order((size_t)(last - first));
    std::iota(order.begin(), order.end(), first);
    return order;
}

// The sum as an expression: buffers hold texts, and the merges write brackets.
std::vector<std::string> Expressions(const crl_lane_plan &plan, const std::vector<int> &order) {
    std::vector<std::string> buffer((size_t)plan.buffers);
    for (int m : order) {
        const crl_lane_step &step = plan.step[m - plan.own.first];
        std::string &at = buffer[(size_t)step.buffer];
        at = step.begins ? std::to_string(m) : at + " " + std::to_string(m);
        for (int i = step.merge; i < step.merge + step.merges; i++) {
            std::string &left = buffer[(size_t)plan.merge[i].left];
            left = "(" + left + "+" + buffer[(size_t)plan.merge[i].right] + ")";
            buffer[(size_t)plan.merge[i].right] = "freed";
        }
    }
    std::vector<std::string> sums;
    for (int i = 0; i < plan.nodes; i++) {
        sums.push_back(buffer[(size_t)plan.node[i].buffer]);
    }
    return sums;
}

} // namespace

TEST(RunLanePlan, AscendingLanesNeedFewBuffers) {
    const std::vector<int> order = Ascending(0, 16);
    Plan p(8, 16, {0, 16}, order);
    ASSERT_EQ(p.status, CRL_STATUS_OK);
    EXPECT_EQ(p.plan->buffers, 4); // log2(8) + 1
    EXPECT_EQ(Expressions(*p.plan, order),
              std::vector<std::string>{
                  "(((0 1+2 3)+(4 5+6 7))+((8 9+10 11)+(12 13+14 15)))"});
}

TEST(RunLanePlan, AnyOrderOfLanesGivesTheSameSum) {
    const unsigned seed = std::random_device{}();
    SCOPED_TRACE("seed " + std::to_string(seed));
    std::mt19937 random(seed);
    for (int i = 0; i < 300; i++) {
        const int lanes = 1 << random() % 5;
        const int micro_batches = lanes + (int)(random() % 20);
        const int replicas = (int)(random() % (unsigned)lanes) + 1;
        const int replica = (int)(random() % (unsigned)replicas);
        const crl_range own = crl_replica_micro_batches(replica, replicas, lanes, micro_batches);
        const std::vector<int> ascending = Ascending(own.first, own.last);
        // Deal the lanes' micro-batches out at random, each lane in order.
        std::vector<int> lane_of, order(ascending.size());
        for (int m : ascending) {
            lane_of.push_back(crl_lane_of(m, lanes, micro_batches));
        }
        std::vector<int> turns = lane_of;
        std::shuffle(turns.begin(), turns.end(), random);
        std::vector<int> next(32, 0);
        for (size_t k = 0; k < turns.size(); k++) {
            const crl_range lane = crl_lane_micro_batches(turns[k], lanes, micro_batches);
            order[k] = lane.first + next[(size_t)turns[k]]++;
        }
        Plan straight(lanes, micro_batches, own, ascending), mixed(lanes, micro_batches, own, order);
        ASSERT_EQ(straight.status, CRL_STATUS_OK);
        ASSERT_EQ(mixed.status, CRL_STATUS_OK) << crl_error_message();
        EXPECT_EQ(Expressions(*mixed.plan, order), Expressions(*straight.plan, ascending));
        EXPECT_EQ(mixed.plan->node[0].buffer, 0);
    }
}

TEST(RunLanePlan, WhatIsLeftAreTheNodesOfTheTree) {
    const std::vector<int> order = Ascending(3, 8);
    Plan p(8, 8, {3, 8}, order);
    ASSERT_EQ(p.status, CRL_STATUS_OK);
    ASSERT_EQ(p.plan->nodes, 2);
    EXPECT_EQ(p.plan->node[0].first, 3);
    EXPECT_EQ(p.plan->node[0].count, 1);
    EXPECT_EQ(p.plan->node[1].first, 4);
    EXPECT_EQ(p.plan->node[1].count, 4);
}

TEST(RunLanePlan, RefusesALaneOutOfOrder) {
    Plan p(2, 4, {0, 4}, {0, 3, 2, 1});
    EXPECT_EQ(p.status, CRL_STATUS_INVALID);
    EXPECT_STREQ(crl_error_message(), "weight gradient of micro-batch 3 comes before that of 2 of "
                                      "its lane, expected ascending order");
}

TEST(RunLanePlan, NothingToDoNeedsOneBuffer) {
    Plan p(2, 4, {4, 4}, {});
    ASSERT_EQ(p.status, CRL_STATUS_OK);
    EXPECT_EQ(p.plan->buffers, 1);
    EXPECT_EQ(p.plan->nodes, 0);
}
