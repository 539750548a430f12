/* SPDX-License-Identifier: Apache-2.0 */
/* CUDA's tables of operations, for streams of crl_device_cuda. No CUDA type is seen here, so any
 * file may include it. Indices outside their table are noted on the device; who waits next is told.
 */
#pragma once

#include "engine/kernels/kernels.h"

#ifdef __cplusplus
extern "C" {
#endif

/* f32, bf16, f16. */
extern const crl_kernels crl_kernels_cuda, crl_kernels_cuda_bf16, crl_kernels_cuda_f16;

#ifdef __cplusplus
}
#endif
