// SPDX-License-Identifier: Apache-2.0
#include "tests/cuda_on_cpu/support.h"

#include "engine/base/alloc.h"

namespace {

using namespace cuda_test;

class CudaStream : public Cuda {};

TEST_F(CudaStream, TableSaysWhatIsThere) {
    EXPECT_STREQ(crl_kernels_cuda.name, "cuda");
    EXPECT_EQ(crl_kernels_cuda.matmul, nullptr) << "no longer missing: say so in docs/cuda.md";
    EXPECT_EQ(crl_kernels_cuda.attention, nullptr);
    const void *const there[] = {crl_kernels_cuda.eltwise,   crl_kernels_cuda.layernorm,
                                 crl_kernels_cuda.embedding, crl_kernels_cuda.cross_entropy,
                                 crl_kernels_cuda.optimizer, crl_kernels_cuda.reduce};
    for (const void *table : there)
        EXPECT_NE(table, nullptr);
}

TEST_F(CudaStream, WorkOfTwoStreamsDoesNotMix) {
    crl_stream *other = nullptr;
    ASSERT_EQ(crl_cuda_stream_create(&other), CRL_STATUS_OK);
    OnDevice<int32_t> bad(Ints{9});
    OnDevice<float> table(Floats{1}), y(1);
    EXPECT_OK(crl_kernels_cuda.embedding->forward(other, bad.data(), table.data(), nullptr,
                                                  y.data(), 1, 1, 1, 1));
    wait();
    EXPECT_EQ(crl_cuda_stream_wait(other), CRL_STATUS_INVALID);
    crl_cuda_stream_destroy(other);
}

TEST_F(CudaStream, FailingAllocationIsPassedOn) {
    crl_alloc_watch watch = {};
    crl_alloc_watch *const before = crl_alloc_attach(&watch);
    watch.fail_at = 1;
    crl_stream *other = nullptr;
    EXPECT_EQ(crl_cuda_stream_create(&other), CRL_STATUS_NOMEM);
    EXPECT_EQ(other, nullptr);
    crl_alloc_attach(before);
    crl_cuda_stream_destroy(nullptr);
}

} // namespace
