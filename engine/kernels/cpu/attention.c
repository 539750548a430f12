/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Multi-head attention by tiles of 64 queries × 64 keys [dao22]. Forward: one task per head and
 * block of queries, which walks along its keys. Backward: one task per head, which walks over its
 * tiles row by row and adds to dq, dk and dv in that order; scores are computed again, not kept.
 *
 *       keys ->  0 1 2       tiles above the causal diagonal are never visited; which tile comes
 *    queries  0  #           first for a dq, dk or dv block is known, so they need no zeroing
 *             1  # #
 *             2  # # #
 *
 * In 16 bits a tile of q, k, v, y or dy is widened when it is worked on, and gradients are summed
 * in f32 until a head is done: dq of one block of queries, dk and dv of all keys.
 *
 * Refuses sizes below 1 and those whose elements overflow.
 */
#include "engine/kernels/cpu/attention_internal.h"
#include "engine/kernels/cpu/cpu_internal.h"
#include "engine/kernels/cpu/gemm_internal.h"
#include "engine/kernels/cpu/narrow_internal.h"
#include "engine/kernels/cpu/tiles_internal.h"

#include "engine/base/alloc.h"

#include <math.h>
#include <omp.h>

/* The products of a tile: s = q kᵀ, o (+)= p v, dp = dy vᵀ, dv (+)= pᵀ dy, dk (+)= dsᵀ q,
 * dq (+)= ds k. */
typedef enum product { SCORE = 0, OUTPUT, DP, DV, DK, DQ, PRODUCTS } product;

enum { MAX_SLOTS = 32 }; /* tasks that may run at once */

/* What 16 bits are widened to: (CRL_TILE, D) each. */
typedef enum part { PART_Q = 0, PART_K, PART_V, PART_DY, PART_Y, PART_DQ, PARTS } part;

struct crl_attention {
    crl_attention_config config;
    crl_dtype type;
    float scale;
    int64_t channels, blocks, last;    /* C; blocks of T; size of the last block */
    crl_gemm *gemm[PRODUCTS][2][2][2]; /* [..][last q block][last k block][adds] */
    int64_t qkv_row, y_row;            /* elements between rows of what the products work on */
    int64_t rest_floats;
    size_t gemm_bytes, forward_bytes, backward_bytes; /* of a product, and of slots */
};

/* One thread's scratch. */
typedef struct slot {
    float s[CRL_TILE * CRL_TILE] __attribute__((aligned(CRL_ALIGN_BYTES)));
    float dp[CRL_TILE * CRL_TILE];
    crl_softmax softmax;
    float delta[CRL_TILE];
    float rest[]; /* (CRL_TILE, D) outputs; in 16 bits the parts; then the products' own; then, for
                     backward in 16 bits, dk and dv (T, D) */
} slot;

typedef struct tensors {
    const void *qkv, *y, *dy;
    const float *lse;
    void *out;      /* y of forward, dqkv of backward */
    float *out_lse; /* of forward */
    bool accumulate;
} tensors;

static crl_gemm_config product_config(const crl_attention *attention, product kind, int64_t q,
                                      int64_t k) {
    const int64_t d = attention->config.head_channels;
    const int64_t in = attention->qkv_row, y = attention->y_row;
    const crl_gemm_config configs[PRODUCTS] = {
        [SCORE] = {q, k, d, in, 1, 1, in, CRL_TILE, false, false, 0, 0},
        [OUTPUT] = {q, d, k, CRL_TILE, 1, in, 1, d, false, false, 0, 0},
        [DP] = {q, k, d, y, 1, 1, in, CRL_TILE, false, false, 0, 0},
        [DV] = {k, d, q, 1, CRL_TILE, y, 1, in, false, false, 0, 0},
        [DK] = {k, d, q, 1, CRL_TILE, in, 1, in, false, false, 0, 0},
        [DQ] = {q, d, k, CRL_TILE, 1, in, 1, in, false, false, 0, 0},
    };
    return configs[kind];
}

static int64_t block_size(const crl_attention *attention, bool last) {
    return last ? attention->last : CRL_TILE;
}

