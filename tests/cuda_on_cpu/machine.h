// SPDX-License-Identifier: Apache-2.0
// What the files of the emulation tell each other. Libraries that are emulated beside CUDA's
// runtime (cuBLASLt, cuDNN, NCCL) need `enqueue` and `fails`, and no more.
#pragma once

#include <cuda_runtime.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "tests/cuda_on_cpu/cuda_on_cpu.h"

namespace cuda_on_cpu {

struct Range {
    const void *begin;
    size_t bytes;
};

// Work of a stream: `run` is called once everything before it is through and `ready`, if given,
// says so. It is asked again and again once the stream has come to it; only then may it, and `run`,
// look at memory. Nothing else runs meanwhile. The ranges are all that `run` touches of the
// device's memory and of pinned memory: they are checked to be there, and against the work of other
// streams. A stream that is being captured keeps it, and runs it with every launch of the graph.
cudaError_t enqueue(cudaStream_t stream, const std::string &name, const std::vector<Range> &reads,
                    const std::vector<Range> &writes, std::function<void()> run,
                    std::function<bool()> ready = nullptr);

// Counts a call of a library, and is true when it is the one that has to fail (fail_at).
bool fails(const char *call);

// Everything of the emulation is behind one lock; a thread may take it twice.
std::unique_lock<std::recursive_mutex> hold();

// The device of the calling thread.
int current_device();
// Which device the stream is on.
int device_of(cudaStream_t stream);

// 0..count-1 in the order that was set.
std::vector<int> order_of(int count);

// Problems reported so far; a launch has failed when there are more after it than before.
size_t problem_count();
// The kernel that problems belong to from now on; "" when none runs.
void set_kernel(const std::string &name);

// Forgets the block's shared arrays: the next use makes new, unwritten ones. `most_bytes`: of all.
void shared_begin_block(size_t dynamic_bytes, size_t most_bytes);

// What cudaMalloc, or cudaHostAlloc (device -1), gave and was not given back.
struct Allocation {
    uint8_t *memory;
    size_t bytes;
    int device; // -1: pinned
    bool freed; // and not used again, to be found by who still has its address
    std::shared_ptr<class Touches> touches;
};
// The one that holds the address, or ends there; NULL: none.
Allocation *find_memory(const void *address);
// "" when the range is the device's (or pinned), or what is wrong with it. `device` -1: any.
std::string wrong_with(const Range &range, int device);
// Reports writes beside the allocation of that address; beside any for NULL.
void check_guards(const void *address);

// Counts of what lives.
size_t live_allocations();

} // namespace cuda_on_cpu
