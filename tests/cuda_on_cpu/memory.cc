// SPDX-License-Identifier: Apache-2.0
// The device's memory: every allocation stands between guards, and both begin as 0xff bytes, which
// is NaN. A write beside an allocation is found after the launch; a read gives NaN.
#include <cuda_runtime.h>

#include <stdlib.h>

#include <algorithm>
#include <map>

#include "tests/cuda_on_cpu/cuda_on_cpu.h"
#include "tests/cuda_on_cpu/machine.h"

namespace cuda_on_cpu {

namespace {

constexpr size_t kGuard = 1024, kAlign = 256;
constexpr uint8_t kPoison = 0xff;

std::map<const uint8_t *, size_t> allocations; // by address: bytes

cudaError_t allocate(void **out, size_t bytes) {
    const size_t whole = (bytes + kAlign - 1) / kAlign * kAlign + 2 * kGuard;
    uint8_t *memory = (uint8_t *)aligned_alloc(kAlign, whole);
    if (!memory)
        return cudaErrorMemoryAllocation;
    memset(memory, kPoison, whole);
    allocations[memory + kGuard] = bytes;
    *out = memory + kGuard;
    return cudaSuccess;
}

} // namespace

void check_guards() {
    for (const auto &[memory, bytes] : allocations) {
        const auto bad = [](uint8_t byte) { return byte != kPoison; };
        const uint8_t *before = std::find_if(memory - kGuard, memory, bad);
        const uint8_t *end = memory + bytes, *behind = std::find_if(end, end + kGuard, bad);
        const std::string array = " an array of " + std::to_string(bytes) + " bytes";
        if (before != memory)
            report("writes " + std::to_string(memory - before) + " bytes before" + array);
        if (behind != end + kGuard)
            report("writes " + std::to_string(behind - end) + " bytes behind the end of" + array);
        memset((uint8_t *)memory - kGuard, kPoison, kGuard); // to be reported once
        memset((uint8_t *)end, kPoison, kGuard);
    }
}

bool is_device(const void *from, size_t bytes) {
    const uint8_t *address = (const uint8_t *)from;
    auto next = allocations.upper_bound(address);
    if (next == allocations.begin())
        return false;
    const auto &[memory, size] = *--next;
    return address <= memory + size && bytes <= size - (size_t)(address - memory);
}

cudaError_t free_memory(void *memory) {
    if (memory == nullptr)
        return cudaSuccess;
    if (allocations.erase((const uint8_t *)memory) == 0) {
        report("cudaFree: not an address that was given out");
        return cudaErrorInvalidValue;
    }
    free((uint8_t *)memory - kGuard);
    return cudaSuccess;
}

} // namespace cuda_on_cpu

cudaError_t cudaMalloc(void **out, size_t bytes) {
    return cuda_on_cpu::allocate(out, bytes);
}

cudaError_t cudaMallocHost(void **out, size_t bytes) {
    return cuda_on_cpu::allocate(out, bytes);
}
