/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Matrix products of our own, in place of oneDNN's where a build has none: blocks of DEPTH in k are
 * packed, and a small block of y is summed in registers.
 *
 *          k ->              n ->
 *     m  +------+        +----+----+        A: strips of ROWS rows, k outermost
 *     |  |strip |    k   |    |    |        B: strips of COLUMNS columns, k outermost
 *     v  +------+    v   |    |    |
 *        |strip |        +----+----+
 *
 * Refuses all types but f32, and to be fast: about half of oneDNN's speed.
 */
#include "engine/kernels/cpu/gemm_internal.h"

#include "engine/base/alloc.h"
#include "engine/kernels/cpu/cpu_internal.h"

#include <omp.h>
#include <stdio.h>
#include <string.h>

enum { ROWS = 8, COLUMNS = 32, DEPTH = 256, VECTORS = COLUMNS / CRL_LANES };

typedef float vector __attribute__((vector_size(CRL_LANES * sizeof(float))));

struct crl_gemm {
    crl_gemm_config config;
};

bool crl_gemm_has(const crl_gemm_config *config) {
    return config->type == CRL_DTYPE_F32 && config->y_type == CRL_DTYPE_F32;
}

crl_status crl_gemm_failed(int code) {
    CRL_ASSERT(code == 0);
    return CRL_STATUS_OK;
}

crl_status crl_gemm_create(crl_gemm **out, const crl_gemm_config *config) {
    crl_gemm *gemm = NULL;
    if (!crl_gemm_has(config))
        return CRL_FAIL(UNSUPPORTED, "own matrix product: type is %s, expected f32",
                        crl_dtype_name(config->type));
    CRL_TRY(crl_alloc(&gemm, 1, sizeof *gemm));
    gemm->config = *config;
    crl_count_primitive();
    *out = gemm;
    return CRL_STATUS_OK;
}

void crl_gemm_destroy(crl_gemm *gemm) {
    crl_free(gemm);
}

/* Of A; whole vectors, so that B begins at an aligned address. */
static int64_t packed_floats(const crl_gemm_config *f) {
    return crl_round_up(crl_round_up(f->m, ROWS) * crl_min(f->k, DEPTH), CRL_LANES);
}

size_t crl_gemm_scratch_bytes(const crl_gemm *gemm) {
    const int64_t floats = packed_floats(&gemm->config) + crl_min(gemm->config.k, DEPTH) * COLUMNS;
    return (size_t)crl_round_up(floats * (int64_t)sizeof(float), CRL_ALIGN_BYTES);
}

/* out(k, width) = x's `used` columns, `step` apart, and zeros; its k are `k_step` apart. */
static void pack(const float *x, int64_t k_step, int64_t step, int64_t k, int64_t used,
                 int64_t width, float *out) {
    for (int64_t l = 0; l < k; l++) {
        for (int64_t i = 0; i < used; i++)
            out[l * width + i] = x[l * k_step + i * step];
        for (int64_t i = used; i < width; i++)
            out[l * width + i] = 0;
    }
}

/* tile(ROWS, COLUMNS) = the product of a strip of A and one of B. */
CRL_VECTORISED static void multiply(const float *a, const vector *b, int64_t k, vector *tile) {
    vector sum[ROWS][VECTORS];
    memset(sum, 0, sizeof sum);
    for (int64_t l = 0; l < k; l++) {
        for (int i = 0; i < ROWS; i++) {
            for (int j = 0; j < VECTORS; j++)
                sum[i][j] += a[l * ROWS + i] * b[l * VECTORS + j];
        }
    }
    memcpy(tile, sum, sizeof sum);
}

typedef struct target {
    float *y; /* of the tile */
    const float *bias;
    int64_t stride, rows, columns;
    bool adds;
} target;

static void store(const target *to, const float *tile) {
    for (int64_t i = 0; i < to->rows; i++) {
        float *y = to->y + i * to->stride;
        for (int64_t j = 0; j < to->columns; j++) {
            const float sum = tile[i * COLUMNS + j] + (to->bias != NULL ? to->bias[j] : 0);
            y[j] = to->adds ? y[j] + sum : sum;
        }
    }
}

/* The part of the product that k elements of the sum from `first` on give. */
static void run_depth(const crl_gemm_config *f, const float *a, const float *b, const float *bias,
                      float *y, float *a_packed, float *b_packed, int64_t first, int64_t k) {
    vector tile[ROWS * VECTORS];
    for (int64_t i = 0; i < f->m; i += ROWS)
        pack(a + i * f->a_row + first * f->a_column, f->a_column, f->a_row, k,
             crl_min(ROWS, f->m - i), ROWS, a_packed + i * k);
    for (int64_t j = 0; j < f->n; j += COLUMNS) {
        const int64_t columns = crl_min(COLUMNS, f->n - j);
        pack(b + first * f->b_row + j * f->b_column, f->b_row, f->b_column, k, columns, COLUMNS,
             b_packed);
        for (int64_t i = 0; i < f->m; i += ROWS) {
            multiply(a_packed + i * k, (const vector *)(const void *)b_packed, k, tile);
            store(&(target){.y = y + i * f->y_row + j,
                            .bias = f->bias && first == 0 ? bias + j : NULL,
                            .stride = f->y_row,
                            .rows = crl_min(ROWS, f->m - i),
                            .columns = columns,
                            .adds = f->add || first > 0},
                  (const float *)tile);
        }
    }
}

int crl_gemm_run(const crl_gemm *gemm, const void *a, const void *b, const void *bias, void *y,
                 void *scratch) {
    const crl_gemm_config *f = &gemm->config;
    float *a_packed = scratch, *b_packed = a_packed + packed_floats(f);
    omp_set_num_threads(1);
    for (int64_t first = 0; first < f->k; first += DEPTH)
        run_depth(f, a, b, bias, y, a_packed, b_packed, first, crl_min(DEPTH, f->k - first));
    return 0;
}

void crl_gemm_describe(char *text, size_t text_bytes) {
    snprintf(text, text_bytes, "own products (no oneDNN)");
}