static crl_status create_product(crl_attention *attention, product kind, bool q_last, bool k_last) {
    crl_gemm **gemm = attention->gemm[kind][q_last][k_last];
    crl_gemm_config config = product_config(attention, kind, block_size(attention, q_last),
                                            block_size(attention, k_last));
    for (int add = 0; add < 2; add++) {
        if (add == 1 && (kind == SCORE || kind == DP))
            continue;
        config.add = add == 1;
        CRL_TRY(crl_gemm_create(&gemm[add], &config));
        if (crl_gemm_scratch_bytes(gemm[add]) > attention->gemm_bytes)
            attention->gemm_bytes = crl_gemm_scratch_bytes(gemm[add]);
    }
    return CRL_STATUS_OK;
}

static crl_status create_products(crl_attention *attention) {
    for (int kind = 0; kind < PRODUCTS; kind++) {
        for (int place = 0; place < 4; place++) {
            const bool q_last = (place & 1) != 0, k_last = (place & 2) != 0;
            if ((!q_last || !k_last) && attention->blocks == 1)
                continue;
            if (!q_last && k_last && attention->config.causal)
                continue;
            CRL_TRY(create_product(attention, (product)kind, q_last, k_last));
        }
    }
    return CRL_STATUS_OK;
}

static crl_status check_config(const crl_attention_config *config) {
    if (config->b < 1 || config->t < 1 || config->heads < 1 || config->head_channels < 1)
        return CRL_FAIL(INVALID,
                        "attention: batch %lld, sequence %lld, heads %lld, head channels %lld, "
                        "expected 1 or more each",
                        (long long)config->b, (long long)config->t, (long long)config->heads,
                        (long long)config->head_channels);
    size_t bytes = 3 * sizeof(float);
    CRL_TRY(crl_size_mul(&bytes, bytes, (size_t)config->b, "attention"));
    CRL_TRY(crl_size_mul(&bytes, bytes, (size_t)config->t, "attention"));
    CRL_TRY(crl_size_mul(&bytes, bytes, (size_t)config->heads, "attention"));
    return crl_size_mul(&bytes, bytes, (size_t)config->head_channels, "attention");
}

static void attention_destroy(crl_attention *attention) {
    if (attention == NULL)
        return;
    for (int kind = 0; kind < PRODUCTS; kind++) {
        for (int place = 0; place < 8; place++)
            crl_gemm_destroy(attention->gemm[kind][place & 1][place >> 1 & 1][place >> 2]);
    }
    crl_free(attention);
}

static void size_slots(crl_attention *attention) {
    const int64_t d = attention->config.head_channels;
    const bool widened = attention->type != CRL_DTYPE_F32;
    attention->rest_floats = CRL_TILE * d * (widened ? 1 + PARTS : 1);
    const size_t bytes = sizeof(slot) + (size_t)attention->rest_floats * sizeof(float) +
                         attention->gemm_bytes + CRL_ALIGN_BYTES;
    attention->forward_bytes = (size_t)crl_round_up((int64_t)bytes, CRL_ALIGN_BYTES);
    const int64_t gradients = widened ? 2 * attention->config.t * d : 0;
    attention->backward_bytes =
        attention->forward_bytes +
        (size_t)crl_round_up(gradients * (int64_t)sizeof(float), CRL_ALIGN_BYTES);
}

static crl_status create(crl_dtype type, crl_attention **out, const crl_attention_config *config) {
    crl_attention *attention = NULL;
    crl_status status;
    CRL_TRY_OUT(check_config(config));
    CRL_TRY_OUT(crl_alloc(&attention, 1, sizeof *attention));
    attention->config = *config;
    attention->type = type;
    attention->scale =
        (float)(config->scale != 0 ? config->scale : 1.0 / sqrt((double)config->head_channels));
    attention->channels = config->heads * config->head_channels;
    attention->blocks = crl_ceil_div(config->t, CRL_TILE);
    attention->last = config->t - (attention->blocks - 1) * CRL_TILE;
    const bool widened = type != CRL_DTYPE_F32;
    attention->qkv_row = widened ? config->head_channels : 3 * attention->channels;
    attention->y_row = widened ? config->head_channels : attention->channels;
    CRL_TRY_OUT(create_products(attention));
    size_slots(attention);
    *out = attention;
    attention = NULL;
out:
    attention_destroy(attention);
    return status;
}

