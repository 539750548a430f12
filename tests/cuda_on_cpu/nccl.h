// SPDX-License-Identifier: Apache-2.0
// NCCL on the CPU: what tests may ask, and what the machine with the streams has to offer.
#pragma once

#include <nccl.h>

#include <functional>
#include <string>

namespace nccl_on_cpu {

// Problems since the last call: unmatched sizes, wrong order, use after the end.
std::string take_problems();
// Communicators that were neither destroyed nor aborted.
int live_comms();
// The n-th operation or initialisation from now on fails with ncclSystemError; 0: none.
void fail_at(int n);

// Given by the machine. Puts work at the end of a stream that stays there until `pass` says true;
// asked again and again from when the stream has come to it. `name` is for reports.
void push(cudaStream_t stream, const char *name, std::function<bool()> pass);
// Runs `change` while no stream moves.
void locked(const std::function<void()> &change);

} // namespace nccl_on_cpu
