/* SPDX-License-Identifier: Apache-2.0 */
/* Reductions that other kernels need too. */
#pragma once

#include "engine/tensor/tensor.h"

enum {
    CRL_COLUMNS = 128, /* columns of a matrix summed by one task */
    CRL_ROWS = 64      /* rows summed in float before they go into the double sum */
};

/* Sum of x^2, or of (x - target)^2, in double: blocks of CRL_REDUCE_BLOCK in order. */
double crl_sum_squares(crl_dtype type, const void *x, const float *target, int64_t n);
/* y(C) (+)= sum over N of x(N,C), and y(N) (+)= sum over C. */
void crl_column_sum(crl_dtype type, const void *x, float *y, int64_t n, int64_t c, bool accumulate);
void crl_row_sum(crl_dtype type, const void *x, float *y, int64_t n, int64_t c, bool accumulate);

/* At most CRL_ROWS rows of at most CRL_COLUMNS columns, as f32. */
typedef struct crl_panel {
    float x[CRL_ROWS][CRL_COLUMNS] __attribute__((aligned(64)));
} crl_panel;

/* x, rows c apart, if it is f32; else the panel, rows CRL_COLUMNS apart, with x in it. */
const float *crl_panel_read(crl_panel *panel, crl_dtype type, const void *x, int64_t c,
                            int64_t rows, int64_t columns);
