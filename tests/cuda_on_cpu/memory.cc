// SPDX-License-Identifier: Apache-2.0
// The device's memory: every allocation stands between guards, and both begin as 0xff bytes, which
// is NaN. A write beside an allocation is found after the launch; a read gives NaN. What was freed
// is kept for a while, spoiled, so that its next use is found.
#include <cuda_runtime.h>

#include <malloc.h>
#include <stdlib.h>

#include <deque>
#include <map>

#include "tests/cuda_on_cpu/order.h"
#include "tests/cuda_on_cpu/queue.h"

namespace cuda_on_cpu {

namespace {

constexpr size_t kGuard = 1024, kAlign = 256;
constexpr size_t kDeviceBytes = (size_t)8 << 30, kFreedBytes = 64 << 20, kFreedCount = 4096;
constexpr uint8_t kPoison = 0xff;

// Never destroyed: what is kept is not lost when the program ends.
auto &allocations = *new std::map<const uint8_t *, Allocation>; // by address
auto &freed = *new std::deque<uint8_t *>;                       // oldest first
size_t freed_bytes, used_bytes, live_count;

size_t whole(size_t bytes) {
    return (bytes + kAlign - 1) / kAlign * kAlign + 2 * kGuard;
}

cudaError_t allocate(void **out, size_t bytes, int device) {
    // Libraries' workspaces come and go by the thousand: their pages stay with the process.
    static const int kept = mallopt(M_MMAP_THRESHOLD, 1 << 30) + mallopt(M_TRIM_THRESHOLD, 1 << 30);
    (void)kept;
    *out = nullptr;
    if (bytes == 0 || bytes > kDeviceBytes - used_bytes)
        return bytes == 0 ? cudaSuccess : cudaErrorMemoryAllocation;
    uint8_t *memory = (uint8_t *)aligned_alloc(kAlign, whole(bytes));
    if (!memory)
        return cudaErrorMemoryAllocation;
    memset(memory, kPoison, whole(bytes));
    allocations[memory + kGuard] = {memory + kGuard, bytes, device, false,
                                    std::make_shared<Touches>()};
    used_bytes += bytes;
    live_count++;
    *out = memory + kGuard;
    return cudaSuccess;
}

void forget_oldest() {
    uint8_t *const memory = freed.front();
    freed.pop_front();
    freed_bytes -= allocations[memory].bytes;
    allocations.erase(memory);
    free(memory - kGuard);
}

cudaError_t release(const char *call, void *address, bool pinned) {
    const auto found = allocations.find((const uint8_t *)address);
    if (found == allocations.end() || found->second.freed || (found->second.device < 0) != pinned) {
        report(std::string(call) + ": not an address that was given out");
        return cudaErrorInvalidValue;
    }
    check_guards(address);
    Allocation &gone = found->second;
    memset(gone.memory, kPoison, gone.bytes);
    gone.freed = true;
    gone.touches.reset();
    used_bytes -= gone.bytes;
    live_count--;
    freed_bytes += gone.bytes;
    freed.push_back(gone.memory);
    while (freed_bytes > kFreedBytes || freed.size() > kFreedCount)
        forget_oldest();
    return cudaSuccess;
}

// The first byte of a guard that was written, or -1; it is mended, to be reported once.
ptrdiff_t broken(uint8_t *guard) {
    for (size_t i = 0; i < kGuard; i++) {
        if (guard[i] != kPoison) {
            memset(guard, kPoison, kGuard);
            return (ptrdiff_t)i;
        }
    }
    return -1;
}

void check(const Allocation &a) {
    static const std::vector<uint8_t> clean(kGuard, kPoison);
    const std::string array = " an array of " + std::to_string(a.bytes) + " bytes";
    if (memcmp(a.memory - kGuard, clean.data(), kGuard) != 0)
        report("writes " + std::to_string((ptrdiff_t)kGuard - broken(a.memory - kGuard)) +
               " bytes before" + array);
    if (memcmp(a.memory + a.bytes, clean.data(), kGuard) != 0)
        report("writes " + std::to_string(broken(a.memory + a.bytes)) + " bytes behind the end of" +
               array);
}

cudaError_t give(const char *call, void **out, size_t bytes, bool pinned) {
    const auto lock = hold();
    if (const cudaError_t error = refused_in_capture(); error != cudaSuccess)
        return fail(error);
    if (fails(call))
        return fail(cudaErrorMemoryAllocation);
    return fail(allocate(out, bytes, pinned ? -1 : current_device()));
}

cudaError_t take_back(const char *call, void *address, bool pinned) {
    const auto lock = hold();
    if (const cudaError_t error = refused_in_capture(); error != cudaSuccess)
        return fail(error);
    const bool failing = fails(call);
    if (address == nullptr)
        return failing ? fail(cudaErrorUnknown) : cudaSuccess;
    run_all();
    const cudaError_t error = release(call, address, pinned);
    return error != cudaSuccess ? fail(error) : failing ? fail(cudaErrorUnknown) : cudaSuccess;
}

} // namespace

void check_guards(const void *address) {
    if (address) {
        const Allocation *one = find_memory(address);
        if (one && !one->freed)
            check(*one);
        return;
    }
    for (const auto &[memory, one] : allocations) {
        if (!one.freed)
            check(one);
    }
}

Allocation *find_memory(const void *address) {
    auto next = allocations.upper_bound((const uint8_t *)address);
    if (next == allocations.begin())
        return nullptr;
    Allocation &found = (--next)->second;
    return (const uint8_t *)address <= found.memory + found.bytes ? &found : nullptr;
}

std::string wrong_with(const Range &range, int device) {
    const Allocation *memory = find_memory(range.begin);
    if (!memory)
        return "memory that is not the device's";
    const std::string array = "an array of " + std::to_string(memory->bytes) + " bytes";
    const size_t at = (size_t)((const uint8_t *)range.begin - memory->memory);
    if (memory->freed)
        return array + " that was freed";
    if (range.bytes > memory->bytes - at)
        return std::to_string(range.bytes) + " bytes from byte " + std::to_string(at) + " of " +
               array;
    if (device >= 0 && memory->device >= 0 && memory->device != device)
        return "memory of device " + std::to_string(memory->device) + ", not " +
               std::to_string(device);
    return "";
}

size_t live_allocations() {
    return live_count;
}

} // namespace cuda_on_cpu

using namespace cuda_on_cpu;

cudaError_t cudaMalloc(void **out, size_t bytes) {
    return give("cudaMalloc", out, bytes, false);
}

cudaError_t cudaMallocHost(void **out, size_t bytes) {
    return give("cudaMallocHost", out, bytes, true);
}

cudaError_t cudaHostAlloc(void **out, size_t bytes, unsigned flags) {
    (void)flags;
    return give("cudaHostAlloc", out, bytes, true);
}

cudaError_t cudaFree(void *memory) {
    return take_back("cudaFree", memory, false);
}

cudaError_t cudaFreeHost(void *memory) {
    return take_back("cudaFreeHost", memory, true);
}

cudaError_t cudaMemGetInfo(size_t *free_bytes, size_t *total_bytes) {
    const auto lock = hold();
    if (fails("cudaMemGetInfo"))
        return fail(cudaErrorUnknown);
    *free_bytes = kDeviceBytes - used_bytes;
    *total_bytes = kDeviceBytes;
    return cudaSuccess;
}
