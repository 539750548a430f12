/* SPDX-License-Identifier: Apache-2.0 */
/* What only the CUDA device has, beside crl_device_cuda (device.h). No CUDA type is seen here. */
#pragma once

#include "engine/device/device.h"

#ifdef __cplusplus
extern "C" {
#endif

/* May products of f32 matrices round their inputs to TF32 (10 bits of mantissa, sums in f32)? Holds
 * for what is created on the stream afterwards; false at first. Local. */
void crl_device_cuda_allow_tf32(crl_stream *stream, bool allow);

#ifdef __cplusplus
}
#endif
