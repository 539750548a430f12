/* SPDX-License-Identifier: Apache-2.0 */
/* Cost cards, odd deals of lanes, refusals and memory of the all-reduces, over threads. */
#include <atomic>

#include <gtest/gtest.h>

#include "engine/base/registry.h"
#include "tests/comm/conformance.h"

using namespace comm_test;

namespace {

constexpr int64_t deadline_ns = 30000000000;

struct cost {
    int64_t messages, bytes;
};

/* Traffic of one all-reduce by member `me`, lanes dealt out evenly, one each. */
cost cost_of(const crl_allreduce_algorithm *algorithm, int ranks, int64_t count,
             int64_t segment_bytes) {
    std::vector<cost> costs((size_t)ranks);
    const crl_status status =
        launch(&crl_transport_local, ranks, deadline_ns, [&](crl_comm *comm) -> crl_status {
            const crl_group group = {comm, nullptr, ranks, comm->rank, 0};
            std::vector<int> first;
            for (int i = 0; i <= ranks; i++) {
                first.push_back(i);
            }
            crl_allreduce_config config = {};
            config.group = &group;
            config.reduce = plain_reduce();
            config.max_count = count;
            config.segment_bytes = segment_bytes;
            config.lanes = 16;
            config.lane_first = first.data();
            std::vector<float> data((size_t)count, 1);
            crl_lane_node node = {comm->rank, 1, data.data()};
            crl_allreduce *allreduce = nullptr;
            CRL_TRY(algorithm->create(&allreduce, &config));
            crl_status done = algorithm->start(allreduce, &node, 1, nullptr, count);
            if (done == CRL_STATUS_OK) {
                done = crl_allreduce_wait(algorithm, allreduce, comm, "sum");
            }
            algorithm->destroy(allreduce);
            CRL_TRY(done);
            costs[(size_t)comm->rank] = {comm->sent_messages, comm->sent_bytes};
            return CRL_STATUS_OK;
        });
    EXPECT_EQ(status, CRL_STATUS_OK) << crl_error_message();
    for (int i = 1; i < ranks; i++) {
        EXPECT_TRUE((ranks & (ranks - 1)) != 0 || costs[(size_t)i].bytes == costs[0].bytes);
    }
    return costs[0];
}

} // namespace

TEST(CommAllReduce, TreeCostsWhatItsCardSays) {
    for (int ranks = 1; ranks <= 8; ranks++) {
        const int64_t n = 16 * ranks * 10;
        const cost at = cost_of(&crl_allreduce_tree, ranks, n, 0);
        EXPECT_EQ(at.messages, (ranks - 1) * 2) << ranks;
        EXPECT_EQ(at.bytes, 4 * (ranks - 1) * n / ranks * 2) << ranks;
    }
}

TEST(CommAllReduce, RingCostsWhatItsCardSays) {
    for (int ranks = 1; ranks <= 8; ranks++) {
        const int64_t segments = 5, n = 16 * ranks * segments;
        const cost at = cost_of(&crl_allreduce_ring, ranks, n, 64);
        EXPECT_EQ(at.messages, 2 * (ranks - 1) * segments) << ranks;
        EXPECT_EQ(at.bytes, 4 * 2 * (ranks - 1) * n / ranks) << ranks;
    }
}

TEST(CommAllReduce, HalvingCostsWhatItsCardSays) {
    for (int levels = 0; levels <= 3; levels++) {
        const int ranks = 1 << levels;
        const int64_t n = 16 * ranks * 10;
        const cost at = cost_of(&crl_allreduce_halving, ranks, n, 0);
        EXPECT_EQ(at.messages, 2 * levels) << ranks;
        EXPECT_EQ(at.bytes, 4 * 2 * (ranks - 1) * n / ranks) << ranks;
    }
    /* 6 members: member 0 is one of two pairs folded into 4 */
    const int64_t n = 16 * 4 * 10;
    const cost at = cost_of(&crl_allreduce_halving, 6, n, 0);
    EXPECT_EQ(at.messages, 2 * 2 + 1);
    EXPECT_EQ(at.bytes, 4 * (2 * 3 * n / 4 + n));
}