static int64_t tasks_of(const crl_attention *attention, bool forward) {
    const crl_attention_config *config = &attention->config;
    return config->b * config->heads * (forward ? attention->blocks : 1);
}

static size_t forward_scratch_bytes(const crl_attention *attention) {
    return attention->forward_bytes * (size_t)crl_min(tasks_of(attention, true), MAX_SLOTS);
}

static size_t backward_scratch_bytes(const crl_attention *attention) {
    return attention->backward_bytes * (size_t)crl_min(tasks_of(attention, false), MAX_SLOTS);
}

/* Runs a product on the tile (i, j) and remembers the first failure in *code. */
static void multiply(const crl_attention *attention, slot *own, product kind, const int64_t tile[2],
                     bool add, const float *a, const float *b, float *y, int *code) {
    const int64_t last = attention->blocks - 1;
    const crl_gemm *gemm = attention->gemm[kind][tile[0] == last][tile[1] == last][add];
    const uintptr_t end = (uintptr_t)(own->rest + attention->rest_floats);
    void *scratch = (void *)((end + CRL_ALIGN_BYTES - 1) / CRL_ALIGN_BYTES * CRL_ALIGN_BYTES);
    if (*code == 0)
        *code = crl_gemm_run(gemm, a, b, NULL, y, scratch);
}

static crl_tile tile_at(const crl_attention *attention, const int64_t at[2]) {
    const int64_t last = attention->blocks - 1;
    return (crl_tile){.rows = block_size(attention, at[0] == last),
                      .columns = block_size(attention, at[1] == last),
                      .diagonal = attention->config.causal && at[0] == at[1],
                      .scale = attention->scale};
}

static int64_t key_blocks(const crl_attention *attention, int64_t i) {
    return attention->config.causal ? i + 1 : attention->blocks;
}

/* `rows` rows of x, `stride` elements apart: where they are, or widened into the slot. */
static const float *tile_of(const crl_attention *attention, slot *own, part kind, const void *x,
                            int64_t stride, int64_t rows) {
    if (attention->type == CRL_DTYPE_F32)
        return x;
    const int64_t d = attention->config.head_channels;
    float *tile = own->rest + (1 + (int64_t)kind) * CRL_TILE * d;
    for (int64_t i = 0; i < rows; i++)
        crl_widen(attention->type, crl_at(attention->type, x, i * stride), tile + i * d, d);
    return tile;
}

/* y (+)= x, rows of D: what is done with a finished result in 16 bits. */
static void store(const crl_attention *attention, const float *x, void *y, int64_t stride,
                  int64_t rows, bool accumulate) {
    const crl_dtype type = attention->type;
    const crl_map map = {.tile = accumulate ? crl_add_tile : crl_copy_tile,
                         .arrays = accumulate ? 3 : 2,
                         .outputs = 1,
                         .x = {y, x, y},
                         .type = {type, CRL_DTYPE_F32, type},
                         .stride = {stride, attention->config.head_channels, stride}};
    crl_map_serial(&map, rows, attention->config.head_channels);
}

/* Where a head (b, h) begins in arrays of (B,T,3C) and (B,T,C). */
typedef struct place {
    int64_t q, y, lse;
} place;

static place place_of(const crl_attention *attention, int64_t head) {
    const int64_t t = attention->config.t, heads = attention->config.heads;
    const int64_t sample = head / heads, channel = head % heads * attention->config.head_channels;
    return (place){.q = sample * t * 3 * attention->channels + channel,
                   .y = sample * t * attention->channels + channel,
                   .lse = head * t};
}

