// SPDX-License-Identifier: Apache-2.0
// A launch: its arguments are copied when it is made, its blocks run when somebody waits for the
// stream. Pointers among the arguments must be the device's. To const: what they point to is read;
// else written. Pointers inside structs are taken for read.
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
    const void *function;
    dim3 grid, block;
    size_t shared_bytes;
    std::vector<const void *> reads, writes;
    std::vector<uint64_t> words; // of structs: each may be a pointer
    std::function<void()> body;  // of one thread
};

// Checks the sizes and queues it; a failure is what cudaGetLastError gives next.
void queue(cudaStream_t stream, Launch launch);

template <typename T> void add_argument(Launch &launch, const T &value) {
    if constexpr (std::is_pointer_v<T>) {
        const bool is_read = std::is_const_v<std::remove_pointer_t<T>>;
        (is_read ? launch.reads : launch.writes).push_back((const void *)value);
    } else if constexpr (std::is_class_v<T> && std::is_trivially_copyable_v<T>) {
#if __has_builtin(__builtin_clear_padding) // else what lies between members may look like pointers
        const size_t count = sizeof value / sizeof(uint64_t), before = launch.words.size();
        T clean = value;
        __builtin_clear_padding(&clean);
        launch.words.resize(before + count);
        if (count > 0)
            memcpy(&launch.words[before], &clean, count * sizeof(uint64_t));
#else
        (void)launch, (void)value;
#endif
    } else {
        (void)launch, (void)value;
    }
}

template <typename... P, typename... A>
void launch(const char *name, void (*kernel)(P...), dim3 grid, dim3 block, size_t shared_bytes,
            cudaStream_t stream, A &&...arguments) {
    const auto kept = std::make_shared<std::tuple<P...>>(std::forward<A>(arguments)...);
    Launch made = {name, (const void *)kernel, grid, block, shared_bytes, {}, {}, {}, {}};
    made.body = [=] { std::apply(kernel, *kept); };
    std::apply([&](const auto &...value) { (add_argument(made, value), ...); }, *kept);
    queue(stream, std::move(made));
}

} // namespace cuda_on_cpu
