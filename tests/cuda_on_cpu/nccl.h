// SPDX-License-Identifier: Apache-2.0
// NCCL on the CPU: what tests may ask, and what the machine with the streams has to offer.
#pragma once

#include <nccl.h>

#include <functional>
#include <memory>
#include <string>
#include <vector>

namespace nccl_on_cpu {

// Communicators that were neither destroyed nor aborted.
int live_comms();

// What the machine with the streams has to offer: nccl_machine.cc, or a test's own.

struct Range {
    const void *begin;
    size_t bytes;
};
// Puts work at the end of a stream that stays there until `pass` says true; asked again and again
// from when the stream has come to it, while no other work runs. The ranges are what it touches.
void push(cudaStream_t stream, const std::string &name, const std::vector<Range> &reads,
          const std::vector<Range> &writes, std::function<bool()> pass);
// While it lives no stream moves.
std::shared_ptr<void> hold();
// Counts a call, and is true when it is the one that has to fail.
bool fails(const char *call);
// A misuse, or sizes and orders that do not fit.
void report(const std::string &problem);

} // namespace nccl_on_cpu
