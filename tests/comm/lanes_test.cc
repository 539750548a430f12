/* SPDX-License-Identifier: Apache-2.0 */
#include <gtest/gtest.h>

#include "engine/comm/collective_internal.h"
#include "tests/comm/comm_test_util.h"

using namespace comm_test;

TEST(CommLanes, StackHoldsTheCanonicalNodes) {
    for (int first = 0; first < 20; first++) {
        for (int last = first; last <= 40; last++) {
            crl_lane_node node[CRL_MAX_LANE_NODES], expected[CRL_MAX_LANE_NODES];
            float value[64] = {0};
            int nodes = 0;
            for (int lane = first; lane < last; lane++) {
                value[nodes] = (float)lane;
                ASSERT_EQ(crl_lane_push_node(node, &nodes, {lane, 1, &value[nodes]}, 1,
                                             plain_reduce(), nullptr),
                          CRL_STATUS_OK);
            }
            ASSERT_EQ(crl_lane_split(first, last, expected), nodes) << first << ".." << last;
            float sum = 0;
            for (int i = 0; i < nodes; i++) {
                EXPECT_EQ(node[i].first, expected[i].first);
                EXPECT_EQ(node[i].count, expected[i].count);
                EXPECT_EQ(node[i].first % node[i].count, 0);
                EXPECT_EQ(node[i].data, &value[i]);
                sum += node[i].data[0];
            }
            EXPECT_EQ(sum, (float)((last - first) * (first + last - 1) / 2));
        }
    }
}

TEST(CommLanes, StackFromLaneZeroIsNoDeeperThanTheTree) {
    for (int lanes = 1; lanes <= 1024; lanes++) {
        crl_lane_node node[CRL_MAX_LANE_NODES];
        float value = 0;
        int nodes = 0, deepest = 0, levels = 1;
        for (int lane = 0; lane < lanes; lane++) {
            deepest = std::max(deepest, nodes + 1);
            ASSERT_EQ(
                crl_lane_push_node(node, &nodes, {lane, 1, &value}, 0, plain_reduce(), nullptr),
                CRL_STATUS_OK);
        }
        while (1 << levels <= lanes) {
            levels++;
        }
        EXPECT_LE(deepest, levels) << lanes;
    }
}

TEST(CommLanes, SplitOfTheMostLanesFits) {
    crl_lane_node node[CRL_MAX_LANE_NODES];
    EXPECT_EQ(crl_lane_split(1, CRL_MAX_LANES - 1, node), 30);
    EXPECT_EQ(crl_lane_split(0, CRL_MAX_LANES, node), 1);
}

TEST(CommLanes, ChunksCoverAlignedAndInOrder) {
    for (int64_t count : {0, 1, 15, 16, 17, 31, 1000, 100003}) {
        for (int parts = 1; parts <= 9; parts++) {
            EXPECT_EQ(crl_chunk_begin(count, parts, 0), 0);
            EXPECT_EQ(crl_chunk_begin(count, parts, parts), count);
            for (int i = 0; i < parts; i++) {
                const int64_t begin = crl_chunk_begin(count, parts, i);
                const int64_t end = crl_chunk_begin(count, parts, i + 1);
                EXPECT_LE(begin, end);
                EXPECT_LE(end - begin, crl_chunk_most(count, parts));
                EXPECT_TRUE(begin % CRL_CHUNK_ALIGN == 0 || begin == count);
            }
        }
    }
}
