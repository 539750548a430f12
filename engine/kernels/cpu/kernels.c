/* SPDX-License-Identifier: Apache-2.0 */
/* The CPU's table of operations and the number of threads they use. Refuses to keep global state:
 * thread count and primitive count belong to the calling thread. */
#include "engine/kernels/kernels.h"

#include "engine/kernels/cpu/cpu_internal.h"

#include <omp.h>
#include <oneapi/dnnl/dnnl.h>
#include <stdio.h>

static _Thread_local int64_t primitives_created;

const crl_kernels crl_kernels_cpu = {
    .name = "cpu",
    .dtype = CRL_DTYPE_F32,
    .matmul = &crl_matmul_cpu,
    .eltwise = &crl_eltwise_cpu,
    .layernorm = &crl_layernorm_cpu,
    .attention = &crl_attention_cpu,
    .embedding = &crl_embedding_cpu,
    .cross_entropy = &crl_cross_entropy_cpu,
    .optimizer = &crl_optimizer_cpu,
    .reduce = &crl_reduce_cpu,
};

const crl_backend crl_backend_cpu = {
    .name = "cpu",
    .help = "the processor's cores, through oneDNN and OpenMP",
    .device = &crl_device_cpu,
    .f32 = &crl_kernels_cpu,
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
    const dnnl_version_t *version = dnnl_version();
    const char *runtime = version->cpu_runtime == DNNL_RUNTIME_OMP   ? "OpenMP"
                          : version->cpu_runtime == DNNL_RUNTIME_TBB ? "TBB"
                          : version->cpu_runtime == DNNL_RUNTIME_SEQ ? "sequential"
                                                                     : "threads";
    snprintf(text, text_bytes, "oneDNN %d.%d.%d (%s)", version->major, version->minor,
             version->patch, runtime);
}
