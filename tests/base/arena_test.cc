// SPDX-License-Identifier: Apache-2.0
#include "engine/base/arena.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <cstring>
#include <random>
#include <vector>

#include "engine/base/alloc.h"

namespace {

TEST(BaseArena, ItemsAreZeroedAlignedAndApart) {
    crl_alloc_watch watch{};
    crl_alloc_attach(&watch);
    crl_arena arena{};
    std::mt19937 random(7);
    std::vector<std::pair<unsigned char *, size_t>> items;
    for (int i = 0; i < 3000; ++i) {
        const size_t bytes = i % 100 == 99 ? 300000 : random() % 200;
        unsigned char *item = nullptr;
        ASSERT_EQ(crl_arena_alloc(&arena, &item, bytes, 1), CRL_STATUS_OK);
        ASSERT_EQ(uintptr_t(item) % 16, 0u);
        for (size_t j = 0; j < bytes; ++j) {
            ASSERT_EQ(item[j], 0);
        }
        memset(item, i % 255 + 1, bytes);
        items.push_back({item, bytes});
    }
    for (size_t i = 0; i < items.size(); ++i) {
        for (size_t j = 0; j < items[i].second; ++j) {
            ASSERT_EQ(items[i].first[j], i % 255 + 1);
        }
    }
    EXPECT_LT(watch.allocations, 60); // by blocks, not by items
    crl_arena_fini(&arena);
    crl_arena_fini(&arena);
    EXPECT_EQ(watch.live_bytes, 0);
    crl_alloc_attach(nullptr);
}

TEST(BaseArena, KeepsTexts) {
    crl_arena arena{};
    const char *copy = nullptr, *formatted = nullptr;
    ASSERT_EQ(crl_arena_text(&arena, &copy, "wte"), CRL_STATUS_OK);
    ASSERT_EQ(crl_arena_format(&arena, &formatted, "h.%d.%s", 11, copy), CRL_STATUS_OK);
    EXPECT_STREQ(copy, "wte");
    EXPECT_STREQ(formatted, "h.11.wte");
    crl_arena_fini(&arena);
}

TEST(BaseArena, PassesFailuresOn) {
    crl_arena arena{};
    void *item = nullptr;
    EXPECT_EQ(crl_arena_alloc(&arena, &item, SIZE_MAX, 2), CRL_STATUS_INVALID);
    EXPECT_EQ(crl_arena_alloc(&arena, &item, SIZE_MAX, 1), CRL_STATUS_INVALID);
    crl_alloc_watch watch{};
    crl_alloc_attach(&watch);
    watch.fail_at = 1;
    EXPECT_EQ(crl_arena_alloc(&arena, &item, 1, 1), CRL_STATUS_NOMEM);
    EXPECT_EQ(crl_arena_alloc(&arena, &item, 1, 1), CRL_STATUS_OK);
    crl_arena_fini(&arena);
    crl_alloc_attach(nullptr);
}

} // namespace
