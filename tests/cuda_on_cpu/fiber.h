// SPDX-License-Identifier: Apache-2.0
// Stacks that run in turn, inside one thread of the host. A switch is a dozen instructions on
// x86-64, and ucontext elsewhere (or with -DCUDA_ON_CPU_UCONTEXT).
#pragma once

#include <stddef.h>

#if !defined(__x86_64__) || defined(CUDA_ON_CPU_UCONTEXT)
#define CUDA_ON_CPU_PORTABLE 1
#include <ucontext.h>
#endif

namespace cuda_on_cpu {

// A place to come back to: the scheduler's, or a fiber's.
class Fiber {
  public:
    Fiber() = default;
    Fiber(const Fiber &) = delete;
    Fiber &operator=(const Fiber &) = delete;
    ~Fiber();

    // Begins anew: the next switch here calls entry(), which never returns.
    void prepare(void (*entry)());
    // Leaves this fiber for `to`; returns when something switches back.
    void switch_to(Fiber &to);
    // entry() calls it first of all; `from` is who switched.
    static void entered(Fiber &from);

  private:
    char *stack_ = nullptr;        // own: with a page below it that may not be touched
    const void *bottom_ = nullptr; // of the stack that is run on, for AddressSanitizer
    size_t stack_bytes_ = 0;
    [[maybe_unused]] void *fake_stack_ = nullptr;
#ifdef CUDA_ON_CPU_PORTABLE
    ucontext_t context_;
#else
    void *stack_pointer_ = nullptr;
#endif
};

} // namespace cuda_on_cpu
