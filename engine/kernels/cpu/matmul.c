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
 * Refuses sizes below 1 and those whose elements overflow.
 */
#include "engine/kernels/cpu/cpu_internal.h"
#include "engine/kernels/cpu/gemm_internal.h"

#include "engine/base/alloc.h"

#include <omp.h>

/* One dimension cut into `count` blocks of `block`, the last one `last`. */
typedef struct cut {
    int64_t count, block, last;
} cut;

/* Which of a block's products: the first in K writes or adds to y, the others add. */
typedef enum variant { VARIANT_WRITE = 0, VARIANT_ADD, VARIANT_NEXT, VARIANTS } variant;

enum { MAX_SLOTS = 64 }; /* tasks that may run at once, where the product needs scratch */

struct crl_matmul {
    crl_matmul_config config;
    cut m, n, k;
    crl_gemm *gemm[VARIANTS][2][2][2]; /* [..][last in m][last in n][last in k]; NULL: unused */
    size_t slot_bytes;
    int64_t slots;
};

static cut cut_dimension(int64_t size, int64_t target) {
    enum { UNIT = 16 };
    const int64_t count = crl_ceil_div(size, target);
    const int64_t block = count == 1 ? size : crl_round_up(crl_ceil_div(size, count), UNIT);
    const int64_t blocks = crl_ceil_div(size, block);
    return (cut){.count = blocks, .block = block, .last = size - (blocks - 1) * block};
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
    if ((double)m * (double)n * (double)k > small_work)
        choose_targets(config, &m, &n, &k);
    matmul->m = cut_dimension(config->m, m);
    matmul->n = cut_dimension(config->n, n);
    matmul->k = cut_dimension(config->k, k);
}

static crl_status create_gemm(crl_matmul *matmul, variant kind, const bool last[3]) {
    const crl_matmul_config *config = &matmul->config;
    crl_gemm **gemm = &matmul->gemm[kind][last[0]][last[1]][last[2]];
    const crl_gemm_config piece = {
        .m = last[0] ? matmul->m.last : matmul->m.block,
        .n = last[1] ? matmul->n.last : matmul->n.block,
        .k = last[2] ? matmul->k.last : matmul->k.block,
        .a_row = config->a_transposed ? 1 : config->k,
        .a_column = config->a_transposed ? config->m : 1,
        .b_row = config->b_transposed ? 1 : config->n,
        .b_column = config->b_transposed ? config->k : 1,
        .y_row = config->n,
        .bias = config->bias && kind != VARIANT_NEXT,
        .add = kind != VARIANT_WRITE,
    };
    CRL_TRY(crl_gemm_create(gemm, &piece));
    if (crl_gemm_scratch_bytes(*gemm) > matmul->slot_bytes)
        matmul->slot_bytes = crl_gemm_scratch_bytes(*gemm);
    return CRL_STATUS_OK;
}

/* Does a product of this kind and place occur? Bit i of `place` set: the last block of dimension i.
 */
static bool occurs(const crl_matmul *matmul, variant kind, int place) {
    const cut *const cuts[3] = {&matmul->m, &matmul->n, &matmul->k};
    for (int i = 0; i < 3; i++) {
        const bool last = (place >> i & 1) != 0;
        if (!last && cuts[i]->count == 1)
            return false;
    }
    const bool last_k = (place >> 2 & 1) != 0;
    switch (kind) {
    case VARIANT_WRITE:
        return last_k == (matmul->k.count == 1);
    case VARIANT_ADD:
        return matmul->config.may_accumulate && last_k == (matmul->k.count == 1);
    default:
        return matmul->k.count > 1 && (last_k || matmul->k.count > 2);
    }
}

static crl_status create_gemms(crl_matmul *matmul) {
    for (int kind = 0; kind < VARIANTS; kind++) {
        for (int place = 0; place < 8; place++) {
            const bool last[3] = {(place & 1) != 0, (place & 2) != 0, (place & 4) != 0};
            if (occurs(matmul, (variant)kind, place))
                CRL_TRY(create_gemm(matmul, (variant)kind, last));
        }
    }
    return CRL_STATUS_OK;
}

