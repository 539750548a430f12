// SPDX-License-Identifier: Apache-2.0
#include "tests/cuda_on_cpu/support.h"

#include "engine/base/alloc.h"

namespace {

using namespace cuda_test;

class CudaStream : public Cuda {};

TEST_F(CudaStream, TablesAreWhole) {
    for (const Type &type : kTypes) {
        EXPECT_STREQ(type.cuda->name, "cuda");
        const void *const there[] = {type.cuda->matmul,    type.cuda->eltwise,
                                     type.cuda->layernorm, type.cuda->attention,
                                     type.cuda->embedding, type.cuda->cross_entropy,
                                     type.cuda->optimizer, type.cuda->reduce};
        for (const void *table : there)
            EXPECT_NE(table, nullptr) << type.name;
        EXPECT_EQ(crl_backend_kernels(&crl_backend_cuda, type.cuda->dtype), type.cuda);
    }
}

TEST_F(CudaStream, WorkOfTwoStreamsDoesNotMix) {
    crl_stream *other = nullptr;
    ASSERT_EQ(crl_device_stream_create(&crl_device_cuda, &other), CRL_STATUS_OK);
    OnDevice<int32_t> bad(Ints{9});
    OnDevice<float> table(Floats{1}), y(1);
    EXPECT_OK(crl_kernels_cuda.embedding->forward(other, bad.data(), table.data(), nullptr,
                                                  y.data(), 1, 1, 1, 1));
    wait();
    EXPECT_EQ(crl_device_stream_wait(&crl_device_cuda, other), CRL_STATUS_INVALID);
    crl_device_stream_destroy(&crl_device_cuda, other);
}

TEST_F(CudaStream, FailingAllocationIsPassedOn) {
    crl_alloc_watch watch = {};
    crl_alloc_watch *const before = crl_alloc_attach(&watch);
    watch.fail_at = 1;
    crl_stream *other = nullptr;
    EXPECT_EQ(crl_device_stream_create(&crl_device_cuda, &other), CRL_STATUS_NOMEM);
    EXPECT_EQ(other, nullptr);
    crl_alloc_attach(before);
    crl_device_stream_destroy(&crl_device_cuda, nullptr);
}

} // namespace
