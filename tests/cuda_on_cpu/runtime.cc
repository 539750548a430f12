// SPDX-License-Identifier: Apache-2.0
// Streams, errors and launches. A stream's work is done when somebody waits for it, as late as CUDA
// allows: who reads a result too early reads what was there before.
#include <cuda_runtime.h>

#include <algorithm>
#include <deque>
#include <numeric>
#include <random>
#include <set>

#include "tests/cuda_on_cpu/cuda_on_cpu.h"
#include "tests/cuda_on_cpu/machine.h"

struct CUstream_st {
    std::deque<std::function<cudaError_t()>> work;
};

namespace cuda_on_cpu {

namespace {

constexpr unsigned kMostThreads = 1024, kMostGrid = 65535;
constexpr size_t kMostProblems = 8; // kept; a broken kernel finds thousands

std::vector<std::string> problems;
size_t problems_found;
std::string running;
Order order = Order::kForward;
std::mt19937 random_order;
cudaError_t last_error = cudaSuccess;
std::set<cudaStream_t> streams;

uint3 index_of(int block, const dim3 &grid) {
    const unsigned i = (unsigned)block;
    return {i % grid.x, i / grid.x % grid.y, i / (grid.x * grid.y)};
}

cudaError_t run(const Launch &launch) {
    const size_t before = problem_count();
    set_kernel(launch.kernel);
    for (const void *pointer : launch.pointers) {
        if (pointer != nullptr && !is_device(pointer, 0))
            report("an argument points to memory that is not the device's");
    }
    if (problem_count() == before) {
        for (int b : order_of((int)(launch.grid.x * launch.grid.y * launch.grid.z))) {
            shared_begin_block(launch.shared_bytes);
            if (!run_block(launch.grid, launch.block, index_of(b, launch.grid), launch.body))
                break;
        }
        check_guards();
    }
    set_kernel("");
    return problem_count() == before ? cudaSuccess : cudaErrorLaunchFailure;
}

cudaError_t fail(cudaError_t error) {
    last_error = error;
    return error;
}

cudaError_t drain(cudaStream_t stream) {
    cudaError_t first = cudaSuccess;
    while (!stream->work.empty()) {
        const auto work = std::move(stream->work.front());
        stream->work.pop_front();
        const cudaError_t error = work();
        first = first == cudaSuccess ? error : first;
    }
    return first == cudaSuccess ? first : fail(first);
}

cudaError_t copy(void *to, const void *from, size_t bytes, cudaMemcpyKind kind) {
    set_kernel("cudaMemcpy");
    const size_t before = problem_count();
    if (kind != cudaMemcpyHostToDevice && kind != cudaMemcpyHostToHost && !is_device(from, bytes))
        report("the source is not in the device's memory");
    if (kind != cudaMemcpyDeviceToHost && kind != cudaMemcpyHostToHost && !is_device(to, bytes))
        report("the destination is not in the device's memory");
    if (problem_count() == before && bytes > 0)
        memmove(to, from, bytes);
    set_kernel("");
    return problem_count() == before ? cudaSuccess : cudaErrorInvalidValue;
}

} // namespace

void set_order(Order next, uint32_t seed) {
    order = next;
    random_order.seed(seed);
}

std::vector<int> order_of(int count) {
    std::vector<int> all((size_t)count);
    std::iota(all.begin(), all.end(), 0);
    if (order == Order::kReverse)
        std::reverse(all.begin(), all.end());
    if (order == Order::kRandom)
        std::shuffle(all.begin(), all.end(), random_order);
    return all;
}

void report(const std::string &problem) {
    if (++problems_found <= kMostProblems)
        problems.push_back((running.empty() ? "" : running + ": ") + problem);
}

size_t problem_count() {
    return problems_found;
}

void set_kernel(const std::string &name) {
    running = name;
}

std::string take_problems() {
    std::string text;
    for (const std::string &problem : problems)
        text += problem + "\n";
    problems.clear();
    problems_found = 0;
    return text;
}

void queue(cudaStream_t stream, Launch launch) {
    const dim3 g = launch.grid, b = launch.block;
    const bool is_empty = g.x == 0 || g.y == 0 || g.z == 0 || b.x == 0 || b.y == 0 || b.z == 0;
    if (is_empty || b.x * b.y * b.z > kMostThreads || g.y > kMostGrid || g.z > kMostGrid ||
        g.x > INT32_MAX || launch.shared_bytes > 48 << 10) {
        fail(cudaErrorInvalidConfiguration);
        return;
    }
    if (!streams.count(stream)) {
        fail(cudaErrorInvalidValue);
        return;
    }
    stream->work.push_back([launch = std::move(launch)] { return run(launch); });
}

// What cudaFree does before it frees.
static void wait_for_all() {
    for (cudaStream_t stream : streams)
        drain(stream);
}

} // namespace cuda_on_cpu

using namespace cuda_on_cpu;

const char *cudaGetErrorString(cudaError_t error) {
    switch (error) {
    case cudaSuccess:
        return "no error";
    case cudaErrorInvalidConfiguration:
        return "invalid configuration argument";
    case cudaErrorMemoryAllocation:
        return "out of memory";
    case cudaErrorLaunchFailure:
        return "unspecified launch failure";
    default:
        return "invalid argument";
    }
}

cudaError_t cudaGetLastError() {
    const cudaError_t error = last_error;
    last_error = cudaSuccess;
    return error;
}

cudaError_t cudaStreamCreateWithFlags(cudaStream_t *out, unsigned flags) {
    if (flags != cudaStreamNonBlocking)
        return fail(cudaErrorInvalidValue);
    *out = new CUstream_st;
    streams.insert(*out);
    return cudaSuccess;
}

cudaError_t cudaStreamDestroy(cudaStream_t stream) {
    drain(stream);
    streams.erase(stream);
    delete stream;
    return cudaSuccess;
}

cudaError_t cudaStreamSynchronize(cudaStream_t stream) {
    return drain(stream);
}

// Does not wait for streams that are not blocking, which all of ours are.
cudaError_t cudaMemcpy(void *to, const void *from, size_t bytes, cudaMemcpyKind kind) {
    const cudaError_t error = copy(to, from, bytes, kind);
    return error == cudaSuccess ? error : fail(error);
}

cudaError_t cudaMemcpyAsync(void *to, const void *from, size_t bytes, cudaMemcpyKind kind,
                            cudaStream_t stream) {
    stream->work.push_back([=] { return copy(to, from, bytes, kind); });
    return cudaSuccess;
}

cudaError_t cudaMemsetAsync(void *to, int value, size_t bytes, cudaStream_t stream) {
    stream->work.push_back([=] {
        if (bytes > 0 && !is_device(to, bytes)) {
            report("cudaMemset: the destination is not in the device's memory");
            return cudaErrorInvalidValue;
        }
        if (bytes > 0)
            memset(to, value, bytes);
        return cudaSuccess;
    });
    return cudaSuccess;
}

cudaError_t cudaFree(void *memory) {
    wait_for_all();
    return cuda_on_cpu::free_memory(memory);
}

cudaError_t cudaFreeHost(void *memory) {
    wait_for_all();
    return cuda_on_cpu::free_memory(memory);
}
