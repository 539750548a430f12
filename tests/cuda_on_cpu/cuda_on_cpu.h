// SPDX-License-Identifier: Apache-2.0
// What tests say to the emulation, and hear from it.
#pragma once

#include <cstdint>
#include <string>

namespace cuda_on_cpu {

// In which order the blocks of a grid, and the threads of a block between barriers, run.
enum class Order { kForward, kReverse, kRandom };
void set_order(Order order, uint32_t seed = 0);

// When queued work runs. kLate: when somebody waits, and only what has to; kForward, kReverse: when
// somebody waits, all of one stream after the other as far as events allow, oldest or newest first;
// kRandom: a stream at a time, drawn; kNow: as soon as events allow.
enum class Streams { kLate, kForward, kReverse, kRandom, kNow };
void set_streams(Streams streams, uint32_t seed = 0);

// A wait in which nothing happens for so long is reported as a deadlock; 20 s at first.
void set_deadline(int ms);

// How many devices there are; 1 at first. None of them may be in use.
void set_devices(int count);

// What was found wrong since the last call, a line each; empty: nothing. Every line names the
// kernel.
std::string take_problems();
// Notes a problem of the kernel that runs; its launch then counts as failed.
void report(const std::string &problem);

// The n-th call of a library from now on fails, once; 0: none.
void fail_at(int64_t n);
// Calls since then, and the one that failed; "" when none has.
int64_t calls();
std::string failed_call();

// What was made and not destroyed: "3 allocations, 1 stream"; "" for nothing.
std::string what_lives();

// How often the host waited for the device: synchronised, freed memory, copied on the spot.
int64_t host_waits();

} // namespace cuda_on_cpu
