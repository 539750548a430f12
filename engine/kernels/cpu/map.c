/* SPDX-License-Identifier: Apache-2.0 */
/* The loop around every element-wise kernel. Refuses to hand a tile a ragged end: the last few
 * elements go through a padded copy, so every element meets the same instructions. */
#include "engine/kernels/cpu/map_internal.h"

#include "engine/kernels/cpu/cpu_internal.h"

#include <string.h>

/* Only the arrays that `outputs` allows are written. */
static float *writable(const float *x) {
    return (float *)(uintptr_t)x;
}

static void run_rest(const crl_map *map, int64_t begin, int64_t n) {
    float rest[CRL_MAP_ARRAYS][CRL_LANES] __attribute__((aligned(64))) = {{0}};
    float *x[CRL_MAP_ARRAYS] = {rest[0], rest[1], rest[2], rest[3]};
    const size_t bytes = (size_t)n * sizeof(float);
    for (int i = 0; i < map->arrays; i++)
        memcpy(rest[i], map->x[i] + begin, bytes);
    map->tile(map->context, x, CRL_LANES);
    for (int i = 0; i < map->outputs; i++)
        memcpy(writable(map->x[i]) + begin, rest[i], bytes);
}

static void run_block(const crl_map *map, int64_t begin, int64_t n) {
    const int64_t whole = n / CRL_LANES * CRL_LANES;
    float *x[CRL_MAP_ARRAYS] = {NULL};
    for (int i = 0; i < map->arrays; i++)
        x[i] = writable(map->x[i]) + begin;
    if (whole > 0)
        map->tile(map->context, x, whole);
    if (whole < n)
        run_rest(map, begin + whole, n - whole);
}

void crl_map_run(const crl_map *map, int64_t n) {
    const int64_t blocks = crl_ceil_div(n, CRL_BLOCK);
#pragma omp parallel for schedule(static) if (n >= CRL_SERIAL_WORK)
    for (int64_t i = 0; i < blocks; i++)
        run_block(map, i * CRL_BLOCK, crl_min(CRL_BLOCK, n - i * CRL_BLOCK));
}
