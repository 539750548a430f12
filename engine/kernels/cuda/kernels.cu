/* SPDX-License-Identifier: Apache-2.0 */
/* CUDA's tables of operations, one per type. */
#include "engine/kernels/cuda/tables_internal.h"

#define TABLE(type)                                                                                \
    &crl_matmul_cuda_##type, &crl_eltwise_cuda_##type, &crl_layernorm_cuda_##type,                 \
        &crl_attention_cuda_##type, &crl_embedding_cuda_##type, &crl_cross_entropy_cuda_##type,    \
        &crl_optimizer_cuda_##type, &crl_reduce_cuda_##type

extern "C" {
const crl_kernels crl_kernels_cuda = {"cuda", CRL_DTYPE_F32, TABLE(f32)};
const crl_kernels crl_kernels_cuda_bf16 = {"cuda", CRL_DTYPE_BF16, TABLE(bf16)};
const crl_kernels crl_kernels_cuda_f16 = {"cuda", CRL_DTYPE_F16, TABLE(f16)};
}
