// SPDX-License-Identifier: Apache-2.0
// The emulation itself: that it does what CUDA says, and that it finds what is broken. Every kernel
// here is small, and most are wrong on purpose.
#include "engine/kernels/cuda/launch_internal.h"
#include "tests/cuda_on_cpu/support.h"

namespace {

using namespace cuda_test;
using cuda_on_cpu::Order;

// Runs a launch in one order; what was found wrong.
class CudaOnCpu : public ::testing::Test {
  protected:
    void SetUp() override {
        ASSERT_EQ(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), cudaSuccess);
    }
    void TearDown() override {
        EXPECT_CUDA(cudaStreamDestroy(stream));
        cuda_on_cpu::set_order(Order::kForward);
        EXPECT_EQ(cuda_on_cpu::take_problems(), "");
    }
    std::string run() {
        error = cudaStreamSynchronize(stream);
        (void)cudaGetLastError();
        return cuda_on_cpu::take_problems();
    }
    template <typename Make> void finds(const std::string &text, Make make) {
        for (Order order : {Order::kForward, Order::kReverse, Order::kRandom}) {
            cuda_on_cpu::set_order(order, 7);
            make();
            EXPECT_NE(run().find(text), std::string::npos) << text << " in order " << (int)order;
            EXPECT_EQ(error, cudaErrorLaunchFailure);
        }
    }
    cudaStream_t stream = nullptr;
    cudaError_t error = cudaSuccess;
};

void indices_kernel(int *out) {
    const unsigned thread = threadIdx.x + blockDim.x * (threadIdx.y + blockDim.y * threadIdx.z);
    const unsigned block = blockIdx.x + gridDim.x * (blockIdx.y + gridDim.y * blockIdx.z);
    out[block * blockDim.x * blockDim.y * blockDim.z + thread] += 1;
}

TEST_F(CudaOnCpu, EveryThreadRunsOnce) {
    const int n = 2 * 3 * 2 * 5 * 4 * 3;
    for (Order order : {Order::kForward, Order::kReverse, Order::kRandom}) {
        cuda_on_cpu::set_order(order, 3);
        OnDevice<int32_t> out(Ints(n, 0));
        CRL_LAUNCH(indices_kernel, dim3(2, 3, 2), dim3(5, 4, 3), 0, stream, out.data());
        EXPECT_EQ(run(), "");
        EXPECT_EQ(out.get(), Ints(n, 1));
    }
}

// Turns a block's numbers round, with or without the barrier that this needs.
void turn_kernel(float *x, bool barrier) {
    CRL_SHARED(float, kept, 64);
    kept[threadIdx.x] = x[threadIdx.x];
    if (barrier)
        __syncthreads();
    x[threadIdx.x] = kept[63 - threadIdx.x];
}

TEST_F(CudaOnCpu, BarrierOrdersSharedMemory) {
    Random random(1);
    const Floats x = random_floats(random, 64);
    for (Order order : {Order::kForward, Order::kReverse, Order::kRandom}) {
        cuda_on_cpu::set_order(order, 5);
        OnDevice<float> on(x);
        CRL_LAUNCH(turn_kernel, 1, 64, 0, stream, on.data(), true);
        EXPECT_EQ(run(), "");
        EXPECT_TRUE(same_bits(on.get(), Floats(x.rbegin(), x.rend())));
    }
}

TEST_F(CudaOnCpu, MissingBarrierIsFound) {
    OnDevice<float> on(Floats(64, 1.0f));
    finds("turn_kernel: shared array kept[",
          [&] { CRL_LAUNCH(turn_kernel, 1, 64, 0, stream, on.data(), false); });
}

// A sum whose second use of `part` may overtake the readers of the first.
void reuse_kernel(float *out, bool barrier) {
    CRL_SHARED(float, part, 1);
    for (int i = 0; i < 2; i++) {
        if (threadIdx.x == 0)
            part[0] = (float)i;
        __syncthreads();
        out[threadIdx.x] = part[0];
        if (barrier)
            __syncthreads();
    }
}

TEST_F(CudaOnCpu, ReuseTooEarlyIsFound) {
    OnDevice<float> out(96);
    CRL_LAUNCH(reuse_kernel, 1, 96, 0, stream, out.data(), true);
    EXPECT_EQ(run(), "");
    finds("race: shared array part[0] is ",
          [&] { CRL_LAUNCH(reuse_kernel, 1, 96, 0, stream, out.data(), false); });
}