/* Lanes dealt out in every uneven way over three members, the first one possibly without any. */
TEST(CommAllReduce, TreeIsCanonicalForEveryDeal) {
    const crl_status status =
        launch(&crl_transport_local, 3, deadline_ns, [](crl_comm *comm) -> crl_status {
            for (int present = 0; present <= 8; present++) {
                for (int a = 0; a <= present; a++) {
                    for (int b = a; b <= present; b++) {
                        CRL_TRY(check_allreduce(
                            comm,
                            {&crl_allreduce_tree, 8, present, 100, 0, true, {0, a, b, present}}));
                    }
                }
            }
            return CRL_STATUS_OK;
        });
    EXPECT_EQ(status, CRL_STATUS_OK) << crl_error_message();
}

TEST(CommAllReduce, HalvingIsCanonicalForPowersOfTwo) {
    for (int ranks : {2, 4, 8}) {
        const crl_status status =
            launch(&crl_transport_local, ranks, deadline_ns, [](crl_comm *comm) {
                return check_allreduce(comm, {&crl_allreduce_halving, 16, 16, 10007, 0, true, {}});
            });
        EXPECT_EQ(status, CRL_STATUS_OK) << crl_error_message();
    }
}

TEST(CommAllReduce, IsFoundByName) {
    for (const char *name : {"tree", "ring", "halving"}) {
        const void *found = nullptr;
        ASSERT_EQ(crl_registry_find(&found, crl_allreduce_algorithms, "all-reduce", name),
                  CRL_STATUS_OK);
        EXPECT_STREQ(static_cast<const crl_allreduce_algorithm *>(found)->name, name);
    }
}

TEST(CommAllReduce, RefusesWhatMakesNoSense) {
    crl_comm comm = {};
    crl_group group = {&comm, nullptr, 2, 0, 0};
    const int good[] = {0, 2, 4}, bad[] = {0, 3, 2};
    for (const void *const *row = crl_allreduce_algorithms; *row != nullptr; row++) {
        const auto *algorithm = static_cast<const crl_allreduce_algorithm *>(*row);
        crl_allreduce_config config = {};
        config.group = &group;
        config.reduce = plain_reduce();
        config.max_count = 10;
        config.lanes = 3;
        config.lane_first = good;
        crl_allreduce *allreduce = nullptr;
        EXPECT_EQ(algorithm->create(&allreduce, &config), CRL_STATUS_INVALID);
        EXPECT_STREQ(crl_error_message(),
                     "all-reduce: 3 lanes, expected a power of two up to 65536");
        config.lanes = 4;
        config.lane_first = bad;
        EXPECT_EQ(algorithm->create(&allreduce, &config), CRL_STATUS_INVALID);
        config.lane_first = good;
        config.channel = 65534;
        EXPECT_EQ(algorithm->create(&allreduce, &config), CRL_STATUS_INVALID);
        config.channel = 0;
        config.max_count = INT64_MAX;
        EXPECT_EQ(algorithm->create(&allreduce, &config), CRL_STATUS_INVALID);
        config.max_count = 10;
        ASSERT_EQ(algorithm->create(&allreduce, &config), CRL_STATUS_OK);
        float data[16] = {0};
        crl_lane_node node[2] = {{0, 2, data}, {2, 1, data}};
        EXPECT_EQ(algorithm->start(allreduce, node, 1, nullptr, 11), CRL_STATUS_INVALID);
        EXPECT_STREQ(crl_error_message(), "all-reduce: 11 elements, expected 0 to 10");
        EXPECT_EQ(algorithm->start(allreduce, node, 2, nullptr, 10), CRL_STATUS_INVALID);
        EXPECT_STREQ(crl_error_message(), "all-reduce: 2 nodes, lanes 0 to 1 have 1");
        EXPECT_EQ(algorithm->start(allreduce, node, 0, data, 10), CRL_STATUS_INVALID);
        EXPECT_EQ(algorithm->start(allreduce, &node[1], 1, nullptr, 10), CRL_STATUS_INVALID);
        EXPECT_STREQ(crl_error_message(), "all-reduce: node 0 is lanes 2+1, expected 0+2");
        algorithm->destroy(allreduce);
        algorithm->destroy(nullptr);
    }
}

