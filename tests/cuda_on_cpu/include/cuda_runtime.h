// SPDX-License-Identifier: Apache-2.0
// The part of CUDA that engine/kernels/cuda uses, for g++: this folder comes first on the include
// path of the emulation, so the same .cu files become functions that run on the CPU, a thread of a
// block being a fiber. What the kernels do not use is not here, and fails to compile. Written
// from the meaning that the CUDA C++ programming guide gives each name.
#pragma once

#include <cuda_runtime_api.h>
#include <math.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <functional>
#include <memory>
#include <tuple>
#include <type_traits>
#include <vector>

#define __global__
#define __device__
#define __host__
#define __launch_bounds__(...)

struct dim3 {
    unsigned x, y, z;
    dim3(unsigned a = 1, unsigned b = 1, unsigned c = 1) : x(a), y(b), z(c) {}
};
struct uint3 {
    unsigned x, y, z;
};
struct alignas(16) float4 {
    float x, y, z, w;
};
inline float4 make_float4(float x, float y, float z, float w) {
    return {x, y, z, w};
}

template <typename F>
cudaError_t cudaFuncSetAttribute(F *function, cudaFuncAttribute attribute, int value) {
    return cudaFuncSetAttribute((const void *)function, attribute, value);
}

#include "tests/cuda_on_cpu/block.h"
#include "tests/cuda_on_cpu/launch.h"
#include "tests/cuda_on_cpu/shared.h"

#define CRL_LAUNCH(kernel, grid, block, shared_bytes, stream, ...)                                 \
    cuda_on_cpu::launch(#kernel, kernel, dim3(grid), dim3(block), shared_bytes, stream, __VA_ARGS__)
#define CRL_SHARED(type, name, count)                                                              \
    static char name##_place;                                                                      \
    const cuda_on_cpu::Shared<type> name(#name, &name##_place, (size_t)(count))
#define CRL_SHARED_DYNAMIC(type, name)                                                             \
    static char name##_place;                                                                      \
    const cuda_on_cpu::Shared<type> name(#name, &name##_place,                                     \
                                         cuda_on_cpu::dynamic_shared_bytes() / sizeof(type))

#define threadIdx (cuda_on_cpu::thread_index())
#define blockIdx  (cuda_on_cpu::block_index())
#define blockDim  (cuda_on_cpu::block_size())
#define gridDim   (cuda_on_cpu::grid_size())

#define __syncthreads()             ((void)cuda_on_cpu::sync_block({__FILE__, __LINE__}, false))
#define __syncthreads_or(predicate) cuda_on_cpu::sync_block({__FILE__, __LINE__}, (predicate) != 0)
#define __syncwarp()                                                                               \
    ((void)cuda_on_cpu::sync_warp({__FILE__, __LINE__}, "__syncwarp", ~0u, 0, cuda_on_cpu::lane()))
#define __shfl_xor_sync(mask, value, lanes)                                                        \
    cuda_on_cpu::shuffle({__FILE__, __LINE__}, "__shfl_xor_sync", mask, value,                     \
                         cuda_on_cpu::lane() ^ (lanes))
#define __shfl_down_sync(mask, value, lanes, width)                                                \
    cuda_on_cpu::shuffle({__FILE__, __LINE__}, "__shfl_down_sync", mask, value,                    \
                         cuda_on_cpu::lane_down(lanes, width))
#define __ballot_sync(mask, predicate)                                                             \
    cuda_on_cpu::ballot({__FILE__, __LINE__}, mask, (predicate) != 0)

template <typename T> T atomicMin(T *at, T value) { // fibers are never interrupted
    const T before = *at;
    *at = value < before ? value : before;
    return before;
}

inline uint32_t __umulhi(uint32_t a, uint32_t b) {
    return (uint32_t)((uint64_t)a * b >> 32);
}
inline int __ffs(int x) {
    return __builtin_ffs(x);
}
inline float __int_as_float(int bits) {
    float x;
    memcpy(&x, &bits, sizeof x);
    return x;
}
