// SPDX-License-Identifier: Apache-2.0
// Captures of the emulation: what is captured is not done, a launch does it all in the same order
// with the same checks, and what CUDA does not allow meanwhile spoils the capture.
#include "engine/kernels/cuda/launch_internal.h"
#include "tests/cuda_on_cpu/support.h"

namespace {

using namespace cuda_test;
using cuda_on_cpu::Streams;

void increment_kernel(float *x) {
    x[threadIdx.x] += 1;
}

class CudaGraph : public ::testing::Test {
  protected:
    static constexpr size_t kBytes = 32 * sizeof(float);

    void SetUp() override {
        for (cudaStream_t *stream : {&a, &b})
            EXPECT_CUDA(cudaStreamCreateWithFlags(stream, cudaStreamNonBlocking));
        for (cudaEvent_t *event : {&fork, &joined})
            EXPECT_CUDA(cudaEventCreateWithFlags(event, cudaEventDisableTiming));
        for (float **array : {&x, &y})
            EXPECT_CUDA(cudaMalloc((void **)array, kBytes));
    }
    void TearDown() override {
        EXPECT_CUDA(cudaFree(x));
        EXPECT_CUDA(cudaFree(y));
        for (cudaEvent_t event : {fork, joined})
            EXPECT_CUDA(cudaEventDestroy(event));
        for (cudaStream_t stream : {a, b})
            EXPECT_CUDA(cudaStreamDestroy(stream));
        cuda_on_cpu::set_streams(Streams::kLate);
        (void)cudaGetLastError();
        EXPECT_EQ(cuda_on_cpu::take_problems(), "");
        EXPECT_EQ(cuda_on_cpu::what_lives(), "");
    }
    void begin() { EXPECT_CUDA(cudaStreamBeginCapture(a, cudaStreamCaptureModeThreadLocal)); }
    // x + 1 into y, by way of stream b; `rejoin`: a comes after it.
    void work(bool rejoin) {
        CRL_LAUNCH(increment_kernel, 1, 32, 0, a, x);
        EXPECT_CUDA(cudaEventRecord(fork, a));
        EXPECT_CUDA(cudaStreamWaitEvent(b, fork, 0));
        EXPECT_CUDA(cudaMemcpyAsync(y, x, kBytes, cudaMemcpyDefault, b));
        EXPECT_CUDA(cudaEventRecord(joined, b));
        if (rejoin) {
            EXPECT_CUDA(cudaStreamWaitEvent(a, joined, 0));
        }
    }
    // After `call`, which must fail with `error`, the capture is lost and the stream free again.
    void expect_spoilt(cudaError_t got, cudaError_t error) {
        EXPECT_EQ(got, error);
        cudaGraph_t graph = nullptr;
        EXPECT_EQ(cudaStreamEndCapture(a, &graph), cudaErrorStreamCaptureInvalidated);
        EXPECT_EQ(graph, nullptr);
        EXPECT_CUDA(cudaMemsetAsync(x, 0, kBytes, a));
        EXPECT_CUDA(cudaStreamSynchronize(a));
    }
    Floats get(const float *array) {
        Floats values(32);
        EXPECT_CUDA(cudaMemcpy(values.data(), array, kBytes, cudaMemcpyDeviceToHost));
        return values;
    }
    cudaStream_t a = nullptr, b = nullptr;
    cudaEvent_t fork = nullptr, joined = nullptr;
    float *x = nullptr, *y = nullptr;
};

TEST_F(CudaGraph, EveryLaunchDoesAllOfIt) {
    cudaGraph_t graph = nullptr;
    cudaGraphExec_t exec = nullptr;
    EXPECT_CUDA(cudaMemsetAsync(x, 0, kBytes, a));
    EXPECT_CUDA(cudaStreamSynchronize(a));
    begin();
    work(true);
    EXPECT_CUDA(cudaStreamEndCapture(a, &graph));
    EXPECT_CUDA(cudaGraphInstantiate(&exec, graph, 0));
    EXPECT_CUDA(cudaGraphDestroy(graph));
    EXPECT_CUDA(cudaStreamSynchronize(a));
    EXPECT_EQ(get(x), Floats(32, 0.0f)) << "nothing is done before it is launched";
    for (Streams streams : {Streams::kLate, Streams::kReverse, Streams::kRandom, Streams::kNow}) {
        cuda_on_cpu::set_streams(streams, 3);
        EXPECT_CUDA(cudaGraphLaunch(exec, a));
    }
    EXPECT_CUDA(cudaStreamSynchronize(a));
    EXPECT_EQ(get(x), Floats(32, 4.0f));
    EXPECT_EQ(get(y), Floats(32, 4.0f));
    EXPECT_EQ(cuda_on_cpu::take_problems(), "");
    EXPECT_CUDA(cudaGraphExecDestroy(exec));
}

TEST_F(CudaGraph, LaunchesAreOrderedWithOtherStreams) {
    cudaGraph_t graph = nullptr;
    cudaGraphExec_t exec = nullptr;
    begin();
    work(true);
    EXPECT_CUDA(cudaStreamEndCapture(a, &graph));
    EXPECT_CUDA(cudaGraphInstantiate(&exec, graph, 0));
    EXPECT_CUDA(cudaMemsetAsync(x, 0, kBytes, b));
    EXPECT_CUDA(cudaGraphLaunch(exec, a));
    EXPECT_CUDA(cudaStreamSynchronize(a));
    const std::string found = cuda_on_cpu::take_problems();
    EXPECT_NE(found.find("increment_kernel: on stream "), std::string::npos) << found;
    EXPECT_CUDA(cudaGraphExecDestroy(exec));
    EXPECT_CUDA(cudaGraphDestroy(graph));
}

TEST_F(CudaGraph, WaitingOrAllocatingSpoilsACapture) {
    void *memory = nullptr;
    begin();
    expect_spoilt(cudaStreamSynchronize(a), cudaErrorStreamCaptureUnsupported);
    begin();
    expect_spoilt(cudaStreamSynchronize(b), cudaErrorStreamCaptureUnsupported);
    begin();
    expect_spoilt(cudaMalloc(&memory, 4), cudaErrorStreamCaptureUnsupported);
    begin();
    expect_spoilt(cudaFree(x), cudaErrorStreamCaptureUnsupported);
    begin();
    expect_spoilt(cudaMemcpy(x, y, 4, cudaMemcpyDefault), cudaErrorStreamCaptureUnsupported);
    begin();
    EXPECT_CUDA(cudaEventRecord(fork, a));
    expect_spoilt(cudaEventQuery(fork), cudaErrorCapturedEvent);
    EXPECT_CUDA(cudaEventRecord(fork, b));
    begin();
    expect_spoilt(cudaStreamWaitEvent(a, fork, 0), cudaErrorStreamCaptureIsolation);
}

TEST_F(CudaGraph, StreamsMustComeTogetherAgain) {
    cudaGraph_t graph = nullptr;
    begin();
    work(false);
    EXPECT_EQ(cudaStreamEndCapture(b, &graph), cudaErrorStreamCaptureUnmatched);
    EXPECT_EQ(cudaStreamEndCapture(a, &graph), cudaErrorStreamCaptureInvalidated);
    begin();
    work(false);
    EXPECT_EQ(cudaStreamEndCapture(a, &graph), cudaErrorStreamCaptureUnjoined);
    EXPECT_EQ(graph, nullptr);
}

} // namespace