TEST(CommAllReduce, AllocatesNothingAfterCreate) {
    for (const void *const *row = crl_allreduce_algorithms; *row != nullptr; row++) {
        const auto *algorithm = static_cast<const crl_allreduce_algorithm *>(*row);
        crl_alloc_watch watch = {};
        crl_alloc_watch *before = crl_alloc_attach(&watch);
        std::atomic<int64_t> grown{0};
        const crl_status status =
            launch(&crl_transport_local, 4, deadline_ns, [&](crl_comm *comm) -> crl_status {
                const crl_group group = {comm, nullptr, 4, comm->rank, 0};
                const int first[] = {0, 1, 2, 3, 4};
                crl_allreduce_config config = {};
                config.group = &group;
                config.reduce = plain_reduce();
                config.max_count = 5000;
                config.segment_bytes = 256;
                config.lanes = 4;
                config.lane_first = first;
                crl_allreduce *allreduce = nullptr;
                CRL_TRY(algorithm->create(&allreduce, &config));
                std::vector<float> data(5000, 1);
                int64_t allocations = 0;
                crl_status done = CRL_STATUS_OK;
                for (int step = 0; step < 10 && done == CRL_STATUS_OK; step++) {
                    crl_lane_node node = {comm->rank, 1, data.data()};
                    done = algorithm->start(allreduce, &node, 1, nullptr, 5000);
                    if (done == CRL_STATUS_OK) {
                        done = crl_allreduce_wait(algorithm, allreduce, comm, "sum");
                    }
                    if (done == CRL_STATUS_OK) {
                        done = crl_barrier(&group);
                    }
                    if (step == 0) {
                        allocations = watch.allocations;
                        done = done == CRL_STATUS_OK ? crl_barrier(&group) : done;
                    }
                }
                grown += watch.allocations - allocations;
                done = done == CRL_STATUS_OK ? crl_barrier(&group) : done;
                algorithm->destroy(allreduce);
                CRL_TRY(done);
                return CRL_STATUS_OK;
            });
        crl_alloc_attach(before);
        ASSERT_EQ(status, CRL_STATUS_OK) << crl_error_message();
        EXPECT_EQ(grown, 0) << algorithm->name;
        EXPECT_EQ(watch.live_bytes, 0) << algorithm->name;
    }
}

/* With lent scratch of scratch_bytes: the same sums, nothing written beyond it. */
TEST(CommAllReduce, StaysWithinLentScratch) {
    for (int ranks = 1; ranks <= 8; ranks++) {
        const crl_status status =
            launch(&crl_transport_local, ranks, deadline_ns, [](crl_comm *comm) -> crl_status {
                for (const void *const *row = crl_allreduce_algorithms; *row != nullptr; row++) {
                    const auto *algorithm = static_cast<const crl_allreduce_algorithm *>(*row);
                    for (int64_t count : {1, 17, 1000}) {
                        allreduce_case at = {algorithm, 8, 7, count, 128, algorithm->canonical, {}};
                        at.lend_scratch = true;
                        CRL_TRY(check_allreduce(comm, at));
                    }
                }
                return CRL_STATUS_OK;
            });
        EXPECT_EQ(status, CRL_STATUS_OK) << crl_error_message();
    }
}

/* The n-th allocation fails, for every n until none does: an error on all ranks, nothing lost. */
TEST(CommAllReduce, SurvivesEveryFailingAllocation) {
    for (const void *const *row = crl_allreduce_algorithms; *row != nullptr; row++) {
        const auto *algorithm = static_cast<const crl_allreduce_algorithm *>(*row);
        bool passed = false;
        for (int64_t n = 1; !passed; n++) {
            ASSERT_LT(n, 1000);
            crl_alloc_watch watch = {};
            watch.fail_at = n;
            crl_alloc_watch *before = crl_alloc_attach(&watch);
            const crl_status status =
                launch(&crl_transport_local, 3, deadline_ns, [&](crl_comm *comm) {
                    return check_allreduce(comm, {algorithm, 4, 4, 1000, 64, false, {}});
                });
            crl_alloc_attach(before);
            ASSERT_EQ(watch.live_bytes, 0) << algorithm->name << " " << n;
            passed = status == CRL_STATUS_OK;
            if (!passed) {
                ASSERT_EQ(status, CRL_STATUS_NOMEM) << crl_error_message();
            }
        }
    }
}