/* Queries of block i of one head (b, h). */
static int forward_task(const crl_attention *attention, const tensors *x, int64_t head, int64_t i,
                        slot *own) {
    const crl_dtype type = attention->type;
    const int64_t d = attention->config.head_channels, c = attention->channels, stride = 3 * c;
    const int64_t row = i * CRL_TILE, rows = crl_min(CRL_TILE, attention->config.t - row);
    const place at_head = place_of(attention, head);
    const int64_t query = at_head.q + row * stride;
    const float *q = tile_of(attention, own, PART_Q, crl_at(type, x->qkv, query), stride, rows);
    int code = 0;
    for (int64_t j = 0; j < key_blocks(attention, i); j++) {
        const int64_t at[2] = {i, j}, key = at_head.q + j * CRL_TILE * stride + c;
        const crl_tile tile = tile_at(attention, at);
        const float *k =
            tile_of(attention, own, PART_K, crl_at(type, x->qkv, key), stride, tile.columns);
        const float *v =
            tile_of(attention, own, PART_V, crl_at(type, x->qkv, key + c), stride, tile.columns);
        multiply(attention, own, SCORE, at, false, q, k, own->s, &code);
        crl_tile_softmax(&tile, j == 0, own->s, &own->softmax, own->rest, d);
        multiply(attention, own, OUTPUT, at, j > 0, own->s, v, own->rest, &code);
    }
    void *y = crl_at_mutable(type, x->out, at_head.y + row * c);
    float *finished = type == CRL_DTYPE_F32 ? y : own->rest;
    crl_tile_finish(rows, &own->softmax, own->rest, finished, type == CRL_DTYPE_F32 ? c : d, d,
                    x->out_lse + at_head.lse + row);
    if (type != CRL_DTYPE_F32)
        store(attention, own->rest, y, c, rows, false);
    return code;
}

/* Gradients of one head as they are summed: in dqkv itself, or in the slot. */
typedef struct gradients {
    float *dq, *dk, *dv; /* dq of the present block of queries */
    bool adds;           /* to what is there before the first tile */
} gradients;

/* The queries `row` and on against all their keys. */
static int backward_queries(const crl_attention *attention, const tensors *x, const place *head,
                            int64_t i, const gradients *out, slot *own) {
    const crl_dtype type = attention->type;
    const int64_t d = attention->config.head_channels, c = attention->channels, stride = 3 * c;
    const int64_t row = i * CRL_TILE, rows = crl_min(CRL_TILE, attention->config.t - row);
    const int64_t query = head->q + row * stride, output = head->y + row * c;
    const float *q = tile_of(attention, own, PART_Q, crl_at(type, x->qkv, query), stride, rows);
    const float *dy = tile_of(attention, own, PART_DY, crl_at(type, x->dy, output), c, rows);
    const float *y = tile_of(attention, own, PART_Y, crl_at(type, x->y, output), c, rows);
    int code = 0;
    crl_tile_delta(rows, y, dy, attention->y_row, d, own->delta);
    for (int64_t j = 0; j < key_blocks(attention, i); j++) {
        const int64_t at[2] = {i, j}, key = head->q + j * CRL_TILE * stride + c;
        const int64_t gradient = j * CRL_TILE * attention->qkv_row;
        const bool add_q = out->adds || j > 0;
        const bool add_k = out->adds || i > (attention->config.causal ? j : 0);
        const crl_tile tile = tile_at(attention, at);
        const float *k =
            tile_of(attention, own, PART_K, crl_at(type, x->qkv, key), stride, tile.columns);
        const float *v =
            tile_of(attention, own, PART_V, crl_at(type, x->qkv, key + c), stride, tile.columns);
        multiply(attention, own, SCORE, at, false, q, k, own->s, &code);
        multiply(attention, own, DP, at, false, dy, v, own->dp, &code);
        crl_tile_probability(&tile, own->s, x->lse + head->lse + row);
        multiply(attention, own, DV, at, add_k, own->s, dy, out->dv + gradient, &code);
        crl_tile_gradient(&tile, own->s, own->dp, own->delta);
        multiply(attention, own, DK, at, add_k, own->dp, q, out->dk + gradient, &code);
        multiply(attention, own, DQ, at, add_q, own->dp, k, out->dq, &code);
    }
    return code;
}

