// SPDX-License-Identifier: Apache-2.0
// Numbers from a device that is late, and from the host.
#include "engine/run/readback.h"

#include <gtest/gtest.h>

#include "tests/comm/wire_device.h"

namespace {

using comm_test::late;
using comm_test::late_device;

// What is queued before the copy is in it, what is queued after it is not.
TEST(RunReadback, HasWhatTheDeviceHadMadeByThen) {
    const int64_t before = late_device::get().live();
    crl_stream *stream = nullptr;
    double number[3] = {1, 2, 3};
    ASSERT_EQ(crl_device_stream_create(late(), &stream), CRL_STATUS_OK);
    crl_readback r = {};
    ASSERT_EQ(crl_readback_init(&r, late(), stream, sizeof number), CRL_STATUS_OK);
    const auto *data = static_cast<const double *>(r.data);
    for (int round = 0; round < 20; round++) {
        late_device::get().seed(uint32_t(round));
        bool done = false;
        late_device::get().push(stream, [&] { number[1] = round; });
        ASSERT_EQ(crl_readback_start(&r, number, 2 * sizeof *number), CRL_STATUS_OK);
        late_device::get().push(stream, [&] { number[1] = -1; });
        while (!done) {
            ASSERT_EQ(crl_readback_test(&r, &done), CRL_STATUS_OK);
        }
        EXPECT_EQ(data[0], 1);
        EXPECT_EQ(data[1], round);
        EXPECT_EQ(data[2], 0) << "more than was asked for";
    }
    crl_device_stream_destroy(late(), stream);
    crl_readback_fini(&r);
    EXPECT_EQ(late_device::get().live(), before);
}

TEST(RunReadback, IsNotDoneBeforeTheDeviceIs) {
    crl_stream *stream = nullptr;
    double number = 5;
    bool done = true;
    ASSERT_EQ(crl_device_stream_create(late(), &stream), CRL_STATUS_OK);
    crl_readback r = {};
    ASSERT_EQ(crl_readback_init(&r, late(), stream, sizeof number), CRL_STATUS_OK);
    late_device::get().hang(true);
    ASSERT_EQ(crl_readback_start(&r, &number, sizeof number), CRL_STATUS_OK);
    ASSERT_EQ(crl_readback_test(&r, &done), CRL_STATUS_OK);
    EXPECT_FALSE(done);
    late_device::get().hang(false);
    crl_device_stream_destroy(late(), stream);
    ASSERT_EQ(crl_readback_test(&r, &done), CRL_STATUS_OK);
    EXPECT_TRUE(done);
    crl_readback_fini(&r);
}

TEST(RunReadback, OfTheHostIsDoneAtOnce) {
    const double number = 7;
    bool done = false;
    crl_readback r = {};
    crl_readback_fini(&r); // one that is all zero
    ASSERT_EQ(crl_readback_init(&r, &crl_device_cpu, nullptr, sizeof number), CRL_STATUS_OK);
    ASSERT_EQ(crl_readback_start(&r, &number, sizeof number), CRL_STATUS_OK);
    ASSERT_EQ(crl_readback_test(&r, &done), CRL_STATUS_OK);
    EXPECT_TRUE(done);
    EXPECT_EQ(*static_cast<const double *>(r.data), 7);
    crl_readback_fini(&r);
}

} // namespace
