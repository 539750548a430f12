// SPDX-License-Identifier: Apache-2.0
#include "engine/base/thread.h"

#include <gtest/gtest.h>

#include "engine/base/alloc.h"

namespace {

struct Seen {
    int rank;
    crl_alloc_watch *watch;
};

crl_status Look(void *argument) {
    auto *seen = static_cast<Seen *>(argument);
    *seen = {crl_error_rank(), crl_alloc_attached()};
    return CRL_STATUS_OK;
}

crl_status Fail(void *) {
    return CRL_FAIL(COMM, "peer 2: closed");
}

TEST(BaseThread, InheritsWatchAndRank) {
    crl_alloc_watch watch{};
    crl_alloc_attach(&watch);
    crl_error_set_rank(6);
    Seen seen{};
    crl_thread *thread = nullptr;
    ASSERT_EQ(crl_thread_start(&thread, Look, &seen), CRL_STATUS_OK);
    EXPECT_EQ(crl_thread_join(thread), CRL_STATUS_OK);
    crl_error_set_rank(-1);
    crl_alloc_attach(nullptr);
    EXPECT_EQ(seen.rank, 6);
    EXPECT_EQ(seen.watch, &watch);
    EXPECT_EQ(watch.live_bytes, 0);
}

TEST(BaseThread, JoinBringsTheFailureOver) {
    crl_error_clear();
    crl_error_set_rank(2);
    crl_thread *thread = nullptr;
    ASSERT_EQ(crl_thread_start(&thread, Fail, nullptr), CRL_STATUS_OK);
    crl_error_set_rank(-1);
    EXPECT_EQ(crl_thread_join(thread), CRL_STATUS_COMM);
    EXPECT_STREQ(crl_error_message(), "peer 2: closed");
    EXPECT_EQ(crl_error_get()->rank, 2);
    EXPECT_EQ(crl_thread_join(nullptr), CRL_STATUS_OK);
}

TEST(BaseThread, StartFailsWithoutMemory) {
    crl_alloc_watch watch{};
    crl_alloc_attach(&watch);
    watch.fail_at = 1;
    crl_thread *thread = nullptr;
    EXPECT_EQ(crl_thread_start(&thread, Fail, nullptr), CRL_STATUS_NOMEM);
    EXPECT_EQ(thread, nullptr);
    crl_alloc_attach(nullptr);
}

TEST(BaseThread, ClockOnlyGoesForward) {
    const int64_t begin = crl_clock_ns();
    crl_clock_sleep_ns(1000000);
    EXPECT_GE(crl_clock_ns() - begin, 1000000);
    crl_clock_sleep_ns(-1);
    EXPECT_GE(crl_cpu_count(), 1);
}

} // namespace
