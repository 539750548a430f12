// SPDX-License-Identifier: Apache-2.0
#include "tests/cuda_on_cpu/fiber.h"

#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>

#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/asan_interface.h>
#include <sanitizer/common_interface_defs.h>
#endif

#ifndef CUDA_ON_CPU_PORTABLE
// Saves what a call must keep, exchanges the stacks, and restores the same from the other stack.
extern "C" void cuda_on_cpu_switch(void **from, void *to);
asm(R"(
    .text
    .globl cuda_on_cpu_switch
    .type cuda_on_cpu_switch, @function
cuda_on_cpu_switch:
    pushq %rbp
    pushq %rbx
    pushq %r12
    pushq %r13
    pushq %r14
    pushq %r15
    movq %rsp, (%rdi)
    movq %rsi, %rsp
    popq %r15
    popq %r14
    popq %r13
    popq %r12
    popq %rbx
    popq %rbp
    ret
    .size cuda_on_cpu_switch, .-cuda_on_cpu_switch
)");
#endif

namespace cuda_on_cpu {

namespace {

constexpr size_t kPage = 4096, kStack = 64 * kPage;

char *new_stack() {
    void *memory = mmap(nullptr, kPage + kStack, PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (memory == MAP_FAILED || mprotect(memory, kPage, PROT_NONE) != 0) {
        perror("cuda_on_cpu: stack of a fiber");
        abort();
    }
    return (char *)memory + kPage;
}

} // namespace

Fiber::~Fiber() {
    if (stack_)
        munmap(stack_ - kPage, kPage + kStack);
}

void Fiber::prepare(void (*entry)()) {
    if (!stack_) {
        stack_ = new_stack();
        bottom_ = stack_;
        stack_bytes_ = kStack;
    }
#if defined(__SANITIZE_ADDRESS__)
    __asan_unpoison_memory_region(stack_, stack_bytes_); // of frames that were given up
#endif
#ifdef CUDA_ON_CPU_PORTABLE
    getcontext(&context_);
    context_.uc_stack.ss_sp = stack_;
    context_.uc_stack.ss_size = stack_bytes_;
    context_.uc_link = nullptr;
    makecontext(&context_, entry, 0);
#else
    // From the top: nothing, the address that `ret` goes to, six registers.
    void **top = (void **)(stack_ + stack_bytes_);
    top[-1] = nullptr;
    top[-2] = (void *)entry;
    for (int i = 3; i <= 8; i++)
        top[-i] = nullptr;
    stack_pointer_ = top - 8;
#endif
}

void Fiber::switch_to(Fiber &to) {
#if defined(__SANITIZE_ADDRESS__)
    __sanitizer_start_switch_fiber(&fake_stack_, to.bottom_, to.stack_bytes_);
#endif
#ifdef CUDA_ON_CPU_PORTABLE
    swapcontext(&context_, &to.context_);
#else
    cuda_on_cpu_switch(&stack_pointer_, to.stack_pointer_);
#endif
#if defined(__SANITIZE_ADDRESS__)
    // Who switches back is who was switched to, maybe on another thread's stack than before.
    __sanitizer_finish_switch_fiber(fake_stack_, &to.bottom_, &to.stack_bytes_);
#endif
}

// The scheduler's stack is the thread's own: where it lies is learnt when it is left.
void Fiber::entered(Fiber &from) {
    (void)from;
#if defined(__SANITIZE_ADDRESS__)
    __sanitizer_finish_switch_fiber(nullptr, &from.bottom_, &from.stack_bytes_);
#endif
}

} // namespace cuda_on_cpu
