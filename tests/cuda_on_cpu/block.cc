// SPDX-License-Identifier: Apache-2.0
#include "tests/cuda_on_cpu/block.h"

#include <cuda_runtime.h>

#include <algorithm>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "tests/cuda_on_cpu/cuda_on_cpu.h"
#include "tests/cuda_on_cpu/fiber.h"
#include "tests/cuda_on_cpu/machine.h"

namespace cuda_on_cpu {

namespace {

constexpr int kWarp = 32;
const char kBallot[] = "__ballot_sync";
enum class State { kReady, kAtBlock, kAtWarp, kDone, kStuck };

struct Thread {
    Fiber fiber;
    uint3 index;
    State state = State::kDone;
    bool started = false;
    Place place = {"", 0}; // where it waits
    // what it brought to a warp's operation, and took away
    const char *operation = "";
    unsigned mask = 0;
    uint64_t value = 0;
    int source = 0;
    uint64_t result = 0;
};

// The block that runs: there is one at a time.
struct Block {
    dim3 grid, size;
    uint3 index = {0, 0, 0};
    const std::function<void()> *body = nullptr;
    std::vector<std::unique_ptr<Thread>> threads;
    int count = 0, current = 0, arrived = 0, epoch = 0;
    bool any = false, any_result = false;
    std::vector<int> warp_epoch;
    Fiber scheduler;
};

Block block;

Thread &current() {
    return *block.threads[(size_t)block.current];
}

std::string at(Place place) {
    return std::string(place.file) + ":" + std::to_string(place.line);
}

std::string named(int thread) {
    return "thread " + std::to_string(thread);
}

void yield() {
    current().fiber.switch_to(block.scheduler);
}

void entry() {
    Fiber::entered(block.scheduler);
    for (;;) { // a fiber lives on from block to block
        (*block.body)();
        current().state = State::kDone;
        yield();
    }
}

// A fiber that stays is given up with all its stack holds: no strings, for they would leak.
[[noreturn]] void stay() {
    for (;;) {
        current().state = State::kStuck;
        yield();
    }
}

void prepare(const dim3 &size) {
    block.count = (int)(size.x * size.y * size.z);
    while ((int)block.threads.size() < block.count)
        block.threads.push_back(std::make_unique<Thread>());
    for (int t = 0; t < block.count; t++) {
        Thread &thread = *block.threads[(size_t)t];
        thread.index = {(unsigned)t % size.x, (unsigned)t / size.x % size.y,
                        (unsigned)t / (size.x * size.y)};
        thread.state = State::kReady;
        if (!thread.started)
            thread.fiber.prepare(entry);
        thread.started = true;
    }
    block.arrived = block.epoch = 0;
    block.any = false;
    block.warp_epoch.assign((size_t)(block.count + kWarp - 1) / kWarp, 0);
}

void report_deadlock() {
    int waiting = -1, other = -1;
    for (int t = 0; t < block.count; t++) {
        const State state = block.threads[(size_t)t]->state;
        if (state == State::kStuck)
            return; // has been reported
        if (waiting < 0 && (state == State::kAtBlock || state == State::kAtWarp))
            waiting = t;
        if (state == State::kDone)
            other = t;
    }
    if (waiting < 0)
        return;
    const Thread &thread = *block.threads[(size_t)waiting];
    const bool at_block = thread.state == State::kAtBlock;
    std::string text = "deadlock: " + named(waiting) + " waits in " +
                       (at_block ? "__syncthreads" : thread.operation) + " at " + at(thread.place);
    if (other >= 0)
        text += ", " + named(other) + " has ended";
    report(text);
}

// After a deadlock fibers stand in the middle of a kernel: the next block begins anew.
bool finish() {
    bool good = true;
    for (int t = 0; t < block.count; t++)
        good = good && block.threads[(size_t)t]->state == State::kDone;
    if (good)
        return true;
    report_deadlock();
    for (int t = 0; t < block.count; t++)
        block.threads[(size_t)t]->started = false;
    return false;
}

void complete_warp(int first, unsigned mask) {
    unsigned exists = 0;
    uint64_t all = 0;
    for (int l = 0; l < kWarp && first + l < block.count; l++) {
        exists |= 1u << l;
        if (mask & 1u << l)
            all |= block.threads[(size_t)(first + l)]->value;
    }
    for (int l = 0; l < kWarp; l++) {
        if (!(mask & exists & 1u << l))
            continue;
        Thread &thread = *block.threads[(size_t)(first + l)];
        const int source = thread.source;
        if (source < 0 || source >= kWarp || !(mask & exists & 1u << source)) {
            report(named(first + l) + " reads lane " + std::to_string(source) +
                   ", which takes no part, in " + thread.operation + " at " + at(thread.place));
            thread.result = ~0ull;
        } else {
            thread.result = strcmp(thread.operation, kBallot) == 0
                                ? all
                                : block.threads[(size_t)(first + source)]->value;
        }
        thread.state = State::kReady;
    }
}

// Have all lanes of the mask arrived? They must do the same with the same mask.
bool warp_is_complete(int first, const Thread &own) {
    for (int l = 0; l < kWarp && first + l < block.count; l++) {
        if (!(own.mask & 1u << l))
            continue;
        const Thread &other = *block.threads[(size_t)(first + l)];
        if (other.state != State::kAtWarp)
            return false;
        if (other.mask != own.mask || strcmp(other.operation, own.operation) != 0) {
            report(named(block.current) + " is in " + own.operation + " at " + at(own.place) +
                   ", " + named(first + l) + " of its mask in " + other.operation + " at " +
                   at(other.place));
            stay();
        }
    }
    return true;
}

} // namespace

const uint3 &thread_index() {
    return current().index;
}
const uint3 &block_index() {
    return block.index;
}
const dim3 &block_size() {
    return block.size;
}
const dim3 &grid_size() {
    return block.grid;
}

Moment now() {
    const int warp = block.current / kWarp;
    return {warp, block.current % kWarp, block.epoch, block.warp_epoch[(size_t)warp]};
}

int lane() {
    return block.current % kWarp;
}

bool run_block(const dim3 &grid, const dim3 &size, const uint3 &index,
               const std::function<void()> &body) {
    block.grid = grid;
    block.size = size;
    block.index = index;
    block.body = &body;
    prepare(size);
    const std::vector<int> order = order_of(block.count);
    for (bool moved = true; moved;) {
        moved = false;
        for (int t : order) {
            if (block.threads[(size_t)t]->state != State::kReady)
                continue;
            block.current = t;
            block.scheduler.switch_to(block.threads[(size_t)t]->fiber);
            moved = true;
        }
    }
    return finish();
}

bool sync_block(Place place, bool predicate) {
    Thread &own = current();
    own.place = place;
    own.state = State::kAtBlock;
    block.any = block.any || predicate;
    if (++block.arrived < block.count) {
        yield();
        return block.any_result;
    }
    for (int t = 0; t < block.count; t++) {
        const Place other = block.threads[(size_t)t]->place;
        if (other.line != place.line || strcmp(other.file, place.file) != 0) {
            report("divergent barrier: " + named(block.current) + " is at " + at(place) + ", " +
                   named(t) + " at " + at(other));
            stay();
        }
    }
    for (int t = 0; t < block.count; t++)
        block.threads[(size_t)t]->state = State::kReady;
    block.any_result = block.any;
    block.any = false;
    block.arrived = 0;
    block.epoch++;
    return block.any_result;
}

uint64_t sync_warp(Place place, const char *operation, unsigned mask, uint64_t value, int source) {
    Thread &own = current();
    const int first = block.current / kWarp * kWarp;
    own.place = place;
    own.operation = operation;
    own.mask = mask;
    own.value = value;
    own.source = source;
    own.state = State::kAtWarp;
    if (!(mask & 1u << lane())) {
        report(named(block.current) + " is not in its own mask in " + operation + " at " +
               at(place));
        stay();
    }
    if (warp_is_complete(first, own)) {
        complete_warp(first, mask);
        if (strcmp(operation, "__syncwarp") == 0)
            block.warp_epoch[(size_t)(first / kWarp)]++;
    } else {
        yield();
    }
    return own.result;
}

unsigned ballot(Place place, unsigned mask, bool predicate) {
    return (unsigned)sync_warp(place, kBallot, mask, predicate ? 1u << lane() : 0, lane());
}

} // namespace cuda_on_cpu
