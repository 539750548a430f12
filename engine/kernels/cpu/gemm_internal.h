/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One matrix product of fixed size and strides that always runs on the calling thread alone: the
 * piece from which matmul and attention build work that is the same for every number of threads.
 */
#pragma once

#include "engine/tensor/tensor.h"

typedef struct crl_gemm crl_gemm;

/* y(m,n) = a(m,k) b(k,n) [+ bias(n)] [+ y]; element (i,j) of a is a[i a_row + j a_column]. */
typedef struct crl_gemm_config {
    int64_t m, n, k;
    int64_t a_row, a_column;
    int64_t b_row, b_column;
    int64_t y_row;
    bool bias;
    bool add;
    crl_dtype type;   /* of a, b and bias; zero: f32 */
    crl_dtype y_type; /* f32, or `type`; sums are f32 and rounded once, after all is added */
} crl_gemm_config;

/* Is there an implementation? Always where all is f32. */
bool crl_gemm_has(const crl_gemm_config *config);
/* DEVICE, NOMEM. */
CRL_NODISCARD crl_status crl_gemm_create(crl_gemm **out, const crl_gemm_config *config);
void crl_gemm_destroy(crl_gemm *gemm);
size_t crl_gemm_scratch_bytes(const crl_gemm *gemm);
/* Zero, or the library's code of the failure (for crl_gemm_failed). May be run by many threads at
 * once, each with its own scratch. Sets the calling thread's OpenMP thread count to 1: enter
 * through crl_threads_begin or from inside a parallel region. */
int crl_gemm_run(const crl_gemm *gemm, const void *a, const void *b, const void *bias, void *y,
                 void *scratch);
/* Turns the largest code of many runs into a status. */
CRL_NODISCARD crl_status crl_gemm_failed(int code);
/* The library: "oneDNN 2.6.3 (OpenMP)". */
void crl_gemm_describe(char *text, size_t text_bytes);
