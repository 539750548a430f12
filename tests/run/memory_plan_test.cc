/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/run/memory_plan.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <vector>

#include "engine/base/alloc.h"

static void expect_disjoint(const std::vector<crl_lifetime> &items, size_t peak) {
    for (size_t a = 0; a < items.size(); a++) {
        EXPECT_EQ(items[a].offset % CRL_ALIGN_BYTES, 0u);
        EXPECT_LE(items[a].offset + items[a].bytes, peak);
        for (size_t b = a + 1; b < items.size(); b++) {
            const bool together =
                items[a].first <= items[b].last && items[b].first <= items[a].last;
            const bool overlap = items[a].offset < items[b].offset + items[b].bytes &&
                                 items[b].offset < items[a].offset + items[a].bytes;
            EXPECT_FALSE(together && overlap && items[a].bytes && items[b].bytes)
                << "items " << a << " and " << b;
        }
    }
}

/* What must be alive at once is a lower bound of any plan. */
static size_t least_peak(const std::vector<crl_lifetime> &items) {
    size_t most = 0;
    for (const crl_lifetime &at : items) {
        size_t alive = 0;
        for (const crl_lifetime &other : items) {
            if (other.first <= at.first && at.first <= other.last) {
                alive += crl_memory_round(other.bytes);
            }
        }
        most = std::max(most, alive);
    }
    return most;
}

TEST(RunMemoryPlan, NeverOverlapsWhatLivesTogether) {
    const unsigned seed = std::random_device()();
    SCOPED_TRACE("seed " + std::to_string(seed));
    std::mt19937 random(seed);
    for (int round = 0; round < 200; round++) {
        std::vector<crl_lifetime> items(1 + random() % 40);
        for (crl_lifetime &item : items) {
            const int first = (int)(random() % 50);
            item = {random() % 5 == 0 ? 0 : random() % 1000, first, first + (int)(random() % 20),
                    0};
        }
        size_t peak = 0;
        ASSERT_EQ(crl_memory_plan(items.data(), (int)items.size(), &peak), CRL_STATUS_OK);
        expect_disjoint(items, peak);
        EXPECT_GE(peak, least_peak(items));
    }
}

TEST(RunMemoryPlan, EqualSizesReachTheLowerBound) {
    std::mt19937 random(7);
    for (int round = 0; round < 100; round++) {
        std::vector<crl_lifetime> items(50);
        for (crl_lifetime &item : items) {
            const int first = (int)(random() % 100);
            item = {64, first, first + (int)(random() % 30), 0};
        }
        size_t peak = 0;
        ASSERT_EQ(crl_memory_plan(items.data(), (int)items.size(), &peak), CRL_STATUS_OK);
        EXPECT_EQ(peak, least_peak(items));
    }
}

/* The rule without any haste: the largest first, each at the lowest free offset. */
static void plan_slowly(std::vector<crl_lifetime> *items) {
    std::vector<crl_lifetime *> order, placed;
    for (crl_lifetime &item : *items) {
        order.push_back(&item);
    }
    std::stable_sort(order.begin(), order.end(), [](const crl_lifetime *a, const crl_lifetime *b) {
        const size_t x = crl_memory_round(a->bytes), y = crl_memory_round(b->bytes);
        return x != y ? x > y : a->first < b->first;
    });
    for (crl_lifetime *item : order) {
        const size_t bytes = crl_memory_round(item->bytes);
        item->offset = 0;
        for (bool moved = bytes > 0; moved;) {
            moved = false;
            for (const crl_lifetime *other : placed) {
                const size_t end = other->offset + crl_memory_round(other->bytes);
                if (item->first <= other->last && other->first <= item->last &&
                    item->offset < end && other->offset < item->offset + bytes) {
                    item->offset = end;
                    moved = true;
                }
            }
        }
        if (bytes > 0) {
            placed.push_back(item);
        }
    }
}

TEST(RunMemoryPlan, FollowsTheRule) {
    const unsigned seed = std::random_device()();
    SCOPED_TRACE("seed " + std::to_string(seed));
    std::mt19937 random(seed);
    for (int round = 0; round < 300; round++) {
        std::vector<crl_lifetime> items(1 + random() % 120);
        const unsigned sizes = 1 + random() % 5, time = 1 + random() % 200;
        for (crl_lifetime &item : items) {
            const int first = (int)(random() % time);
            item = {50 * (random() % sizes) + random() % 30, first, first + (int)(random() % 20),
                    0};
        }
        std::vector<crl_lifetime> expected = items;
        plan_slowly(&expected);
        size_t peak = 0;
        ASSERT_EQ(crl_memory_plan(items.data(), (int)items.size(), &peak), CRL_STATUS_OK);
        for (size_t i = 0; i < items.size(); i++) {
            ASSERT_EQ(items[i].offset, expected[i].offset) << "round " << round << ", item " << i;
        }
    }
}

/* As 1F1B makes them: three blocks per micro-batch, four micro-batches in flight. */
TEST(RunMemoryPlan, ManyMicroBatchesNeedNoMoreThanAFew) {
    for (int micro_batches : {8, 100000}) {
        std::vector<crl_lifetime> items;
        for (int m = 0; m < micro_batches; m++) {
            for (size_t bytes : {640, 64, 6400}) {
                items.push_back({bytes, 2 * m, 2 * m + 7, 0});
            }
        }
        size_t peak = 0;
        ASSERT_EQ(crl_memory_plan(items.data(), (int)items.size(), &peak), CRL_STATUS_OK);
        EXPECT_EQ(peak, 4u * (640 + 64 + 6400));
    }
}

TEST(RunMemoryPlan, IsAFunctionOfItsInput) {
    std::vector<crl_lifetime> a = {{100, 0, 3, 0}, {200, 1, 2, 0}, {100, 2, 5, 0}}, b = a;
    size_t peak_a = 0, peak_b = 0;
    ASSERT_EQ(crl_memory_plan(a.data(), 3, &peak_a), CRL_STATUS_OK);
    ASSERT_EQ(crl_memory_plan(b.data(), 3, &peak_b), CRL_STATUS_OK);
    EXPECT_EQ(peak_a, peak_b);
    for (int i = 0; i < 3; i++) {
        EXPECT_EQ(a[i].offset, b[i].offset);
    }
}

TEST(RunMemoryPlan, RefusesSizesThatOverflow) {
    std::vector<crl_lifetime> items = {{SIZE_MAX - 100, 0, 1, 0}, {SIZE_MAX - 100, 0, 1, 0}};
    size_t peak = 0;
    EXPECT_EQ(crl_memory_plan(items.data(), 2, &peak), CRL_STATUS_INVALID);
}

TEST(RunMemoryPlan, NothingNeedsNothing) {
    size_t peak = 1;
    ASSERT_EQ(crl_memory_plan(nullptr, 0, &peak), CRL_STATUS_OK);
    EXPECT_EQ(peak, 0u);
}
