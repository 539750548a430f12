/* SPDX-License-Identifier: Apache-2.0 */
/* How a product was cut: made by matmul.c, run by matmul_run.c. */
#pragma once

#include "engine/kernels/cpu/gemm_internal.h"
#include "engine/kernels/matmul.h"

/* One dimension cut into `count` blocks of `block`, the last one `last`. */
typedef struct crl_cut {
    int64_t count, block, last;
} crl_cut;

/* Which of a block's products: the first in K writes or adds to y, the others add. */
typedef enum crl_matmul_kind {
    CRL_MATMUL_WRITE = 0,
    CRL_MATMUL_ADD,
    CRL_MATMUL_NEXT,
    CRL_MATMUL_KINDS
} crl_matmul_kind;

struct crl_matmul {
    crl_matmul_config config;
    crl_cut m, n, k;
    crl_gemm
        *gemm[CRL_MATMUL_KINDS][2][2][2]; /* [..][last in m][last in n][last in k]; NULL: unused */
    crl_dtype type, y_type;
    bool staged, widened;
    /* A slot of scratch: gemm_bytes, then floats: a staged block, widened A, B and bias. */
    size_t gemm_bytes, slot_bytes;
    int64_t slots, stage_floats, a_floats, b_floats;
};

crl_status crl_matmul_run(const crl_matmul *matmul, crl_stream *stream,
                          const crl_matmul_call *call);
