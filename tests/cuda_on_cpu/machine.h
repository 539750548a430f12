// SPDX-License-Identifier: Apache-2.0
// What the files of the emulation tell each other.
#pragma once

#include <cuda_runtime.h>

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace cuda_on_cpu {

// 0..count-1 in the order that was set.
std::vector<int> order_of(int count);

// Problems reported so far; a launch has failed when there are more after it than before.
size_t problem_count();
// The kernel that problems belong to from now on; "" when none runs.
void set_kernel(const std::string &name);

// Forgets the block's shared arrays: the next use makes new, unwritten ones.
void shared_begin_block(size_t dynamic_bytes);

// Reports writes beside any allocation.
void check_guards();
// Does memory of the device (or pinned memory) hold all these bytes?
bool is_device(const void *from, size_t bytes);
// Gives back what cudaMalloc or cudaMallocHost gave.
cudaError_t free_memory(void *memory);

} // namespace cuda_on_cpu
