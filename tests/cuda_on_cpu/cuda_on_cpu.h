// SPDX-License-Identifier: Apache-2.0
// What tests say to the emulation, and hear from it.
#pragma once

#include <cstdint>
#include <string>

namespace cuda_on_cpu {

// In which order the blocks of a grid, and the threads of a block between barriers, run.
enum class Order { kForward, kReverse, kRandom };
void set_order(Order order, uint32_t seed = 0);

// What was found wrong since the last call, a line each; empty: nothing. Every line names the
// kernel.
std::string take_problems();
// Notes a problem of the kernel that runs; its launch then counts as failed.
void report(const std::string &problem);

} // namespace cuda_on_cpu
