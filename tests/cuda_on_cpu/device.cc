// SPDX-License-Identifier: Apache-2.0
// Which devices there are, which error came last, which call has to fail, and what was found wrong.
#include <cuda_runtime.h>

#include <algorithm>
#include <cstdio>
#include <map>
#include <numeric>
#include <random>
#include <utility>

#include "tests/cuda_on_cpu/queue.h"

namespace cuda_on_cpu {

namespace {

constexpr size_t kMostProblems = 8; // kept; a broken kernel finds thousands
constexpr size_t kSharedBytes = 48 << 10, kMostSharedBytes = 227 << 10;

std::vector<std::string> problems;
size_t problems_found;
std::string running;
Order order = Order::kForward;
std::mt19937 random_order;
int devices = 1;
int64_t waits, calls_made, call_to_fail;
std::string call_that_failed;
std::map<const void *, size_t> shared_allowed; // by kernel, where more than usual

thread_local int device_now;
thread_local cudaError_t last_error = cudaSuccess;

struct Word {
    cudaError_t error;
    const char *name, *text;
};
const Word words[] = {
    {cudaSuccess, "cudaSuccess", "no error"},
    {cudaErrorInvalidValue, "cudaErrorInvalidValue", "invalid argument"},
    {cudaErrorMemoryAllocation, "cudaErrorMemoryAllocation", "out of memory"},
    {cudaErrorInvalidConfiguration, "cudaErrorInvalidConfiguration",
     "invalid configuration argument"},
    {cudaErrorInvalidDevice, "cudaErrorInvalidDevice", "invalid device ordinal"},
    {cudaErrorInvalidResourceHandle, "cudaErrorInvalidResourceHandle", "invalid resource handle"},
    {cudaErrorNotReady, "cudaErrorNotReady", "device not ready"},
    {cudaErrorIllegalAddress, "cudaErrorIllegalAddress",
     "an illegal memory access was encountered"},
    {cudaErrorLaunchFailure, "cudaErrorLaunchFailure", "unspecified launch failure"},
    {cudaErrorStreamCaptureUnsupported, "cudaErrorStreamCaptureUnsupported",
     "operation not permitted when stream is capturing"},
    {cudaErrorStreamCaptureInvalidated, "cudaErrorStreamCaptureInvalidated",
     "operation failed due to a previous error during capture"},
    {cudaErrorUnknown, "cudaErrorUnknown", "unknown error"},
};

const Word &word_of(cudaError_t error) {
    const auto found = std::find_if(std::begin(words), std::end(words),
                                    [=](const Word &word) { return word.error == error; });
    return found == std::end(words) ? *(std::end(words) - 1) : *found;
}

void add(std::string &text, size_t count, const char *what) {
    if (count > 0)
        text += (text.empty() ? "" : ", ") + std::to_string(count) + " " + what +
                (count > 1 ? "s" : "");
}

} // namespace

void set_order(Order next, uint32_t seed) {
    const auto lock = hold();
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

void set_devices(int count) {
    const auto lock = hold();
    devices = count;
    device_now = 0;
}

int current_device() {
    return device_now;
}

void report(const std::string &problem) {
    const auto lock = hold();
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
    const auto lock = hold();
    check_guards(nullptr);
    std::string text;
    for (const std::string &problem : problems)
        text += problem + "\n";
    problems.clear();
    problems_found = 0;
    return text;
}

bool fails(const char *call) {
    const auto lock = hold();
    if (++calls_made != call_to_fail)
        return false;
    call_that_failed = call;
    return true;
}

void fail_at(int64_t n) {
    const auto lock = hold();
    calls_made = 0;
    call_to_fail = n;
    call_that_failed.clear();
}

int64_t calls() {
    const auto lock = hold();
    return calls_made;
}

std::string failed_call() {
    const auto lock = hold();
    return call_that_failed;
}

cudaError_t fail(cudaError_t error) {
    if (error != cudaSuccess)
        last_error = error;
    return error;
}

void count_host_wait() {
    waits++;
}

int64_t host_waits() {
    const auto lock = hold();
    return waits;
}

std::string what_lives() {
    const auto lock = hold();
    std::string text;
    add(text, live_allocations(), "allocation");
    add(text, live_streams(), "stream");
    add(text, live_events(), "event");
    add(text, live_graphs(), "graph");
    return text;
}

size_t most_shared_bytes(const void *kernel) {
    const auto found = shared_allowed.find(kernel);
    return found == shared_allowed.end() ? kSharedBytes : found->second;
}

} // namespace cuda_on_cpu

using namespace cuda_on_cpu;

const char *cudaGetErrorString(cudaError_t error) {
    return word_of(error).text;
}

const char *cudaGetErrorName(cudaError_t error) {
    return word_of(error).name;
}

cudaError_t cudaGetLastError() {
    return std::exchange(last_error, cudaSuccess);
}

cudaError_t cudaPeekAtLastError() {
    return last_error;
}

// What has nothing to do but give a number.
static cudaError_t give(const char *call, bool valid, cudaError_t error, int *out, int value) {
    const auto lock = hold();
    if (!valid)
        return fail(error);
    if (fails(call))
        return fail(cudaErrorUnknown);
    *out = value;
    return cudaSuccess;
}

cudaError_t cudaDriverGetVersion(int *out) {
    return give("cudaDriverGetVersion", true, cudaSuccess, out, CUDART_VERSION);
}

cudaError_t cudaRuntimeGetVersion(int *out) {
    return give("cudaRuntimeGetVersion", true, cudaSuccess, out, CUDART_VERSION);
}

cudaError_t cudaGetDeviceCount(int *out) {
    const auto lock = hold();
    return give("cudaGetDeviceCount", devices > 0, cudaErrorNoDevice, out, devices);
}

cudaError_t cudaGetDevice(int *out) {
    return give("cudaGetDevice", true, cudaSuccess, out, device_now);
}

static bool is_device(int device) {
    const auto lock = hold();
    return device >= 0 && device < devices;
}

cudaError_t cudaSetDevice(int device) {
    return give("cudaSetDevice", is_device(device), cudaErrorInvalidDevice, &device_now, device);
}

cudaError_t cudaGetDeviceProperties(cudaDeviceProp *out, int device) {
    int major = 0;
    const cudaError_t error =
        give("cudaGetDeviceProperties", is_device(device), cudaErrorInvalidDevice, &major, 9);
    if (error == cudaSuccess)
        *out = {"CUDA on CPU", (size_t)8 << 30, major, 0, 4};
    return error;
}

cudaError_t cudaDeviceGetAttribute(int *out, cudaDeviceAttr attribute, int device) {
    const int value = attribute == cudaDevAttrComputeCapabilityMajor   ? 9
                      : attribute == cudaDevAttrComputeCapabilityMinor ? 0
                      : attribute == cudaDevAttrMultiProcessorCount    ? 4
                                                                       : (int)kMostSharedBytes;
    return give("cudaDeviceGetAttribute", is_device(device), cudaErrorInvalidDevice, out, value);
}

cudaError_t cudaDeviceGetPCIBusId(char *out, int bytes, int device) {
    int number = 0;
    const cudaError_t error =
        give("cudaDeviceGetPCIBusId", is_device(device), cudaErrorInvalidDevice, &number, device);
    if (error == cudaSuccess)
        snprintf(out, (size_t)bytes, "00ff:%02x:00.0", number); // no domain of a real machine
    return error;
}

cudaError_t cudaFuncSetAttribute(const void *function, cudaFuncAttribute attribute, int value) {
    const auto lock = hold();
    if (attribute != cudaFuncAttributeMaxDynamicSharedMemorySize || value < 0 ||
        (size_t)value > kMostSharedBytes)
        return fail(cudaErrorInvalidValue);
    if (fails("cudaFuncSetAttribute"))
        return fail(cudaErrorUnknown);
    shared_allowed[function] = std::max(kSharedBytes, (size_t)value);
    return cudaSuccess;
}
