/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The three words in which kernels differ between nvcc and the emulation on the CPU
 * (tests/cuda_on_cpu), whose <cuda_runtime.h> has its own. Refuses plain __shared__: only arrays
 * that are named by these macros can be watched for races.
 */
#pragma once

#include "engine/device/cuda_stream.h"

#include <cuda_runtime.h>
#include <stdint.h>

#ifdef __CUDACC__
/* kernel, dim3 grid, dim3 block, size_t dynamic shared bytes, cudaStream_t, the kernel's arguments
 */
#define CRL_LAUNCH(kernel, grid, block, shared_bytes, stream, ...)                                 \
    kernel<<<(grid), (block), (shared_bytes), (stream)>>>(__VA_ARGS__)
/* type name[count] of the block */
#define CRL_SHARED(type, name, count) __shared__ type name[count]
/* type *name: the launch's dynamic shared memory */
#define CRL_SHARED_DYNAMIC(type, name)                                                             \
    extern __shared__ __align__(16) unsigned char crl_dynamic_shared[];                            \
    type *const name = reinterpret_cast<type *>(crl_dynamic_shared)
#endif

enum {
    CRL_CUDA_GRID_X = 2147483647,
    CRL_CUDA_GRID_Y = 65535,
    CRL_CUDA_THREADS = 256, /* of a block, unless a kernel says otherwise */
    CRL_CUDA_WARP = 32
};

/* The status of the launches since the last one that was asked about. */
static inline crl_status crl_cuda_launched(const char *what) {
    CRL_CUDA_TRY(what, cudaGetLastError());
    return CRL_STATUS_OK;
}

__host__ __device__ static inline int64_t crl_cuda_min(int64_t a, int64_t b) {
    return a < b ? a : b;
}

static inline int64_t crl_cuda_ceil_div(int64_t a, int64_t b) {
    return (a + b - 1) / b;
}

/* Threads of a block that does a row of c elements, `width` a thread: whole warps, and enough for
 * the row if that is not more than CRL_CUDA_THREADS. */
static inline unsigned crl_cuda_row_threads(int64_t c, int width) {
    const int64_t warps = crl_cuda_ceil_div(c, width * CRL_CUDA_WARP);
    const int64_t threads = CRL_CUDA_WARP * (warps < 1 ? 1 : warps);
    return (unsigned)crl_cuda_min(threads, CRL_CUDA_THREADS);
}

/* A dimension of a grid. The sizes of one micro-batch are far below what a grid can hold. */
static inline unsigned crl_cuda_grid(int64_t blocks, int64_t limit) {
    CRL_ASSERT(blocks > 0 && blocks <= limit);
    return (unsigned)blocks;
}
