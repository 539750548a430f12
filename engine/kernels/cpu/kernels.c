/* SPDX-License-Identifier: Apache-2.0 */
/* The CPU's table of operations and the number of threads they use. Refuses to keep global state:
 * thread count and primitive count belong to the calling thread. */
#include "engine/kernels/kernels.h"

#include "engine/kernels/cpu/cpu_internal.h"
#include "engine/kernels/cpu/gemm_internal.h"

#include <omp.h>

static _Thread_local int64_t primitives_created;

#define OPERATIONS(suffix)                                                                         \
    .matmul = &crl_matmul_cpu_##suffix, .eltwise = &crl_eltwise_cpu_##suffix,                      \
    .layernorm = &crl_layernorm_cpu_##suffix, .attention = &crl_attention_cpu_##suffix,            \
    .embedding = &crl_embedding_cpu_##suffix, .cross_entropy = &crl_cross_entropy_cpu_##suffix,    \
    .optimizer = &crl_optimizer_cpu_##suffix, .reduce = &crl_reduce_cpu_##suffix

const crl_kernels crl_kernels_cpu = {.name = "cpu", .dtype = CRL_DTYPE_F32, OPERATIONS(f32)};
static const crl_kernels kernels_bf16 = {.name = "cpu", .dtype = CRL_DTYPE_BF16, OPERATIONS(bf16)};
static const crl_kernels kernels_f16 = {.name = "cpu", .dtype = CRL_DTYPE_F16, OPERATIONS(f16)};

const crl_backend crl_backend_cpu = {
    .name = "cpu",
    .help = "the processor's cores",
    .device = &crl_device_cpu,
    .f32 = &crl_kernels_cpu,
    .bf16 = &kernels_bf16,
    .f16 = &kernels_f16,
};

const crl_kernels *crl_backend_kernels(const crl_backend *backend, crl_dtype dtype) {
    switch (dtype) {
    case CRL_DTYPE_F32:
        return backend->f32;
    case CRL_DTYPE_BF16:
        return backend->bf16;
    case CRL_DTYPE_F16:
        return backend->f16;
    default:
        return NULL;
    }
}

void crl_kernels_set_threads(int threads) {
    omp_set_num_threads(threads > 0 ? threads : 1);
}

int crl_threads_begin(void) {
    const int threads = omp_get_max_threads();
    omp_set_num_threads(1);
    return threads;
}

void crl_threads_end(int threads) {
    omp_set_num_threads(threads);
}

void crl_count_primitive(void) {
    primitives_created++;
}

int64_t crl_kernels_primitives_created(void) {
    return primitives_created;
}

void crl_kernels_describe(char *text, size_t text_bytes) {
    crl_gemm_describe(text, text_bytes);
}
