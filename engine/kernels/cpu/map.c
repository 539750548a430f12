/* SPDX-License-Identifier: Apache-2.0 */
/* The loop around every element-wise kernel. Refuses to hand a tile a ragged end: the last few
 * elements go through a padded copy, so every element meets the same instructions. */
#include "engine/kernels/cpu/map_internal.h"

#include "engine/kernels/cpu/cpu_internal.h"
#include "engine/kernels/cpu/narrow_internal.h"

#include <string.h>

enum { CONVERTED = 1 << 10 }; /* elements widened at once: all arrays stay in the first cache */

/* Only the arrays that `outputs` allows are written. */
static void *writable(const void *x) {
    return (void *)(uintptr_t)x;
}

static void *place(const crl_map *map, int array, int64_t row, int64_t begin) {
    return crl_at_mutable(map->type[array], writable(map->x[array]),
                          row * map->stride[array] + begin);
}

/* n: a multiple of CRL_LANES, or fewer than that. */
static void run_piece(const crl_map *map, int64_t row, int64_t begin, int64_t n) {
    float buffer[CRL_MAP_ARRAYS][CONVERTED] __attribute__((aligned(64)));
    float *x[CRL_MAP_ARRAYS] = {NULL};
    const bool ragged = n < CRL_LANES;
    for (int i = 0; i < map->arrays; i++) {
        if (!ragged && map->type[i] == CRL_DTYPE_F32) {
            x[i] = place(map, i, row, begin);
            continue;
        }
        x[i] = buffer[i];
        if (ragged)
            memset(buffer[i], 0, CRL_LANES * sizeof(float));
        if (i >= map->outputs || map->reads)
            crl_widen(map->type[i], place(map, i, row, begin), buffer[i], n);
    }
    map->tile(map->context, x, ragged ? CRL_LANES : n);
    for (int i = 0; i < map->outputs; i++) {
        if (x[i] == buffer[i])
            crl_narrow(map->type[i], x[i], place(map, i, row, begin), n);
    }
    if (map->copy != NULL)
        crl_narrow(map->copy_type, x[0], crl_at_mutable(map->copy_type, map->copy, begin), n);
}

static bool is_converted(const crl_map *map) {
    for (int i = 0; i < map->arrays; i++) {
        if (map->type[i] != CRL_DTYPE_F32)
            return true;
    }
    return map->copy != NULL;
}

static void run_block(const crl_map *map, int64_t row, int64_t begin, int64_t n) {
    const int64_t whole = n / CRL_LANES * CRL_LANES, most = is_converted(map) ? CONVERTED : whole;
    for (int64_t i = 0; i < whole; i += most)
        run_piece(map, row, begin + i, crl_min(most, whole - i));
    if (whole < n)
        run_piece(map, row, begin + whole, n - whole);
}

void crl_map_rows(const crl_map *map, int64_t rows, int64_t n) {
    const int64_t blocks = crl_ceil_div(n, CRL_BLOCK);
#pragma omp parallel for schedule(static) if (rows * n >= CRL_SERIAL_WORK)
    for (int64_t i = 0; i < rows * blocks; i++) {
        const int64_t begin = i % blocks * CRL_BLOCK;
        run_block(map, i / blocks, begin, crl_min(CRL_BLOCK, n - begin));
    }
}

void crl_map_serial(const crl_map *map, int64_t rows, int64_t n) {
    for (int64_t row = 0; row < rows; row++) {
        for (int64_t begin = 0; begin < n; begin += CRL_BLOCK)
            run_block(map, row, begin, crl_min(CRL_BLOCK, n - begin));
    }
}

void crl_map_run(const crl_map *map, int64_t n) {
    crl_map_rows(map, 1, n);
}
