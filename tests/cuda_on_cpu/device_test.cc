// SPDX-License-Identifier: Apache-2.0
// The device itself: memory, streams, events, what is refused and what hangs on a stream.
#include "tests/cuda_on_cpu/support.h"

#include "engine/device/cuda_library.h"
#include "engine/device/cuda_stream.h"

namespace {

using namespace cuda_test;

const crl_device *const kDevice = &crl_device_cuda;

class CudaDevice : public Cuda {
  protected:
    void SetUp() override {
        Cuda::SetUp();
        EXPECT_OK(crl_device_stream_create(kDevice, &other_));
    }
    void TearDown() override {
        crl_device_stream_destroy(kDevice, other_);
        Cuda::TearDown();
    }
    crl_stream *other_ = nullptr;
};

TEST_F(CudaDevice, IsThere) {
    char text[1024] = "";
    EXPECT_OK(kDevice->probe());
    kDevice->describe(text, sizeof text);
    EXPECT_NE(std::string(text).find("sm_"), std::string::npos) << text;
    EXPECT_NE(std::string(text).find("; cuBLASLt "), std::string::npos) << text;
    EXPECT_FALSE(crl_device_is_host(kDevice));
}

// More ranks than GPUs share them in turn.
TEST_F(CudaDevice, EveryRankFindsOne) {
    int devices = 0, now = -1;
    EXPECT_CUDA(cudaGetDeviceCount(&devices));
    for (int rank = 0; rank < 2 * devices; rank++) {
        EXPECT_OK(crl_device_choose(kDevice, rank, 2 * devices));
        EXPECT_CUDA(cudaGetDevice(&now));
        EXPECT_EQ(now, rank % devices);
    }
    EXPECT_OK(crl_device_choose(kDevice, 0, 1));
}

TEST_F(CudaDevice, MemoryBeginsAsZero) {
    float *device = nullptr, *host = nullptr;
    EXPECT_OK(crl_device_alloc(kDevice, &device, 1000 * sizeof *device));
    EXPECT_OK(crl_device_host_alloc(kDevice, &host, 1000 * sizeof *host));
    EXPECT_EQ((uintptr_t)device % 256, 0u);
    for (int i = 0; i < 1000; i++)
        ASSERT_EQ(std::exchange(host[i], 1.0f), 0.0f);
    EXPECT_OK(crl_device_copy(kDevice, stream, host, device, 1000 * sizeof *host));
    wait();
    for (int i = 0; i < 1000; i++)
        ASSERT_EQ(host[i], 0.0f);
    crl_device_free(kDevice, device);
    crl_device_host_free(kDevice, host);
}

TEST_F(CudaDevice, NoBytesAreMemoryToo) {
    void *device = nullptr, *host = nullptr;
    EXPECT_OK(crl_device_alloc(kDevice, &device, 0));
    EXPECT_OK(crl_device_host_alloc(kDevice, &host, 0));
    EXPECT_OK(crl_device_copy(kDevice, stream, device, host, 0));
    EXPECT_OK(crl_device_zero(kDevice, stream, device, 0));
    crl_device_free(kDevice, device);
    crl_device_host_free(kDevice, host);
}

TEST_F(CudaDevice, TooMuchMemoryIsSaidInNumbers) {
    void *memory = nullptr;
    EXPECT_EQ(crl_device_alloc(kDevice, &memory, (size_t)1 << 50), CRL_STATUS_NOMEM);
    const std::string said = crl_error_message();
    EXPECT_EQ(said.find("cuda: "), 0u) << said;
    EXPECT_NE(said.find("of device memory asked for"), std::string::npos) << said;
    EXPECT_EQ(memory, nullptr);
    EXPECT_CUDA(cudaGetLastError()) << "the failure is not left for others to find";
}

// There and back on two streams, each after the other's event.
TEST_F(CudaDevice, EventsOrderStreams) {
    const size_t bytes = 256 * sizeof(float);
    float *device = nullptr, *from = nullptr, *to = nullptr;
    crl_event *event = nullptr;
    bool done = false;
    EXPECT_OK(crl_device_event_create(kDevice, &event));
    EXPECT_OK(crl_device_event_query(kDevice, event, &done));
    EXPECT_TRUE(done) << "never recorded";
    EXPECT_OK(crl_device_alloc(kDevice, &device, bytes));
    EXPECT_OK(crl_device_host_alloc(kDevice, &from, bytes));
    EXPECT_OK(crl_device_host_alloc(kDevice, &to, bytes));
    for (int i = 0; i < 256; i++)
        from[i] = (float)i;
    EXPECT_OK(crl_device_copy(kDevice, stream, device, from, bytes));
    EXPECT_OK(crl_device_event_record(kDevice, event, stream));
    EXPECT_OK(crl_device_event_follow(kDevice, other_, event));
    EXPECT_OK(crl_device_copy(kDevice, other_, to, device, bytes));
    EXPECT_OK(crl_device_event_record(kDevice, event, other_));
    EXPECT_OK(crl_device_event_follow(kDevice, stream, event));
    EXPECT_OK(crl_device_zero(kDevice, stream, device, bytes));
    EXPECT_OK(crl_device_stream_wait(kDevice, other_));
    for (int i = 0; i < 256; i++)
        ASSERT_EQ(to[i], (float)i);
    do
        EXPECT_OK(crl_device_event_query(kDevice, event, &done));
    while (!done);
    EXPECT_CUDA(cudaGetLastError()) << "an event that is not reached is no failure";
    wait();
    crl_device_event_destroy(kDevice, event);
    crl_device_free(kDevice, device);
    crl_device_host_free(kDevice, from);
    crl_device_host_free(kDevice, to);
}

// Who waits for the stream is told, once, and of its own stream alone.
TEST_F(CudaDevice, RefusedIndicesAreReportedByTheWait) {
    OnDevice<int32_t> bad(Ints{0, 9});
    OnDevice<float> table(Floats{1}), y(2);
    EXPECT_OK(crl_kernels_cuda.embedding->forward(other_, bad.data(), table.data(), nullptr,
                                                  y.data(), 1, 2, 1, 1));
    wait();
    EXPECT_EQ(crl_device_stream_wait(kDevice, other_), CRL_STATUS_INVALID);
    EXPECT_STREQ(crl_error_message(),
                 "embedding: token at sample 0, position 1 is 9, expected 0 to 0");
    EXPECT_OK(crl_device_stream_wait(kDevice, other_));
}

struct Hung {
    std::vector<int> *ended;
    int number;
};

void end(void *pointer) {
    const Hung *hung = static_cast<Hung *>(pointer);
    hung->ended->push_back(hung->number);
}

TEST_F(CudaDevice, WhatHangsOnAStreamEndsBeforeIt) {
    static const char first = 'a', second = 'b', none = 'c';
    std::vector<int> ended;
    Hung one = {&ended, 1}, two = {&ended, 2};
    crl_stream *own = nullptr;
    ASSERT_EQ(crl_device_stream_create(kDevice, &own), CRL_STATUS_OK);
    EXPECT_EQ(crl_cuda_context_get(own, &first), nullptr);
    crl_cuda_context_set(own, &first, &one, end);
    crl_cuda_context_set(own, &second, &two, end);
    EXPECT_EQ(crl_cuda_context_get(own, &first), &one);
    EXPECT_EQ(crl_cuda_context_get(own, &second), &two);
    EXPECT_EQ(crl_cuda_context_get(own, &none), nullptr);
    EXPECT_EQ(crl_cuda_context_get(stream, &first), nullptr) << "another stream's";
    crl_device_stream_destroy(kDevice, own);
    EXPECT_EQ(ended, (std::vector<int>{2, 1}));
}

TEST_F(CudaDevice, ALibraryWithoutASymbolIsSaidByName) {
    void *function = &function;
    const crl_cuda_symbol symbols[] = {{"cublasLtGetVersion", &function},
                                       {"cublasLtMakeCoffee", &function}};
    EXPECT_OK(crl_cuda_library_load(&crl_cuda_library_cublaslt, symbols, 1));
    EXPECT_NE(function, nullptr);
    function = nullptr;
    EXPECT_EQ(crl_cuda_library_load(&crl_cuda_library_cublaslt, symbols, 2),
              CRL_STATUS_UNSUPPORTED);
    EXPECT_NE(std::string(crl_error_message()).find("has no cublasLtMakeCoffee"),
              std::string::npos);
    EXPECT_EQ(function, nullptr) << "all or none";
}

} // namespace
