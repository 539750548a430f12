// SPDX-License-Identifier: Apache-2.0
#include "engine/device/device.h"

#include "engine/base/alloc.h"

#include <gtest/gtest.h>

#include <cstring>

namespace {

TEST(DeviceCpu, MemoryIsZeroedAlignedAndCounted) {
    crl_alloc_watch watch = {};
    crl_alloc_attach(&watch);
    char *x = nullptr;
    ASSERT_EQ(crl_device_cpu.probe(), CRL_STATUS_OK);
    ASSERT_EQ(crl_device_cpu.alloc(&x, 1000), CRL_STATUS_OK);
    EXPECT_EQ((uintptr_t)x % CRL_ALIGN_BYTES, 0u);
    for (int i = 0; i < 1000; i++)
        ASSERT_EQ(x[i], 0);
    EXPECT_EQ(watch.allocations, 1);
    crl_device_cpu.free(x);
    EXPECT_EQ(watch.live_bytes, 0);
    watch.fail_at = 1;
    EXPECT_EQ(crl_device_cpu.alloc(&x, 1000), CRL_STATUS_NOMEM);
    crl_alloc_attach(nullptr);
}

TEST(DeviceCpu, CopiesEvenOverlapping) {
    char x[] = "abcdef";
    ASSERT_EQ(crl_device_cpu.copy(nullptr, x + 1, x, 4), CRL_STATUS_OK);
    EXPECT_STREQ(x, "aabcdf");
    ASSERT_EQ(crl_device_cpu.copy(nullptr, nullptr, nullptr, 0), CRL_STATUS_OK);
}

TEST(DeviceCpu, HasNoStreamsAndDescribesItself) {
    EXPECT_EQ(crl_device_cpu.stream_create, nullptr);
    EXPECT_EQ(crl_device_cpu.stream_wait, nullptr);
    char text[128];
    crl_device_cpu_describe(text, sizeof text);
    EXPECT_NE(strstr(text, "caches"), nullptr) << text;
}

} // namespace