static crl_status check_config(const crl_matmul_config *config) {
    if (config->m < 1 || config->n < 1 || config->k < 1)
        return CRL_FAIL(INVALID, "matmul: size is %lld x %lld x %lld, expected 1 or more each",
                        (long long)config->m, (long long)config->n, (long long)config->k);
    size_t bytes;
    CRL_TRY(crl_size_mul(&bytes, (size_t)config->m, (size_t)config->k * sizeof(float), "matmul"));
    CRL_TRY(crl_size_mul(&bytes, (size_t)config->n, (size_t)config->k * sizeof(float), "matmul"));
    return crl_size_mul(&bytes, (size_t)config->m, (size_t)config->n * sizeof(float), "matmul");
}

static void matmul_destroy(crl_matmul *matmul) {
    if (matmul == NULL)
        return;
    for (int kind = 0; kind < VARIANTS; kind++) {
        for (int place = 0; place < 8; place++)
            crl_gemm_destroy(matmul->gemm[kind][place & 1][place >> 1 & 1][place >> 2]);
    }
    crl_free(matmul);
}

static crl_status matmul_create(crl_matmul **out, const crl_matmul_config *config,
                                crl_stream *stream) {
    (void)stream;
    crl_matmul *matmul = NULL;
    crl_status status;
    CRL_TRY_OUT(check_config(config));
    CRL_TRY_OUT(crl_alloc(&matmul, 1, sizeof *matmul));
    matmul->config = *config;
    cut_work(matmul);
    matmul->slots = crl_min(matmul->m.count * matmul->n.count, MAX_SLOTS);
    CRL_TRY_OUT(create_gemms(matmul));
    matmul->slot_bytes = (size_t)crl_round_up((int64_t)matmul->slot_bytes, CRL_ALIGN_BYTES);
    *out = matmul;
    matmul = NULL;
out:
    matmul_destroy(matmul);
    return status;
}

static size_t matmul_scratch_bytes(const crl_matmul *matmul) {
    return matmul->slot_bytes * (size_t)matmul->slots;
}

typedef struct operands {
    const float *a, *b, *bias;
    float *y;
    bool accumulate;
} operands;

/* Block (i, j) of y; the first failing code of oneDNN, or 0. */
static int run_task(const crl_matmul *matmul, const operands *given, int64_t task, void *scratch) {
    const crl_matmul_config *config = &matmul->config;
    const int64_t i = task % matmul->m.count, j = task / matmul->m.count;
    const int64_t row = i * matmul->m.block, column = j * matmul->n.block;
    const float *bias = config->bias ? given->bias + column : NULL;
    for (int64_t l = 0; l < matmul->k.count; l++) {
        const int64_t depth = l * matmul->k.block;
        const variant kind = l > 0 ? VARIANT_NEXT : given->accumulate ? VARIANT_ADD : VARIANT_WRITE;
        const crl_gemm *gemm = matmul->gemm[kind][i == matmul->m.count - 1]
                                           [j == matmul->n.count - 1][l == matmul->k.count - 1];
        const float *a =
            given->a + (config->a_transposed ? depth * config->m + row : row * config->k + depth);
        const float *b = given->b + (config->b_transposed ? column * config->k + depth
                                                          : depth * config->n + column);
        const int code =
            crl_gemm_run(gemm, a, b, bias, given->y + row * config->n + column, scratch);
        if (code != 0)
            return code;
    }
    return 0;
}

static crl_status matmul_run(const crl_matmul *matmul, crl_stream *stream,
                             const crl_matmul_call *call) {
    (void)stream;
    CRL_ASSERT(!call->accumulate || matmul->config.may_accumulate);
    const operands given = {.a = call->a,
                            .b = call->b,
                            .bias = call->bias,
                            .y = call->y,
                            .accumulate = call->accumulate};
    void *const scratch = call->scratch;
    const int64_t tasks = matmul->m.count * matmul->n.count;
    const int threads = crl_threads_begin();
    const int64_t limit = matmul->slot_bytes > 0 ? matmul->slots : tasks;
    const int team = (int)crl_min(threads, crl_min(limit, tasks));
    int code = 0;
#pragma omp parallel for schedule(static) num_threads(team) reduction(max : code) if (team > 1)
    for (int64_t task = 0; task < tasks; task++) {
        char *slot = (char *)scratch + matmul->slot_bytes * (size_t)omp_get_thread_num();
        const int failed = run_task(matmul, &given, task, slot);
        code = failed > code ? failed : code;
    }
    crl_threads_end(threads);
    return crl_gemm_failed(code);
}

const crl_matmul_ops crl_matmul_cpu = {
    .create = matmul_create,
    .destroy = matmul_destroy,
    .scratch_bytes = matmul_scratch_bytes,
    .run = matmul_run,
};
