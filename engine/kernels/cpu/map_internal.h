/* SPDX-License-Identifier: Apache-2.0 */
/* Element-wise loops over up to five arrays, split into fixed blocks over the threads. The arrays
 * may be of different types: what is not f32 is widened and narrowed around the tile, piece by
 * piece, so that there is one tile of an operation for all types. */
#pragma once

#include "engine/tensor/tensor.h"

enum { CRL_MAP_ARRAYS = 5 };

/* Does the elements 0..n-1 of the arrays x[0..]; n is a multiple of CRL_LANES. */
typedef void (*crl_map_fn)(const void *context, float *const *x, int64_t n);

/* The first `outputs` of `arrays` arrays are written, the others only read. */
typedef struct crl_map {
    crl_map_fn tile;
    const void *context;
    int arrays, outputs;
    bool reads; /* the tile also reads the outputs: it adds to them */
    const void *x[CRL_MAP_ARRAYS];
    crl_dtype type[CRL_MAP_ARRAYS]; /* zero: f32 */
    int64_t stride[CRL_MAP_ARRAYS]; /* elements between rows, where there are several */
    void *copy; /* NULL, or: the first output once more, in copy_type; one row only */
    crl_dtype copy_type;
} crl_map;

/* n elements of every array. */
void crl_map_run(const crl_map *map, int64_t n);
/* n elements of each row. */
void crl_map_rows(const crl_map *map, int64_t rows, int64_t n);
/* The same by the calling thread alone: for use inside a parallel region. */
void crl_map_serial(const crl_map *map, int64_t rows, int64_t n);
