/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Matrix products as a fixed grid of single-threaded ones. The grid follows from the sizes alone,
 * so the bits do not depend on the number of threads:
 *
 *              N ->   task 0 | task 1 | ...      each task walks through K in fixed blocks,
 *         M    +------+------+------+            adding to its block of y
 *         |    |      |      |      |
 *         v    +------+------+------+
 *
 * What ends a product (activation, the activation's gradient) is done to each block as soon as it
 * is there. In 16 bits, blocks whose sum has several parts, or is not the result yet, are held in
 * f32 until then ("staged"), so that a result is rounded once. Where the library has no product of
 * the type, blocks of A and B are widened first ("widened").
 *
 * Refuses sizes below 1, those whose elements overflow, and f32 results with an activation in
 * 16 bits.
 */
#include "engine/kernels/cpu/cpu_internal.h"
#include "engine/kernels/cpu/matmul_internal.h"

#include "engine/base/alloc.h"

/* Tasks that may run at once where the product needs scratch: as many as find room, within limits.
 */
enum { MIN_SLOTS = 16, MAX_SLOTS = 64, SLOTS_BYTES = 32 << 20 };

static crl_cut cut_dimension(int64_t size, int64_t target) {
    enum { UNIT = 16 };
    const int64_t count = crl_ceil_div(size, target);
    const int64_t block = count == 1 ? size : crl_round_up(crl_ceil_div(size, count), UNIT);
    const int64_t blocks = crl_ceil_div(size, block);
    return (crl_cut){.count = blocks, .block = block, .last = size - (blocks - 1) * block};
}

/*
 * Block sizes by measurement: near oneDNN's full speed, and 4 tasks or more in every product of a
 * small transformer. Rows that hold all of N keep oneDNN's fast path for dense matrices, which pays
 * where it would else pack a transposed B again for every block of rows. Columns of wide matrices
 * lie a multiple of the page size apart, so their blocks are kept narrow. Long sums are cut so that
 * the block of B stays in the cache.
 */
static void choose_targets(const crl_matmul_config *config, int64_t *m, int64_t *n, int64_t *k) {
    const int64_t rows = config->m, columns = config->n;
    if (config->a_transposed) {
        *m = rows > 1024 ? 512 : columns > 1024 ? 384 : 192;
        *n = 768;
        *k = rows > 1024 ? 512 : 2048;
    } else if (config->b_transposed && rows >= 768 && columns <= 1024) {
        *m = 256;
        *n = columns;
        *k = 4096;
    } else {
        *m = columns > 768 || config->b_transposed ? 1024 : rows >= 512 ? 256 : 384;
        *n = columns > 768 ? 384 : 192;
        *k = config->k > 4096 ? 2048 : 4096;
    }
}

static void cut_work(crl_matmul *matmul) {
    const crl_matmul_config *config = &matmul->config;
    const double small_work = 1 << 20; /* multiplications that are not worth a thread */
    int64_t m = config->m, n = config->n, k = config->k;
    if (matmul->widened)
        m = n = 256, k = 512;
    else if ((double)m * (double)n * (double)k > small_work)
        choose_targets(config, &m, &n, &k);
    matmul->m = cut_dimension(config->m, m);
    matmul->n = cut_dimension(config->n, n);
    matmul->k = cut_dimension(config->k, k);
}

/* The gemm of one kind and place; `last`: of each dimension, the last block? */
static crl_gemm_config piece_config(const crl_matmul *matmul, crl_matmul_kind kind,
                                    const bool last[3]) {
    const crl_matmul_config *config = &matmul->config;
    const int64_t m = last[0] ? matmul->m.last : matmul->m.block;
    const int64_t n = last[1] ? matmul->n.last : matmul->n.block;
    const int64_t k = last[2] ? matmul->k.last : matmul->k.block;
    const bool widened = matmul->widened;
    const int64_t a_row = config->a_transposed ? (widened ? m : config->m)
                          : widened            ? k
                                               : config->k;
    const int64_t b_row = config->b_transposed ? (widened ? k : config->k)
                          : widened            ? n
                                               : config->n;
    return (crl_gemm_config){
        .m = m,
        .n = n,
        .k = k,
        .a_row = config->a_transposed ? 1 : a_row,
        .a_column = config->a_transposed ? a_row : 1,
        .b_row = config->b_transposed ? 1 : b_row,
        .b_column = config->b_transposed ? b_row : 1,
        .y_row = matmul->staged ? matmul->n.block : config->n,
        .bias = config->bias && kind != CRL_MATMUL_NEXT,
        .add = kind != CRL_MATMUL_WRITE,
        .type = widened ? CRL_DTYPE_F32 : matmul->type,
        .y_type = matmul->staged ? CRL_DTYPE_F32 : matmul->y_type,
    };
}

static crl_status create_gemm(crl_matmul *matmul, crl_matmul_kind kind, const bool last[3]) {
    crl_gemm **gemm = &matmul->gemm[kind][last[0]][last[1]][last[2]];
    const crl_gemm_config piece = piece_config(matmul, kind, last);
    CRL_TRY(crl_gemm_create(gemm, &piece));
    if (crl_gemm_scratch_bytes(*gemm) > matmul->gemm_bytes)
        matmul->gemm_bytes = crl_gemm_scratch_bytes(*gemm);
    return CRL_STATUS_OK;
}

/* Does a product of this kind and place occur? Bit i of `place` set: the last block of dimension i.
 */
static bool occurs(const crl_matmul *matmul, crl_matmul_kind kind, int place) {
    const crl_cut *const cuts[3] = {&matmul->m, &matmul->n, &matmul->k};
    for (int i = 0; i < 3; i++) {
        const bool last = (place >> i & 1) != 0;
        if (!last && cuts[i]->count == 1)
            return false;
    }
    const bool last_k = (place >> 2 & 1) != 0;
    switch (kind) {
    case CRL_MATMUL_WRITE:
        return last_k == (matmul->k.count == 1);
    case CRL_MATMUL_ADD:
        return matmul->config.may_accumulate && !matmul->staged && last_k == (matmul->k.count == 1);
    default:
        return matmul->k.count > 1 && (last_k || matmul->k.count > 2);
    }
}

static crl_status create_gemms(crl_matmul *matmul) {
    for (int kind = 0; kind < CRL_MATMUL_KINDS; kind++) {
        for (int place = 0; place < 8; place++) {
            const bool last[3] = {(place & 1) != 0, (place & 2) != 0, (place & 4) != 0};
            if (occurs(matmul, (crl_matmul_kind)kind, place))
                CRL_TRY(create_gemm(matmul, (crl_matmul_kind)kind, last));
        }
    }
    return CRL_STATUS_OK;
}

static crl_status check_config(const crl_matmul_config *config) {
    if (config->m < 1 || config->n < 1 || config->k < 1)
        return CRL_FAIL(INVALID, "matmul: size is %lld x %lld x %lld, expected 1 or more each",
                        (long long)config->m, (long long)config->n, (long long)config->k);
    if (config->epilogue != CRL_EPILOGUE_NONE && (config->may_accumulate || config->y_is_f32))
        return CRL_FAIL(UNSUPPORTED, "matmul: an activation in a result that is %s, expected none",
                        config->may_accumulate ? "added to" : "a weight's gradient");
    size_t bytes;
    CRL_TRY(crl_size_mul(&bytes, (size_t)config->m, (size_t)config->k * sizeof(float), "matmul"));
    CRL_TRY(crl_size_mul(&bytes, (size_t)config->n, (size_t)config->k * sizeof(float), "matmul"));
    return crl_size_mul(&bytes, (size_t)config->m, (size_t)config->n * sizeof(float), "matmul");
}

static void matmul_destroy(crl_matmul *matmul) {
    if (matmul == NULL)
        return;
    for (int kind = 0; kind < CRL_MATMUL_KINDS; kind++) {
        for (int place = 0; place < 8; place++)
            crl_gemm_destroy(matmul->gemm[kind][place & 1][place >> 1 & 1][place >> 2]);
    }
    crl_free(matmul);
}

/* Where the library has no product of the type, all is f32 inside. */
static void choose_path(crl_matmul *matmul) {
    const crl_matmul_config *config = &matmul->config;
    const bool narrow = matmul->y_type != CRL_DTYPE_F32;
    cut_work(matmul);
    matmul->staged = narrow && (matmul->k.count > 1 || config->epilogue == CRL_EPILOGUE_SLOPE);
    if (matmul->type != CRL_DTYPE_F32) {
        const crl_gemm_config piece =
            piece_config(matmul, CRL_MATMUL_ADD, (bool[3]){true, true, true});
        matmul->widened = !crl_gemm_has(&piece);
    }
    if (matmul->widened) {
        matmul->staged = narrow;
        cut_work(matmul);
    }
}

/* Floats of a block of scratch, kept whole cache lines apart. */
static int64_t block_floats(int64_t rows, int64_t columns) {
    return crl_round_up(rows * columns, CRL_ALIGN_BYTES / (int64_t)sizeof(float));
}

static void size_scratch(crl_matmul *matmul) {
    const int64_t m = matmul->m.block, n = matmul->n.block, k = matmul->k.block;
    matmul->gemm_bytes = (size_t)crl_round_up((int64_t)matmul->gemm_bytes, CRL_ALIGN_BYTES);
    int64_t floats = 0;
    if (matmul->staged)
        floats += matmul->stage_floats = block_floats(m, n);
    if (matmul->widened) {
        matmul->a_floats = block_floats(m, k);
        matmul->b_floats = block_floats(k, n);
        floats += matmul->a_floats + matmul->b_floats + block_floats(1, n);
    }
    matmul->slot_bytes = matmul->gemm_bytes + (size_t)floats * sizeof(float);
    const int64_t room = SLOTS_BYTES / ((int64_t)matmul->slot_bytes + 1);
    const int64_t slots = room < MIN_SLOTS ? MIN_SLOTS : crl_min(room, MAX_SLOTS);
    matmul->slots = crl_min(matmul->m.count * matmul->n.count, slots);
}

static crl_status create(crl_dtype type, crl_matmul **out, const crl_matmul_config *config) {
    crl_matmul *matmul = NULL;
    crl_status status;
    CRL_TRY_OUT(check_config(config));
    CRL_TRY_OUT(crl_alloc(&matmul, 1, sizeof *matmul));
    matmul->config = *config;
    matmul->type = type;
    matmul->y_type = config->y_is_f32 ? CRL_DTYPE_F32 : type;
    choose_path(matmul);
    CRL_TRY_OUT(create_gemms(matmul));
    size_scratch(matmul);
    *out = matmul;
    matmul = NULL;
out:
    matmul_destroy(matmul);
    return status;
}

static size_t matmul_scratch_bytes(const crl_matmul *matmul) {
    return matmul->slot_bytes * (size_t)matmul->slots;
}

/* The entries of one table (see CRL_TABLES). */
#define ENTRIES(suffix, TYPE)                                                                      \
    static crl_status create_##suffix(crl_matmul **out, const crl_matmul_config *config,           \
                                      crl_stream *stream) {                                        \
        (void)stream;                                                                              \
        return create(TYPE, out, config);                                                          \
    }                                                                                              \
    const crl_matmul_ops crl_matmul_cpu_##suffix = {                                               \
        .create = create_##suffix,                                                                 \
        .destroy = matmul_destroy,                                                                 \
        .scratch_bytes = matmul_scratch_bytes,                                                     \
        .run = crl_matmul_run,                                                                     \
    };
CRL_TABLES(ENTRIES)
