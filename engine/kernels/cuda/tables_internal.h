/* SPDX-License-Identifier: Apache-2.0 */
/* CUDA's tables of one operation and one type each, for kernels.cu and for operations that end in
 * another. No CUDA type is seen here. */
#pragma once

#include "engine/kernels/cuda/cuda.h"

#ifdef __cplusplus
extern "C" {
#endif

extern const crl_matmul_ops crl_matmul_cuda_f32, crl_matmul_cuda_bf16, crl_matmul_cuda_f16;
extern const crl_eltwise_ops crl_eltwise_cuda_f32, crl_eltwise_cuda_bf16, crl_eltwise_cuda_f16;
extern const crl_layernorm_ops crl_layernorm_cuda_f32, crl_layernorm_cuda_bf16,
    crl_layernorm_cuda_f16;
extern const crl_attention_ops crl_attention_cuda_f32, crl_attention_cuda_bf16,
    crl_attention_cuda_f16;
extern const crl_embedding_ops crl_embedding_cuda_f32, crl_embedding_cuda_bf16,
    crl_embedding_cuda_f16;
extern const crl_cross_entropy_ops crl_cross_entropy_cuda_f32, crl_cross_entropy_cuda_bf16,
    crl_cross_entropy_cuda_f16;
extern const crl_optimizer_ops crl_optimizer_cuda_f32, crl_optimizer_cuda_bf16,
    crl_optimizer_cuda_f16;
extern const crl_reduce_ops crl_reduce_cuda_f32, crl_reduce_cuda_bf16, crl_reduce_cuda_f16;

#ifdef __cplusplus
}
#endif
