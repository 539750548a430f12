// SPDX-License-Identifier: Apache-2.0
// What the emulation sees of streams and events: uses of memory that nothing orders, memory that is
// gone or another device's, and work that runs in any order that CUDA allows.
#include <atomic>
#include <thread>

#include "engine/kernels/cuda/launch_internal.h"
#include "tests/cuda_on_cpu/machine.h"
#include "tests/cuda_on_cpu/support.h"

namespace {

using namespace cuda_test;
using cuda_on_cpu::Streams;

void add_kernel(const float *x, float *y) {
    y[threadIdx.x] += x[threadIdx.x];
}

struct Arrays {
    const float *x;
    int64_t n;
};

void pick_kernel(Arrays in, float *y) {
    y[0] = in.x[in.n - 1];
}

class CudaOrder : public ::testing::Test {
  protected:
    static constexpr size_t kBytes = 64 * sizeof(float);

    void SetUp() override {
        for (cudaStream_t *stream : {&a, &b})
            EXPECT_CUDA(cudaStreamCreateWithFlags(stream, cudaStreamNonBlocking));
        ASSERT_EQ(cudaEventCreateWithFlags(&event, cudaEventDisableTiming), cudaSuccess);
        for (float **array : {&x, &y})
            EXPECT_CUDA(cudaMalloc((void **)array, kBytes));
        ASSERT_EQ(cudaMallocHost((void **)&pinned, kBytes), cudaSuccess);
        for (int i = 0; i < 64; i++)
            pinned[i] = (float)i;
    }
    void TearDown() override {
        EXPECT_CUDA(cudaFree(x));
        EXPECT_CUDA(cudaFree(y));
        EXPECT_CUDA(cudaFreeHost(pinned));
        EXPECT_CUDA(cudaEventDestroy(event));
        EXPECT_CUDA(cudaStreamDestroy(a));
        EXPECT_CUDA(cudaStreamDestroy(b));
        cuda_on_cpu::set_streams(Streams::kLate);
        cuda_on_cpu::set_deadline(20000);
        (void)cudaGetLastError();
        EXPECT_EQ(cuda_on_cpu::take_problems(), "");
        EXPECT_EQ(cuda_on_cpu::what_lives(), "");
    }
    void copy(float *to, const float *from, cudaStream_t stream) {
        EXPECT_CUDA(cudaMemcpyAsync(to, from, kBytes, cudaMemcpyDefault, stream));
    }
    // What is queued on `later` from now on comes after what `stream` has.
    void order(cudaStream_t stream, cudaStream_t later) {
        EXPECT_CUDA(cudaEventRecord(event, stream));
        EXPECT_CUDA(cudaStreamWaitEvent(later, event, 0));
    }
    // Everything is waited for; what was found wrong.
    std::string problems() {
        (void)cudaStreamSynchronize(a);
        (void)cudaStreamSynchronize(b);
        return cuda_on_cpu::take_problems();
    }
    static void expect_has(const std::string &text, const std::string &part) {
        EXPECT_NE(text.find(part), std::string::npos) << text;
    }
    cudaStream_t a = nullptr, b = nullptr;
    cudaEvent_t event = nullptr;
    float *x = nullptr, *y = nullptr, *pinned = nullptr;
};

// The same program with each of its two waits, and without one of them.
TEST_F(CudaOrder, ARemovedEventWaitIsFound) {
    for (Streams streams :
         {Streams::kLate, Streams::kForward, Streams::kReverse, Streams::kRandom, Streams::kNow}) {
        for (int removed = 0; removed < 3; removed++) {
            cuda_on_cpu::set_streams(streams, 5);
            copy(x, pinned, a);
            EXPECT_CUDA(cudaMemsetAsync(y, 0, kBytes, b));
            if (removed != 1)
                order(a, b);
            CRL_LAUNCH(add_kernel, 1, 64, 0, b, x, y);
            if (removed != 2)
                order(b, a);
            EXPECT_CUDA(cudaMemsetAsync(x, 0, kBytes, a));
            const std::string found = problems();
            if (removed == 0) {
                EXPECT_EQ(found, "");
                copy(pinned, y, a);
                EXPECT_EQ(problems(), "");
                EXPECT_EQ(pinned[63], 63);
            } else if (removed == 1) {
                expect_has(found, "add_kernel: on stream ");
                expect_has(found, " reads byte 0 of an array of 256 bytes that cudaMemcpy on ");
            } else {
                expect_has(found, "cudaMemset: on stream ");
                expect_has(found, " writes byte 0 of an array of 256 bytes that add_kernel on ");
                expect_has(found, " reads, and waits for no event behind that");
            }
        }
    }
}

TEST_F(CudaOrder, AnEventIsTheStreamAsItWasWhenRecorded) {
    EXPECT_CUDA(cudaEventRecord(event, a));
    copy(x, pinned, a);
    EXPECT_CUDA(cudaStreamWaitEvent(b, event, 0));
    copy(y, x, b);
    expect_has(problems(), "cudaMemcpy: on stream ");
}

TEST_F(CudaOrder, OrderPassesOnThroughEvents) {
    copy(x, pinned, a);
    order(a, b);
    EXPECT_CUDA(cudaMemsetAsync(y, 0, kBytes, b));
    order(b, a);
    EXPECT_CUDA(cudaStreamSynchronize(a));
    CRL_LAUNCH(add_kernel, 1, 64, 0, b, x, y);
    EXPECT_EQ(problems(), "");
}

// Whom the host waited for, what it queues from then on comes after.
TEST_F(CudaOrder, TheHostsWaitsOrderToo) {
    copy(x, pinned, a);
    EXPECT_CUDA(cudaStreamSynchronize(a));
    copy(y, x, b);
    EXPECT_CUDA(cudaEventRecord(event, b));
    while (cudaEventQuery(event) != cudaSuccess) {
    }
    EXPECT_CUDA(cudaMemsetAsync(x, 0, kBytes, a));
    EXPECT_EQ(problems(), "");
    (void)cudaGetLastError();
}

TEST_F(CudaOrder, OtherBytesNeedNoOrder) {
    const size_t half = kBytes / 2;
    EXPECT_CUDA(cudaMemsetAsync(x, 0, half, a));
    EXPECT_CUDA(cudaMemsetAsync(x + 32, 0, half, b));
    EXPECT_EQ(problems(), "");
    EXPECT_CUDA(cudaMemsetAsync(x, 0, half + 1, a));
    EXPECT_CUDA(cudaMemsetAsync(x + 32, 0, half, b));
    expect_has(problems(), " writes byte 128 of an array of 256 bytes that cudaMemset on ");
}

TEST_F(CudaOrder, PinnedMemoryIsWatched) {
    EXPECT_CUDA(cudaMemsetAsync(x, 0, kBytes, a));
    copy(pinned, x, a);
    copy(y, pinned, b);
    expect_has(problems(), " that cudaMemcpy on stream ");
}

TEST_F(CudaOrder, PointersInsideStructsAreRead) {
    copy(x, pinned, a);
    CRL_LAUNCH(pick_kernel, 1, 1, 0, b, Arrays{x, 64}, y);
    expect_has(problems(), "pick_kernel: on stream ");
}

TEST_F(CudaOrder, WorkOfLibrariesIsWatchedInItsRanges) {
    using cuda_on_cpu::enqueue;
    EXPECT_CUDA(cudaMemsetAsync(x, 0, kBytes, a));
    EXPECT_CUDA(enqueue(b, "fake", {{x + 63, 4}}, {{y, kBytes}}, [] {}));
    expect_has(problems(), "fake: on stream ");
    EXPECT_CUDA(enqueue(b, "fake", {{x + 63, 8}}, {}, [] {}));
    expect_has(problems(), "fake: reads 8 bytes from byte 252 of an array of 256 bytes");
}

TEST_F(CudaOrder, WorkWaitsUntilItIsReady) {
    bool open = false;
    EXPECT_CUDA(cuda_on_cpu::enqueue(
        a, "gate", {}, {}, [] {}, [&] { return open; }));
    EXPECT_CUDA(cuda_on_cpu::enqueue(b, "key", {}, {}, [&] { open = true; }));
    EXPECT_CUDA(cudaStreamSynchronize(a));
    EXPECT_TRUE(open) << "the other stream was moved on for it";
}

TEST_F(CudaOrder, AnotherThreadMayOpenWhatIsWaitedFor) {
    std::atomic<bool> open(false);
    EXPECT_CUDA(cuda_on_cpu::enqueue(
        a, "gate", {}, {}, [] {}, [&] { return open.load(); }));
    std::thread other([&] { open = true; });
    EXPECT_CUDA(cudaStreamSynchronize(a));
    other.join();
}

TEST_F(CudaOrder, AWaitWithoutEndIsADeadlock) {
    bool open = false;
    cuda_on_cpu::set_deadline(50);
    EXPECT_CUDA(cuda_on_cpu::enqueue(
        a, "gate", {}, {}, [] {}, [&] { return open; }));
    EXPECT_EQ(cudaStreamSynchronize(a), cudaErrorLaunchFailure);
    expect_has(cuda_on_cpu::take_problems(), "deadlock: stream ");
    open = true;
    EXPECT_CUDA(cudaStreamSynchronize(a));
}

TEST_F(CudaOrder, AQuestionIsAnsweredLate) {
    copy(x, pinned, a);
    EXPECT_CUDA(cudaEventQuery(event)) << "never recorded";
    EXPECT_CUDA(cudaEventRecord(event, a));
    EXPECT_EQ(cudaEventQuery(event), cudaErrorNotReady);
    EXPECT_EQ(cudaEventQuery(event), cudaErrorNotReady);
    EXPECT_CUDA(cudaEventQuery(event));
    cuda_on_cpu::set_streams(Streams::kNow);
    EXPECT_CUDA(cudaEventRecord(event, a));
    EXPECT_CUDA(cudaEventQuery(event));
    EXPECT_EQ(problems(), "");
    (void)cudaGetLastError();
}

TEST_F(CudaOrder, UseOfFreedMemoryIsFound) {
    float *gone = nullptr;
    EXPECT_CUDA(cudaMalloc((void **)&gone, 512));
    EXPECT_CUDA(cudaFree(gone));
    CRL_LAUNCH(add_kernel, 1, 64, 0, a, gone, y);
    EXPECT_EQ(cudaStreamSynchronize(a), cudaErrorLaunchFailure);
    expect_has(problems(),
               "add_kernel: an argument points to an array of 512 bytes that was freed");
    EXPECT_CUDA(cudaMemsetAsync(gone, 0, 4, a));
    expect_has(problems(), "cudaMemset: writes an array of 512 bytes that was freed");
    EXPECT_EQ(cudaFree(gone), cudaErrorInvalidValue);
    expect_has(problems(), "cudaFree: not an address that was given out");
    EXPECT_EQ(cudaFree(pinned), cudaErrorInvalidValue) << "pinned memory has its own call";
    expect_has(problems(), "cudaFree: not an address that was given out");
}

TEST_F(CudaOrder, OtherDevicesAreOthers) {
    cuda_on_cpu::set_devices(2);
    float *other = nullptr;
    cudaStream_t stream = nullptr;
    EXPECT_CUDA(cudaSetDevice(1));
    EXPECT_EQ(cudaSetDevice(2), cudaErrorInvalidDevice);
    EXPECT_CUDA(cudaMalloc((void **)&other, kBytes));
    EXPECT_CUDA(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    EXPECT_EQ(cudaEventRecord(event, stream), cudaErrorInvalidResourceHandle);
    copy(other, pinned, stream);
    CRL_LAUNCH(add_kernel, 1, 64, 0, a, x, y);
    EXPECT_EQ(cudaGetLastError(), cudaErrorInvalidResourceHandle);
    CRL_LAUNCH(add_kernel, 1, 64, 0, stream, other, y);
    EXPECT_EQ(cudaStreamSynchronize(stream), cudaErrorLaunchFailure);
    expect_has(problems(), "add_kernel: an argument points to memory of device 0, not 1");
    copy(x, other, a);
    EXPECT_EQ(problems(), "") << "copies go between devices";
    EXPECT_CUDA(cudaFree(other));
    EXPECT_CUDA(cudaStreamDestroy(stream));
    cuda_on_cpu::set_devices(1);
}

TEST_F(CudaOrder, TheNthCallFailsOnce) {
    cuda_on_cpu::fail_at(2);
    EXPECT_CUDA(cudaMemsetAsync(x, 0, kBytes, a));
    EXPECT_EQ(cudaMemsetAsync(x, 0, kBytes, a), cudaErrorUnknown);
    EXPECT_CUDA(cudaMemsetAsync(x, 0, kBytes, a));
    EXPECT_EQ(cuda_on_cpu::failed_call(), "cudaMemsetAsync");
    EXPECT_EQ(cuda_on_cpu::calls(), 3);
    cuda_on_cpu::fail_at(1);
    CRL_LAUNCH(add_kernel, 1, 64, 0, a, x, y);
    EXPECT_EQ(cudaGetLastError(), cudaErrorUnknown);
    cuda_on_cpu::fail_at(0);
    EXPECT_EQ(problems(), "");
}

TEST_F(CudaOrder, LeftoversAreCounted) {
    EXPECT_EQ(cuda_on_cpu::what_lives(), "3 allocations, 2 streams, 1 event");
}

} // namespace
