/* SPDX-License-Identifier: Apache-2.0 */
/* Runs a product block by block, and ends each block as configured. Refuses nothing: matmul.c did.
 */
#include "engine/kernels/cpu/matmul_internal.h"

#include "engine/kernels/cpu/cpu_internal.h"
#include "engine/kernels/cpu/narrow_internal.h"
#include "engine/kernels/cpu/reduce_internal.h"
#include "engine/kernels/cpu/tiles_internal.h"

#include <omp.h>

/* One block of y on its way: place, size, and the parts of its slot. */
typedef struct task {
    int64_t i, j;        /* of the grid */
    int64_t row, column; /* of y */
    int64_t rows, columns;
    void *scratch; /* of the gemms */
    float *stage, *a, *b, *bias;
} task;

static task task_at(const crl_matmul *matmul, int64_t index, void *slot) {
    task t = {.i = index % matmul->m.count, .j = index / matmul->m.count, .scratch = slot};
    t.row = t.i * matmul->m.block;
    t.column = t.j * matmul->n.block;
    t.rows = t.i == matmul->m.count - 1 ? matmul->m.last : matmul->m.block;
    t.columns = t.j == matmul->n.count - 1 ? matmul->n.last : matmul->n.block;
    t.stage = (float *)(void *)((char *)slot + matmul->gemm_bytes);
    t.a = t.stage + matmul->stage_floats;
    t.b = t.a + matmul->a_floats;
    t.bias = t.b + matmul->b_floats;
    return t;
}

/* Widens a block of a matrix, `stride` elements from row to row, into y without gaps. */
static void widen_block(crl_dtype type, const void *x, int64_t stride, int64_t rows,
                        int64_t columns, float *y) {
    for (int64_t i = 0; i < rows; i++)
        crl_widen(type, crl_at(type, x, i * stride), y + i * columns, columns);
}

/* The block of A or B, stored `rows` by `columns` inside rows of `stride`, as its gemm wants it. */
static const void *operand(const crl_matmul *matmul, const void *x, int64_t stride, int64_t rows,
                           int64_t columns, float *widened) {
    if (!matmul->widened)
        return x;
    widen_block(matmul->type, x, stride, rows, columns, widened);
    return widened;
}

/* The product of one block in K, written or added to `out`; the library's code. */
static int run_piece(const crl_matmul *matmul, const crl_matmul_call *given, const task *t,
                     int64_t l, void *out) {
    const crl_matmul_config *f = &matmul->config;
    const crl_dtype type = matmul->type;
    const bool last_k = l == matmul->k.count - 1;
    const int64_t depth = l * matmul->k.block, k = last_k ? matmul->k.last : matmul->k.block;
    const bool adds = given->accumulate && !matmul->staged;
    const crl_matmul_kind kind = l > 0 ? CRL_MATMUL_NEXT : adds ? CRL_MATMUL_ADD : CRL_MATMUL_WRITE;
    const crl_gemm *gemm =
        matmul->gemm[kind][t->i == matmul->m.count - 1][t->j == matmul->n.count - 1][last_k];
    const void *a = f->a_transposed ? operand(matmul, crl_at(type, given->a, depth * f->m + t->row),
                                              f->m, k, t->rows, t->a)
                                    : operand(matmul, crl_at(type, given->a, t->row * f->k + depth),
                                              f->k, t->rows, k, t->a);
    const void *b = f->b_transposed
                        ? operand(matmul, crl_at(type, given->b, t->column * f->k + depth), f->k,
                                  t->columns, k, t->b)
                        : operand(matmul, crl_at(type, given->b, depth * f->n + t->column), f->n, k,
                                  t->columns, t->b);
    const void *bias =
        f->bias ? operand(matmul, crl_at(type, given->bias, t->column), 0, 1, t->columns, t->bias)
                : NULL;
    return crl_gemm_run(gemm, a, b, bias, out, t->scratch);
}