/* All tiles of one head (b, h). */
static int backward_task(const crl_attention *attention, const tensors *x, int64_t head,
                         slot *own) {
    const crl_dtype type = attention->type;
    const int64_t d = attention->config.head_channels, c = attention->channels, stride = 3 * c;
    const int64_t t = attention->config.t;
    const bool direct = type == CRL_DTYPE_F32;
    const place at = place_of(attention, head);
    void *dk = crl_at_mutable(type, x->out, at.q + c),
         *dv = crl_at_mutable(type, x->out, at.q + 2 * c);
    float *sums = (float *)(void *)((char *)own + attention->forward_bytes);
    int code = 0;
    for (int64_t i = 0; i < attention->blocks && code == 0; i++) {
        const int64_t row = i * CRL_TILE;
        void *dq = crl_at_mutable(type, x->out, at.q + row * stride);
        const gradients out = {.dq = direct ? dq : own->rest + (1 + PART_DQ) * CRL_TILE * d,
                               .dk = direct ? dk : sums,
                               .dv = direct ? dv : sums + t * d,
                               .adds = direct && x->accumulate};
        code = backward_queries(attention, x, &at, i, &out, own);
        if (!direct)
            store(attention, out.dq, dq, stride, crl_min(CRL_TILE, t - row), x->accumulate);
    }
    if (!direct) {
        store(attention, sums, dk, stride, t, x->accumulate);
        store(attention, sums + t * d, dv, stride, t, x->accumulate);
    }
    return code;
}

static crl_status run_tasks(const crl_attention *attention, const tensors *x, bool forward,
                            void *scratch) {
    const int64_t tasks = tasks_of(attention, forward), blocks = attention->blocks;
    const int threads = crl_threads_begin();
    const bool small = tasks_of(attention, true) * attention->config.head_channels < 256;
    const int team = small ? 1 : (int)crl_min(threads, crl_min(tasks, MAX_SLOTS));
    const size_t slot_bytes = forward ? attention->forward_bytes : attention->backward_bytes;
    int code = 0;
#pragma omp parallel for schedule(static) num_threads(team) reduction(max : code) if (team > 1)
    for (int64_t task = 0; task < tasks; task++) {
        slot *own = (slot *)((char *)scratch + slot_bytes * (size_t)omp_get_thread_num());
        const int failed = forward ? forward_task(attention, x, task / blocks, task % blocks, own)
                                   : backward_task(attention, x, task, own);
        code = failed > code ? failed : code;
    }
    crl_threads_end(threads);
    return crl_gemm_failed(code);
}

static crl_status attention_forward(const crl_attention *attention, crl_stream *stream,
                                    const void *qkv, void *y, float *lse, void *scratch) {
    (void)stream;
    const tensors x = {.qkv = qkv, .out = y, .out_lse = lse};
    return run_tasks(attention, &x, true, scratch);
}

static crl_status attention_backward(const crl_attention *attention, crl_stream *stream,
                                     const void *qkv, const void *y, const float *lse,
                                     const void *dy, void *dqkv, bool accumulate, void *scratch) {
    (void)stream;
    const tensors x = {
        .qkv = qkv, .y = y, .lse = lse, .dy = dy, .out = dqkv, .accumulate = accumulate};
    return run_tasks(attention, &x, false, scratch);
}

/* The entries of one table (see CRL_TABLES). */
#define ENTRIES(suffix, TYPE)                                                                      \
    static crl_status create_##suffix(crl_attention **out, const crl_attention_config *config,     \
                                      crl_stream *stream) {                                        \
        (void)stream;                                                                              \
        return create(TYPE, out, config);                                                          \
    }                                                                                              \
    const crl_attention_ops crl_attention_cpu_##suffix = {                                         \
        .create = create_##suffix,                                                                 \
        .destroy = attention_destroy,                                                              \
        .forward_scratch_bytes = forward_scratch_bytes,                                            \
        .backward_scratch_bytes = backward_scratch_bytes,                                          \
        .forward = attention_forward,                                                              \
        .backward = attention_backward,                                                            \
    };
CRL_TABLES(ENTRIES)
