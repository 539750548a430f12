/* SPDX-License-Identifier: Apache-2.0 */
/* Element-wise loops over up to four arrays, split into fixed blocks over the threads. */
#pragma once

#include <stdint.h>

enum { CRL_MAP_ARRAYS = 4 };

/* Does the elements 0..n-1 of the arrays x[0..]; n is a multiple of CRL_LANES. */
typedef void (*crl_map_fn)(const void *context, float *const *x, int64_t n);

/* The first `outputs` of `arrays` arrays are written (and may be read); the others only read. */
typedef struct crl_map {
    crl_map_fn tile;
    const void *context;
    int arrays, outputs;
    const float *x[CRL_MAP_ARRAYS];
} crl_map;

void crl_map_run(const crl_map *map, int64_t n);
