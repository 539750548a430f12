// SPDX-License-Identifier: Apache-2.0
// One block of threads: who runs, who waits where, and what lanes of a warp give each other.
//
// A thread runs until it waits or ends. __syncthreads lets the block go on when every thread has
// arrived at the same place; a warp's operation when every lane of its mask has. If nobody can run
// and somebody waits, that is a deadlock: it is reported with the places, and the launch ends.
#pragma once

#include <stdint.h>
#include <string.h>

#include <functional>

struct uint3;
struct dim3;

namespace cuda_on_cpu {

struct Place {
    const char *file;
    int line;
};

const uint3 &thread_index();
const uint3 &block_index();
const dim3 &block_size();
const dim3 &grid_size();

// Runs all threads of one block; false when it failed. `index` of the block in its grid.
bool run_block(const dim3 &grid, const dim3 &block, const uint3 &index,
               const std::function<void()> &body);

// Of the thread that runs: its lane and warp, and how often its block and warp have met. Two
// accesses of the same block epoch are ordered only within a warp, by different warp epochs.
struct Moment {
    int warp, lane, block_epoch, warp_epoch;
};
Moment now();
int lane();

// Waits for the whole block; true where any thread's predicate was.
bool sync_block(Place place, bool predicate);
// Waits for the lanes of `mask`, then gives what lane `source` brought.
uint64_t sync_warp(Place place, const char *operation, unsigned mask, uint64_t value, int source);
// Bit l: lane l of the mask brought true.
unsigned ballot(Place place, unsigned mask, bool predicate);

// The lane `lanes` further in this lane's group of `width`; itself at the group's end.
inline int lane_down(int lanes, int width) {
    const int own = lane();
    return own % width + lanes < width ? own + lanes : own;
}

template <typename T>
T shuffle(Place place, const char *operation, unsigned mask, T value, int source) {
    static_assert(sizeof value == 4 || sizeof value == 8, "a shuffle moves 4 or 8 bytes");
    uint64_t bits = 0;
    memcpy(&bits, &value, sizeof value);
    bits = sync_warp(place, operation, mask, bits, source);
    memcpy(&value, &bits, sizeof value);
    return value;
}

} // namespace cuda_on_cpu
