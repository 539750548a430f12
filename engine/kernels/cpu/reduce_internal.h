/* SPDX-License-Identifier: Apache-2.0 */
/* Reductions that other kernels need too. */
#pragma once

#include <stdint.h>

enum {
    CRL_COLUMNS = 128, /* columns of a matrix summed by one task */
    CRL_ROWS = 64      /* rows summed in float before they go into the double sum */
};

/* Sum of x^2, or of (x - target)^2, in double: blocks of CRL_REDUCE_BLOCK in order. */
double crl_sum_squares(const float *x, const float *target, int64_t n);
