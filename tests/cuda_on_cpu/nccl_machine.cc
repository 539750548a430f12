// SPDX-License-Identifier: Apache-2.0
// What NCCL on the CPU needs of the emulated machine.
#include "tests/cuda_on_cpu/machine.h"
#include "tests/cuda_on_cpu/nccl.h"

namespace nccl_on_cpu {

static std::vector<cuda_on_cpu::Range> ranges_of(const std::vector<Range> &ranges) {
    std::vector<cuda_on_cpu::Range> all;
    for (const Range &range : ranges)
        all.push_back({range.begin, range.bytes});
    return all;
}

void push(cudaStream_t stream, const std::string &name, const std::vector<Range> &reads,
          const std::vector<Range> &writes, std::function<bool()> pass) {
    (void)cuda_on_cpu::enqueue(
        stream, name, ranges_of(reads), ranges_of(writes), [] {}, std::move(pass));
}

std::shared_ptr<void> hold() {
    using Lock = std::unique_lock<std::recursive_mutex>;
    return std::make_shared<Lock>(cuda_on_cpu::hold());
}

bool fails(const char *call) {
    return cuda_on_cpu::fails(call);
}

void report(const std::string &problem) {
    cuda_on_cpu::report("NCCL: " + problem);
}

} // namespace nccl_on_cpu