void warp_kernel(float *out, bool sync) {
    CRL_SHARED(float, kept, 32);
    kept[threadIdx.x] = (float)threadIdx.x;
    if (sync)
        __syncwarp();
    out[threadIdx.x] = kept[threadIdx.x ^ 1u];
}

TEST_F(CudaOnCpu, SyncwarpOrdersAWarp) {
    OnDevice<float> out(32);
    CRL_LAUNCH(warp_kernel, 1, 32, 0, stream, out.data(), true);
    EXPECT_EQ(run(), "");
    EXPECT_EQ(out.get()[4], 5);
    finds("race: shared array kept[",
          [&] { CRL_LAUNCH(warp_kernel, 1, 32, 0, stream, out.data(), false); });
}

void unwritten_kernel(float *out) {
    CRL_SHARED(float, kept, 4);
    if (blockIdx.x == 0)
        kept[threadIdx.x] = 1;
    out[blockIdx.x] = kept[threadIdx.x];
}

TEST_F(CudaOnCpu, SharedMemoryIsUnwrittenInEveryBlock) {
    OnDevice<float> out(2);
    finds("shared array kept[0] is read before it is written",
          [&] { CRL_LAUNCH(unwritten_kernel, 2, 1, 0, stream, out.data()); });
    EXPECT_TRUE(std::isnan(out.get()[1]));
}

void dynamic_kernel(float *out, int index) {
    CRL_SHARED_DYNAMIC(float, kept);
    kept[index] = 3;
    out[0] = kept[index];
}

TEST_F(CudaOnCpu, SharedIndexOutOfRangeIsFound) {
    OnDevice<float> out(1);
    CRL_LAUNCH(dynamic_kernel, 1, 1, 8 * sizeof(float), stream, out.data(), 7);
    EXPECT_EQ(run(), "");
    EXPECT_EQ(out.get()[0], 3);
    finds("shared array kept: index is 8, expected 0 to 7",
          [&] { CRL_LAUNCH(dynamic_kernel, 1, 1, 8 * sizeof(float), stream, out.data(), 8); });
}

void beside_kernel(float *x, int64_t index) {
    if (threadIdx.x == 0)
        x[index] = 1;
}

TEST_F(CudaOnCpu, WritesBesideAnArrayAreFound) {
    OnDevice<float> x(7);
    finds("beside_kernel: writes 0 bytes behind the end of an array of 28 bytes",
          [&] { CRL_LAUNCH(beside_kernel, 1, 32, 0, stream, x.data(), (int64_t)7); });
    finds("writes 4 bytes before an array of 28 bytes",
          [&] { CRL_LAUNCH(beside_kernel, 1, 32, 0, stream, x.data(), (int64_t)-1); });
    CRL_LAUNCH(beside_kernel, 1, 32, 0, stream, x.data(), (int64_t)6);
    EXPECT_EQ(run(), "");
    EXPECT_TRUE(std::isnan(x.get()[5])) << "memory begins as NaN";
}

TEST_F(CudaOnCpu, HostMemoryIsRefused) {
    float host[4] = {0};
    finds("beside_kernel: an argument points to memory that is not the device's",
          [&] { CRL_LAUNCH(beside_kernel, 1, 32, 0, stream, &host[0], (int64_t)0); });
    EXPECT_EQ(host[0], 0);
}

void divergent_kernel(int kind) {
    if (kind == 0 && threadIdx.x == 3)
        return;
    if (kind == 1 && threadIdx.x == 3) {
        __syncthreads();
        return;
    }
    __syncthreads();
}

TEST_F(CudaOnCpu, DivergentBarriersAreFound) {
    finds("deadlock: thread 0 waits in __syncthreads at ",
          [&] { CRL_LAUNCH(divergent_kernel, 2, 40, 0, stream, 0); });
    finds("divergent barrier: ", [&] { CRL_LAUNCH(divergent_kernel, 2, 40, 0, stream, 1); });
    CRL_LAUNCH(divergent_kernel, 2, 40, 0, stream, 2);
    EXPECT_EQ(run(), "") << "what comes after a deadlock";
}

