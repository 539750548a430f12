/* SPDX-License-Identifier: Apache-2.0 */
/* CUDA's table of operations. The entries left out are NULL until they exist: nothing may choose
 * this table before. */
#include "engine/kernels/cuda/stream_internal.h"

extern "C" const crl_kernels crl_kernels_cuda = {
    "cuda",
    CRL_DTYPE_F32,
    nullptr, /* matmul */
    &crl_eltwise_cuda,
    &crl_layernorm_cuda,
    nullptr, /* attention */
    &crl_embedding_cuda,
    &crl_cross_entropy_cuda,
    &crl_optimizer_cuda,
    &crl_reduce_cuda,
};
