/* SPDX-License-Identifier: Apache-2.0 */
/* The CUDA backend: its device with its tables of operations. */
#include "engine/kernels/cuda/cuda.h"

const crl_backend crl_backend_cuda = {
    .name = "cuda",
    .help = "NVIDIA GPUs: cuBLASLt, cuDNN and own kernels",
    .device = &crl_device_cuda,
    .f32 = &crl_kernels_cuda,
    .bf16 = &crl_kernels_cuda_bf16,
    .f16 = &crl_kernels_cuda_f16,
};
