/* SPDX-License-Identifier: Apache-2.0 */
/* Where a block of attention's kernels is, and which rows of which array it reads
 * (attention_tile_internal.h, attention_flash.cu). */
#pragma once

#include "engine/kernels/cuda/device_internal.h"

namespace {

enum {
    TILE = 64,
    SIDE = 16,         /* threads of a side of the tile */
    OWN = TILE / SIDE, /* rows, and columns, of a thread: a quad */
    CHUNK = 32,        /* channels staged for scores */
    PANEL = 64,        /* channels staged to be added up */
    /* rows of quads in shared memory */
    CHUNK_ROW = CHUNK / OWN + 1, /* odd: eight lanes reading down a column meet no bank twice */
    PANEL_ROW = PANEL / OWN,
    WEIGHT_ROW = SIDE,
    STAGED = 2 * TILE * CHUNK_ROW
};

/* A block adds up kPanels panels of channels. */
template <typename E> struct Narrow {
    using T = E;
    enum { kPanels = 1 };
};
template <typename E> struct Wide {
    using T = E;
    enum { kPanels = 2 };
};

struct Shape {
    int t, heads, d, c, tiles, all_heads; /* all_heads: of all samples */
    float scale;
    bool causal, vector;
};

/* At most TILE rows of one head's array; what is not there reads as zero. */
template <typename T> struct Rows {
    const T *x;
    int stride, d, n;
    bool vector;
};

/* Where a block is. */
struct Place {
    int head, sample, channel, tile; /* head: of all; channel: the head's first */
};

__device__ Place place_of(const Shape &shape, bool last_first) {
    const int block = (int)blockIdx.x;
    const int head = block % shape.all_heads, tile = block / shape.all_heads;
    return {head, head / shape.heads, head % shape.heads * shape.d,
            last_first ? shape.tiles - 1 - tile : tile};
}

__device__ int least(int a, int b) {
    return a < b ? a : b;
}

__device__ int rows_in(const Shape &shape, int tile) {
    return least(TILE, shape.t - tile * TILE);
}

/* part 0 q, 1 k, 2 v */
__device__ int64_t packed_at(const Shape &shape, const Place &at, int tile, int part) {
    return ((int64_t)at.sample * shape.t + tile * TILE) * 3 * shape.c + part * shape.c + at.channel;
}

__device__ int64_t output_at(const Shape &shape, const Place &at, int tile) {
    return ((int64_t)at.sample * shape.t + tile * TILE) * shape.c + at.channel;
}

template <typename T>
__device__ Rows<T> packed_rows(const Shape &shape, const Place &at, const T *qkv, int tile,
                               int part) {
    return {qkv + packed_at(shape, at, tile, part), 3 * shape.c, shape.d, rows_in(shape, tile),
            shape.vector};
}

template <typename T>
__device__ Rows<T> output_rows(const Shape &shape, const Place &at, const T *y, int tile) {
    return {y + output_at(shape, at, tile), shape.c, shape.d, rows_in(shape, tile), shape.vector};
}

__device__ int thread_row() {
    return (int)threadIdx.x / SIDE;
}
__device__ int thread_column() {
    return (int)threadIdx.x % SIDE;
}

} // namespace