/* What is done to a block once its sum is there. */
static void finish_block(const crl_matmul *matmul, const crl_matmul_call *given, const task *t) {
    const crl_matmul_config *f = &matmul->config;
    const crl_dtype type = matmul->y_type;
    const int64_t at = t->row * f->n + t->column, stride = f->n;
    void *y = crl_at_mutable(type, given->y, at), *aux = NULL;
    if (f->epilogue != CRL_EPILOGUE_NONE)
        aux = crl_at_mutable(type, given->aux, at);
    crl_map map = {.outputs = 1};
    if (f->epilogue == CRL_EPILOGUE_SLOPE) {
        map = (crl_map){.tile = crl_activation_slope_tile(f->activation),
                        .context = &(crl_tile_options){false},
                        .arrays = 3,
                        .outputs = 1,
                        .x = {y, aux, matmul->staged ? t->stage : y},
                        .type = {type, type, matmul->staged ? CRL_DTYPE_F32 : type},
                        .stride = {stride, stride, matmul->staged ? matmul->n.block : stride}};
        crl_map_serial(&map, t->rows, t->columns);
    } else if (matmul->staged) {
        void *out = aux != NULL ? aux : y;
        map = (crl_map){.tile = given->accumulate ? crl_add_tile : crl_copy_tile,
                        .arrays = given->accumulate ? 3 : 2,
                        .outputs = 1,
                        .x = {out, t->stage, out},
                        .type = {type, CRL_DTYPE_F32, type},
                        .stride = {stride, matmul->n.block, stride}};
        crl_map_serial(&map, t->rows, t->columns);
    }
    if (f->epilogue == CRL_EPILOGUE_ACTIVATION) {
        map = (crl_map){.tile = crl_activation_tile(f->activation),
                        .arrays = 2,
                        .outputs = 1,
                        .x = {y, aux},
                        .type = {type, type},
                        .stride = {stride, stride}};
        crl_map_serial(&map, t->rows, t->columns);
    }
}

/* One block of y; the first failing code of the library, or 0. */
static int run_task(const crl_matmul *matmul, const crl_matmul_call *given, const task *t) {
    const bool to_aux = matmul->config.epilogue == CRL_EPILOGUE_ACTIVATION;
    void *out = matmul->staged ? t->stage
                               : crl_at_mutable(matmul->y_type, to_aux ? given->aux : given->y,
                                                t->row * matmul->config.n + t->column);
    for (int64_t l = 0; l < matmul->k.count; l++) {
        const int code = run_piece(matmul, given, t, l, out);
        if (code != 0)
            return code;
    }
    finish_block(matmul, given, t);
    return 0;
}

static void sum_rows(const crl_matmul *matmul, const crl_matmul_call *given) {
    const crl_matmul_config *f = &matmul->config;
    if (f->a_transposed)
        crl_column_sum(matmul->type, given->a, given->sums, f->k, f->m, given->accumulate);
    else
        crl_row_sum(matmul->type, given->a, given->sums, f->m, f->k, given->accumulate);
}

crl_status crl_matmul_run(const crl_matmul *matmul, crl_stream *stream,
                          const crl_matmul_call *call) {
    (void)stream;
    CRL_ASSERT(!call->accumulate || matmul->config.may_accumulate);
    const int64_t tasks = matmul->m.count * matmul->n.count;
    const int threads = crl_threads_begin();
    const int64_t limit = matmul->slot_bytes > 0 ? matmul->slots : tasks;
    const int team = (int)crl_min(threads, crl_min(limit, tasks));
    int code = 0;
#pragma omp parallel for schedule(static) num_threads(team) reduction(max : code) if (team > 1)
    for (int64_t index = 0; index < tasks; index++) {
        char *slot = (char *)call->scratch + matmul->slot_bytes * (size_t)omp_get_thread_num();
        const task t = task_at(matmul, index, slot);
        const int failed = run_task(matmul, call, &t);
        code = failed > code ? failed : code;
    }
    crl_threads_end(threads);
    CRL_TRY(crl_gemm_failed(code));
    if (matmul->config.row_sums)
        sum_rows(matmul, call);
    return CRL_STATUS_OK;
}
