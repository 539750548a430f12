// SPDX-License-Identifier: Apache-2.0
// A launch: its arguments are copied when it is made, its blocks run when somebody waits for the
// stream. Pointers among the arguments must be the device's.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <tuple>
#include <type_traits>
#include <vector>

namespace cuda_on_cpu {

struct Launch {
    std::string kernel;
    dim3 grid, block;
    size_t shared_bytes;
    std::vector<const void *> pointers;
    std::function<void()> body; // of one thread
};

// Checks the sizes and queues it; a failure is what cudaGetLastError gives next.
void queue(cudaStream_t stream, Launch launch);

template <typename T> void add_pointer(std::vector<const void *> &pointers, const T &value) {
    if constexpr (std::is_pointer_v<T>)
        pointers.push_back((const void *)value);
    else
        (void)pointers, (void)value;
}

template <typename... P, typename... A>
void launch(const char *name, void (*kernel)(P...), dim3 grid, dim3 block, size_t shared_bytes,
            cudaStream_t stream, A &&...arguments) {
    const auto kept = std::make_shared<std::tuple<P...>>(std::forward<A>(arguments)...);
    Launch made = {name, grid, block, shared_bytes, {}, [=] { std::apply(kernel, *kept); }};
    std::apply([&](const auto &...value) { (add_pointer(made.pointers, value), ...); }, *kept);
    queue(stream, std::move(made));
}

} // namespace cuda_on_cpu
