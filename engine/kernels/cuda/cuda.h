/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The CUDA backend's face: its table of operations and the stream they run on. No CUDA type is seen
 * here, so any file may include it. Refuses to be quick about wrong indices: an operation that is
 * asynchronous notes them on the device, and the next one that waits reports them.
 */
#pragma once

#include "engine/kernels/kernels.h"

#ifdef __cplusplus
extern "C" {
#endif

/* f32, bf16, f16. */
extern const crl_kernels crl_kernels_cuda, crl_kernels_cuda_bf16, crl_kernels_cuda_f16;

/* A queue of work on the current device, with the small scratch that its reductions need. The
 * caller owns it. DEVICE (no GPU, no driver, out of memory), NOMEM. Blocking. */
CRL_NODISCARD crl_status crl_cuda_stream_create(crl_stream **out);
/* Waits for what is queued, then frees; NULL is fine. */
void crl_cuda_stream_destroy(crl_stream *stream);
/* Waits for everything queued. DEVICE when a kernel failed; INVALID when one met a token outside
 * its vocabulary. */
CRL_NODISCARD crl_status crl_cuda_stream_wait(crl_stream *stream);

#ifdef __cplusplus
}
#endif
