/* SPDX-License-Identifier: Apache-2.0 */
/* Element-wise operations. Refuses nothing: sizes are the caller's. */
#include "engine/kernels/cpu/tiles_internal.h"
#include "engine/kernels/cpu/cpu_internal.h"
#include "engine/kernels/cpu/narrow_internal.h"

#include <string.h>

static crl_status activation(crl_dtype type, crl_activation kind, const void *x, void *y,
                             int64_t n) {
    crl_map_run(&(crl_map){.tile = crl_activation_tile(kind),
                           .arrays = 2,
                           .outputs = 1,
                           .x = {y, x},
                           .type = {type, type}},
                n);
    return CRL_STATUS_OK;
}

static crl_status activation_backward(crl_dtype type, crl_activation kind, const void *x,
                                      const void *dy, void *dx, int64_t n, bool accumulate) {
    crl_map_run(&(crl_map){.tile = crl_activation_slope_tile(kind),
                           .context = &(crl_tile_options){accumulate},
                           .arrays = 3,
                           .outputs = 1,
                           .reads = accumulate,
                           .x = {dx, x, dy},
                           .type = {type, type, type}},
                n);
    return CRL_STATUS_OK;
}

static crl_status add(crl_dtype type, const void *a, const void *b, void *y, int64_t n) {
    crl_map_run(&(crl_map){.tile = crl_add_tile,
                           .arrays = 3,
                           .outputs = 1,
                           .x = {y, a, b},
                           .type = {type, type, type}},
                n);
    return CRL_STATUS_OK;
}

/* The bytes as they are. */
static void copy_same(crl_dtype type, const void *x, void *y, int64_t n) {
    const int64_t blocks = crl_ceil_div(n, CRL_BLOCK);
    const size_t bytes = crl_dtype_bytes(type);
#pragma omp parallel for schedule(static) if (n >= CRL_SERIAL_WORK)
    for (int64_t i = 0; i < blocks; i++) {
        const int64_t first = i * CRL_BLOCK, length = crl_min(CRL_BLOCK, n - first);
        memcpy(crl_at_mutable(type, y, first), crl_at(type, x, first), (size_t)length * bytes);
    }
}

crl_status crl_convert(crl_dtype x_type, const void *x, crl_dtype y_type, void *y, int64_t n,
                       bool accumulate) {
    if (!accumulate && x_type == y_type) {
        if (x != y)
            copy_same(x_type, x, y, n);
        return CRL_STATUS_OK;
    }
    const crl_map map = {.tile = accumulate ? crl_add_tile : crl_copy_tile,
                         .arrays = accumulate ? 3 : 2,
                         .outputs = 1,
                         .x = {y, x, y},
                         .type = {y_type, x_type, y_type}};
    crl_map_run(&map, n);
    return CRL_STATUS_OK;
}

static crl_status swiglu(crl_dtype type, const void *x, void *y, int64_t n, int64_t c) {
    crl_map_rows(&(crl_map){.tile = crl_swiglu_tile,
                            .arrays = 3,
                            .outputs = 1,
                            .x = {y, x, crl_at(type, x, c)},
                            .type = {type, type, type},
                            .stride = {c, 2 * c, 2 * c}},
                 n, c);
    return CRL_STATUS_OK;
}

static crl_status swiglu_backward(crl_dtype type, const void *x, const void *dy, void *dx,
                                  int64_t n, int64_t c, bool accumulate) {
    crl_map_rows(&(crl_map){.tile = crl_swiglu_slope_tile,
                            .context = &(crl_tile_options){accumulate},
                            .arrays = 5,
                            .outputs = 2,
                            .reads = accumulate,
                            .x = {dx, crl_at_mutable(type, dx, c), x, crl_at(type, x, c), dy},
                            .type = {type, type, type, type, type},
                            .stride = {2 * c, 2 * c, 2 * c, 2 * c, c}},
                 n, c);
    return CRL_STATUS_OK;
}

/* The entries of one table (see CRL_TABLES). */
#define ENTRIES(suffix, TYPE)                                                                      \
    static crl_status activation_##suffix(crl_stream *stream, crl_activation kind, const void *x,  \
                                          void *y, int64_t n) {                                    \
        (void)stream;                                                                              \
        return activation(TYPE, kind, x, y, n);                                                    \
    }                                                                                              \
    static crl_status activation_backward_##suffix(crl_stream *stream, crl_activation kind,        \
                                                   const void *x, const void *dy, void *dx,        \
                                                   int64_t n, bool accumulate) {                   \
        (void)stream;                                                                              \
        return activation_backward(TYPE, kind, x, dy, dx, n, accumulate);                          \
    }                                                                                              \
    static crl_status add_##suffix(crl_stream *stream, const void *a, const void *b, void *y,      \
                                   int64_t n) {                                                    \
        (void)stream;                                                                              \
        return add(TYPE, a, b, y, n);                                                              \
    }                                                                                              \
    static crl_status copy_##suffix(crl_stream *stream, const void *x, void *y, int64_t n,         \
                                    bool accumulate) {                                             \
        (void)stream;                                                                              \
        return crl_convert(TYPE, x, TYPE, y, n, accumulate);                                       \
    }                                                                                              \
    static crl_status dropout_##suffix(crl_stream *stream, const crl_rng *rng, double p,           \
                                       const void *x, void *y, int64_t samples,                    \
                                       int64_t n_per_sample, bool accumulate) {                    \
        (void)stream;                                                                              \
        return crl_dropout_run(TYPE, rng, p, x, y, samples, n_per_sample, accumulate);             \
    }                                                                                              \
    static crl_status swiglu_##suffix(crl_stream *stream, const void *x, void *y, int64_t n,       \
                                      int64_t c) {                                                 \
        (void)stream;                                                                              \
        return swiglu(TYPE, x, y, n, c);                                                           \
    }                                                                                              \
    static crl_status swiglu_backward_##suffix(crl_stream *stream, const void *x, const void *dy,  \
                                               void *dx, int64_t n, int64_t c, bool accumulate) {  \
        (void)stream;                                                                              \
        return swiglu_backward(TYPE, x, dy, dx, n, c, accumulate);                                 \
    }                                                                                              \
    static crl_status narrow_##suffix(crl_stream *stream, const float *x, void *y, int64_t n,      \
                                      bool accumulate) {                                           \
        (void)stream;                                                                              \
        return crl_convert(CRL_DTYPE_F32, x, TYPE, y, n, accumulate);                              \
    }                                                                                              \
    static crl_status widen_##suffix(crl_stream *stream, const void *x, float *y, int64_t n,       \
                                     bool accumulate) {                                            \
        (void)stream;                                                                              \
        return crl_convert(TYPE, x, CRL_DTYPE_F32, y, n, accumulate);                              \
    }                                                                                              \
    const crl_eltwise_ops crl_eltwise_cpu_##suffix = {                                             \
        .activation = activation_##suffix,                                                         \
        .activation_backward = activation_backward_##suffix,                                       \
        .add = add_##suffix,                                                                       \
        .copy = copy_##suffix,                                                                     \
        .dropout = dropout_##suffix,                                                               \
        .swiglu = swiglu_##suffix,                                                                 \
        .swiglu_backward = swiglu_backward_##suffix,                                               \
        .narrow = narrow_##suffix,                                                                 \
        .widen = widen_##suffix,                                                                   \
    };
CRL_TABLES(ENTRIES)
