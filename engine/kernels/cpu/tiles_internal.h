/* SPDX-License-Identifier: Apache-2.0 */
/* Tiles of the element-wise operations, for those and for what products end with. */
#pragma once

#include "engine/kernels/cpu/map_internal.h"
#include "engine/kernels/eltwise.h"

/* The context of tiles that may add to their outputs. */
typedef struct crl_tile_options {
    bool accumulate;
} crl_tile_options;

/* Arrays y, x: y = f(x). No context. */
crl_map_fn crl_activation_tile(crl_activation kind);
/* Arrays dx, x, dy: dx (+)= dy f'(x). Context: crl_tile_options. */
crl_map_fn crl_activation_slope_tile(crl_activation kind);
/* Arrays y, gate, up. No context. */
void crl_swiglu_tile(const void *context, float *const *x, int64_t n);
/* Arrays dgate, dup, gate, up, dy. Context: crl_tile_options. */
void crl_swiglu_slope_tile(const void *context, float *const *x, int64_t n);
/* Arrays y, x: y = x. Arrays y, a, b: y = a + b. No context. */
void crl_copy_tile(const void *context, float *const *x, int64_t n);
void crl_add_tile(const void *context, float *const *x, int64_t n);
