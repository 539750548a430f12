/* SPDX-License-Identifier: Apache-2.0 */
/*
 * CUDA's libraries, opened at first use: a program that never computes on a GPU starts without
 * them, and where one is missing only what needs it fails. Who needs functions keeps a struct of
 * pointers of its own, filled here; it hangs beside the library's handle on the stream
 * (cuda_stream.h), so nothing is shared. Refuses to close: their threads may outlive a handle.
 */
#pragma once

#include "engine/base/status.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct crl_cuda_library {
    const char *name;     /* "cuDNN" */
    const char *files[3]; /* "libcudnn.so.9", ... tried in order; NULL ends */
} crl_cuda_library;

extern const crl_cuda_library crl_cuda_library_cublaslt, crl_cuda_library_cudnn,
    crl_cuda_library_nccl;

typedef struct crl_cuda_symbol {
    const char *name; /* "cudnnCreate" */
    void *function;   /* address of a pointer to such a function */
} crl_cuda_symbol;

/* Fills the pointers of `count` symbols. UNSUPPORTED: "cuda: libcudnn.so.9 not found", or without
 * a symbol; nothing is filled then. Local. */
CRL_NODISCARD crl_status crl_cuda_library_load(const crl_cuda_library *library,
                                               const crl_cuda_symbol *symbols, int count);

/* "cuBLASLt 13.1.0, cuDNN 9.19.0, NCCL missing" into `text`. Opens them all. */
void crl_cuda_library_describe(char *text, size_t text_bytes);

#ifdef __cplusplus
}
#endif