void shuffle_kernel(int *out, unsigned mask, int lanes) {
    const int lane = (int)threadIdx.x;
    if (!(mask & 1u << lane))
        return;
    out[lane] = __shfl_xor_sync(mask, lane * 10, lanes);
    out[32 + lane] = (int)__shfl_down_sync(mask, (double)lane, 4, 16);
    out[64 + lane] = (int)__ballot_sync(mask, lane % 3 == 0);
}

TEST_F(CudaOnCpu, LanesExchangeValues) {
    OnDevice<int32_t> out(96);
    for (Order order : {Order::kForward, Order::kReverse, Order::kRandom}) {
        cuda_on_cpu::set_order(order, 11);
        CRL_LAUNCH(shuffle_kernel, 1, 32, 0, stream, out.data(), ~0u, 5);
        ASSERT_EQ(run(), "");
        const Ints got = out.get();
        for (int l = 0; l < 32; l++) {
            EXPECT_EQ(got[(size_t)l], (l ^ 5) * 10);
            EXPECT_EQ(got[(size_t)l + 32], l % 16 < 12 ? l + 4 : l);
            EXPECT_EQ(got[(size_t)l + 64], 0x49249249);
        }
    }
}

TEST_F(CudaOnCpu, ReadingAnIdleLaneIsFound) {
    OnDevice<int32_t> out(96);
    finds(", which takes no part, in __shfl_xor_sync at ",
          [&] { CRL_LAUNCH(shuffle_kernel, 1, 32, 0, stream, out.data(), 0xffffu, 31); });
    finds("reads lane 16, which takes no part",
          [&] { CRL_LAUNCH(shuffle_kernel, 1, 16, 0, stream, out.data(), ~0u, 16); });
}

void half_warp_kernel(int *out) {
    if (threadIdx.x < 16)
        out[threadIdx.x] = __shfl_xor_sync(~0u, 1, 1);
}

TEST_F(CudaOnCpu, AMaskWithAbsentLanesIsFound) {
    OnDevice<int32_t> out(16);
    finds("deadlock: thread 0 waits in __shfl_xor_sync",
          [&] { CRL_LAUNCH(half_warp_kernel, 1, 32, 0, stream, out.data()); });
}

void any_kernel(int *out, unsigned wanted) {
    out[threadIdx.x] = __syncthreads_or(threadIdx.x == wanted);
    out[threadIdx.x] += 2 * __syncthreads_or(false);
}

TEST_F(CudaOnCpu, BarrierTellsWhetherAnyThreadSaidYes) {
    OnDevice<int32_t> out(70);
    CRL_LAUNCH(any_kernel, 1, 70, 0, stream, out.data(), 69u);
    EXPECT_EQ(run(), "");
    EXPECT_EQ(out.get(), Ints(70, 1));
    CRL_LAUNCH(any_kernel, 1, 70, 0, stream, out.data(), 70u);
    EXPECT_EQ(run(), "");
    EXPECT_EQ(out.get(), Ints(70, 0));
}

TEST_F(CudaOnCpu, WorkIsDoneWhenItIsWaitedFor) {
    OnDevice<float> x(Floats(1, 5.0f));
    CRL_LAUNCH(beside_kernel, 1, 32, 0, stream, x.data(), (int64_t)0);
    EXPECT_EQ(x.get()[0], 5) << "read too early";
    EXPECT_NE(run().find("cudaMemcpy: the host reads byte 0 of an array of 4 bytes that "
                         "beside_kernel on stream "),
              std::string::npos);
    EXPECT_EQ(x.get()[0], 1);
}

TEST_F(CudaOnCpu, ImpossibleLaunchesAreRefused) {
    OnDevice<float> x(1);
    const dim3 wrong[][2] = {{0, 32}, {1, 1025}, {dim3(1, 65536), 32}};
    for (const auto &size : wrong) {
        CRL_LAUNCH(beside_kernel, size[0], size[1], 0, stream, x.data(), (int64_t)0);
        EXPECT_EQ(crl_cuda_launched("test"), CRL_STATUS_DEVICE);
        EXPECT_STREQ(crl_error_message(), "cuda: test: invalid configuration argument");
    }
    EXPECT_OK(crl_cuda_launched("test"));
}

} // namespace
