/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the CPU kernels share: how loops are vectorised and split over threads.
 *
 * Loops over elements are written for whole groups of CRL_LANES elements; a shorter rest goes
 * through a padded copy, so an element's bits never depend on its place in the array.
 */
#pragma once

#include "engine/kernels/kernels.h"

#include <stdint.h>

/* Compiled once per vector extension, chosen when the program starts. Not where the choice (an
 * ifunc) does not exist or would run before a sanitizer is ready. */
#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__) && defined(__ELF__) &&         \
    !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
#define CRL_VECTORISED __attribute__((target_clones("avx512f", "avx2", "default")))
#else
#define CRL_VECTORISED
#endif
#define CRL_INLINE static inline __attribute__((always_inline))

enum {
    CRL_LANES = 16,            /* floats in the widest vector */
    CRL_SERIAL_WORK = 1 << 14, /* elements below which starting threads costs more than it gives */
    CRL_BLOCK = 1 << 12        /* elements of one piece of an element-wise loop */
};

/* The calling thread works alone until crl_threads_end gets what crl_threads_begin returned. */
int crl_threads_begin(void);
void crl_threads_end(int threads);
void crl_count_primitive(void);

CRL_INLINE int64_t crl_min(int64_t a, int64_t b) {
    return a < b ? a : b;
}
CRL_INLINE int64_t crl_ceil_div(int64_t a, int64_t b) {
    return (a + b - 1) / b;
}
CRL_INLINE int64_t crl_round_up(int64_t a, int64_t b) {
    return crl_ceil_div(a, b) * b;
}

/* The eltwise table's dropout, which lives in a file of its own. */
crl_status crl_dropout_run(crl_dtype type, const crl_rng *rng, double p, const void *x, void *y,
                           int64_t samples, int64_t n_per_sample, bool accumulate);
/* y (+)= x, rounded to y's type. */
crl_status crl_convert(crl_dtype x_type, const void *x, crl_dtype y_type, void *y, int64_t n,
                       bool accumulate);

/*
 * How one implementation serves three tables: it takes the type of its `void *` arrays first, and
 * its file ends with entries that name the type, written once as a macro ENTRIES(suffix, type).
 */
#define CRL_TABLES(ENTRIES)                                                                        \
    ENTRIES(f32, CRL_DTYPE_F32)                                                                    \
    ENTRIES(bf16, CRL_DTYPE_BF16)                                                                  \
    ENTRIES(f16, CRL_DTYPE_F16)

#define CRL_DECLARE_TABLES(suffix, type)                                                           \
    extern const crl_matmul_ops crl_matmul_cpu_##suffix;                                           \
    extern const crl_eltwise_ops crl_eltwise_cpu_##suffix;                                         \
    extern const crl_layernorm_ops crl_layernorm_cpu_##suffix;                                     \
    extern const crl_attention_ops crl_attention_cpu_##suffix;                                     \
    extern const crl_embedding_ops crl_embedding_cpu_##suffix;                                     \
    extern const crl_cross_entropy_ops crl_cross_entropy_cpu_##suffix;                             \
    extern const crl_optimizer_ops crl_optimizer_cpu_##suffix;                                     \
    extern const crl_reduce_ops crl_reduce_cpu_##suffix;
CRL_TABLES(CRL_DECLARE_TABLES)
