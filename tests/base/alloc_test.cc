// SPDX-License-Identifier: Apache-2.0
#include "engine/base/alloc.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <cstring>
#include <thread>
#include <vector>

#include "engine/base/thread.h"

namespace {

class BaseAlloc : public ::testing::Test {
  protected:
    void SetUp() override { crl_alloc_attach(&watch); }
    void TearDown() override {
        crl_alloc_attach(nullptr);
        EXPECT_EQ(watch.live_bytes, 0);
        EXPECT_EQ(watch.allocations, watch.frees);
    }
    crl_alloc_watch watch{};
};

TEST_F(BaseAlloc, GivesZeroedAlignedMemory) {
    for (size_t count : {size_t(0), size_t(1), size_t(63), size_t(64), size_t(1000)}) {
        unsigned char *block = nullptr;
        ASSERT_EQ(crl_alloc(&block, count, 3), CRL_STATUS_OK);
        ASSERT_NE(block, nullptr);
        EXPECT_EQ(uintptr_t(block) % CRL_ALIGN_BYTES, 0u);
        for (size_t i = 0; i < 3 * count; ++i) {
            ASSERT_EQ(block[i], 0);
            block[i] = 0xAA; // the next round may get it again
        }
        crl_free(block);
    }
}

TEST_F(BaseAlloc, CountsLiveAndPeakBytes) {
    float *a = nullptr, *b = nullptr;
    ASSERT_EQ(crl_alloc(&a, 100, sizeof *a), CRL_STATUS_OK);
    ASSERT_EQ(crl_alloc(&b, 50, sizeof *b), CRL_STATUS_OK);
    EXPECT_EQ(watch.live_bytes, 600);
    crl_free(a);
    EXPECT_EQ(watch.live_bytes, 200);
    EXPECT_EQ(watch.peak_bytes, 600);
    EXPECT_EQ(watch.allocations, 2);
    EXPECT_EQ(watch.frees, 1);
    crl_free(b);
    crl_free(nullptr);
    EXPECT_EQ(watch.frees, 2);
}

TEST_F(BaseAlloc, FailsTheNthRequestOnce) {
    watch.fail_at = 3;
    char *block[5] = {};
    for (int i = 0; i < 5; ++i) {
        EXPECT_EQ(crl_alloc(&block[i], 8, 1), i == 2 ? CRL_STATUS_NOMEM : CRL_STATUS_OK) << i;
    }
    EXPECT_EQ(block[2], nullptr);
    EXPECT_EQ(watch.fail_at, 0);
    for (char *one : block) {
        crl_free(one);
    }
}

TEST_F(BaseAlloc, RefusesSizesThatOverflow) {
    int *block = nullptr;
    EXPECT_EQ(crl_alloc(&block, SIZE_MAX / 2, sizeof *block), CRL_STATUS_INVALID);
    EXPECT_NE(std::strstr(crl_error_message(), "memory: size overflows"), nullptr);
    EXPECT_EQ(crl_alloc(&block, SIZE_MAX - 8, 1), CRL_STATUS_NOMEM);
    EXPECT_EQ(crl_alloc(&block, SIZE_MAX / 2 - 8, 1), CRL_STATUS_NOMEM);
    EXPECT_EQ(block, nullptr);
    size_t size = 7;
    EXPECT_EQ(crl_size_add(&size, SIZE_MAX, 1, "table"), CRL_STATUS_INVALID);
    EXPECT_EQ(crl_size_mul(&size, SIZE_MAX, 2, "table"), CRL_STATUS_INVALID);
    EXPECT_EQ(size, 7u);
    EXPECT_EQ(crl_size_mul(&size, 6, 7, "table"), CRL_STATUS_OK);
    EXPECT_EQ(size, 42u);
}

TEST_F(BaseAlloc, ReallocKeepsAndZeroes) {
    int *list = nullptr;
    ASSERT_EQ(crl_realloc(&list, 0, 4, sizeof *list), CRL_STATUS_OK);
    for (int i = 0; i < 4; ++i) {
        EXPECT_EQ(list[i], 0);
        list[i] = i + 1;
    }
    ASSERT_EQ(crl_realloc(&list, 4, 100, sizeof *list), CRL_STATUS_OK);
    EXPECT_EQ(list[3], 4);
    for (int i = 4; i < 100; ++i) {
        EXPECT_EQ(list[i], 0);
    }
    int *before = list;
    watch.fail_at = 1;
    EXPECT_EQ(crl_realloc(&list, 100, 200, sizeof *list), CRL_STATUS_NOMEM);
    EXPECT_EQ(list, before);
    EXPECT_EQ(list[0], 1);
    ASSERT_EQ(crl_realloc(&list, 100, 2, sizeof *list), CRL_STATUS_OK);
    EXPECT_EQ(list[1], 2);
    EXPECT_EQ(watch.live_bytes, 8);
    crl_free(list);
}

TEST_F(BaseAlloc, CopiesAndFormatsTexts) {
    char *text = nullptr, *none = reinterpret_cast<char *>(&watch);
    ASSERT_EQ(crl_alloc_format(&text, "%s-%d", "stage", 12), CRL_STATUS_OK);
    EXPECT_STREQ(text, "stage-12");
    char *copy = nullptr;
    ASSERT_EQ(crl_alloc_text(&copy, text), CRL_STATUS_OK);
    EXPECT_STREQ(copy, "stage-12");
    ASSERT_EQ(crl_alloc_text(&none, nullptr), CRL_STATUS_OK);
    EXPECT_EQ(none, nullptr);
    crl_free(text);
    crl_free(copy);
}

crl_status FreeArgument(void *argument) {
    crl_alloc_watch other{};
    crl_alloc_attach(&other);
    crl_free(argument);
    return other.frees == 0 ? CRL_STATUS_OK : CRL_FAIL(INTERNAL, "counted under the wrong watch");
}

TEST_F(BaseAlloc, ABlockIsCountedUnderItsOwnWatch) {
    char *block = nullptr;
    ASSERT_EQ(crl_alloc(&block, 100, 1), CRL_STATUS_OK);
    crl_thread *thread = nullptr;
    ASSERT_EQ(crl_thread_start(&thread, FreeArgument, block), CRL_STATUS_OK);
    EXPECT_EQ(crl_thread_join(thread), CRL_STATUS_OK) << crl_error_message();
    EXPECT_EQ(watch.live_bytes, 0);
}

crl_status Churn(void *) {
    for (int i = 0; i < 2000; ++i) {
        char *block = nullptr;
        CRL_TRY(crl_alloc(&block, size_t(i % 64), 1));
        crl_free(block);
    }
    return CRL_STATUS_OK;
}

TEST_F(BaseAlloc, ThreadsShareAWatch) {
    crl_thread *thread[4] = {};
    for (auto &one : thread) {
        ASSERT_EQ(crl_thread_start(&one, Churn, nullptr), CRL_STATUS_OK);
    }
    for (auto *one : thread) {
        EXPECT_EQ(crl_thread_join(one), CRL_STATUS_OK);
    }
    EXPECT_EQ(watch.allocations, 4 * 2000 + 4);
}

} // namespace
