// SPDX-License-Identifier: Apache-2.0
// Runs the kernels' tests on a GPU; 77 (skipped) and the reason where none can be used.
#include <gtest/gtest.h>

#include <cstdio>

#include "engine/kernels/cuda/cuda.h"

int main(int argc, char **argv) {
    ::testing::InitGoogleTest(&argc, argv);
    crl_stream *stream = nullptr;
    if (crl_device_stream_create(&crl_device_cuda, &stream) != CRL_STATUS_OK) {
        std::printf("skipped: %s\n", crl_error_message());
        return 77;
    }
    crl_device_stream_destroy(&crl_device_cuda, stream);
    return RUN_ALL_TESTS();
}
