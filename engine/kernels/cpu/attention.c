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
 * Refuses sizes below 1 and those whose elements overflow.
 */
#include "engine/kernels/cpu/attention_internal.h"
#include "engine/kernels/cpu/cpu_internal.h"
#include "engine/kernels/cpu/gemm_internal.h"

#include "engine/base/alloc.h"

#include <math.h>
#include <omp.h>

/* The products of a tile: s = q kᵀ, o (+)= p v, dp = dy vᵀ, dv (+)= pᵀ dy, dk (+)= dsᵀ q,
 * dq (+)= ds k. */
typedef enum product { SCORE = 0, OUTPUT, DP, DV, DK, DQ, PRODUCTS } product;

enum { MAX_SLOTS = 32 }; /* tasks that may run at once */

struct crl_attention {
    crl_attention_config config;
    float scale;
    int64_t channels, blocks, last;    /* C; blocks of T; size of the last block */
    crl_gemm *gemm[PRODUCTS][2][2][2]; /* [..][last q block][last k block][adds] */
    size_t gemm_bytes, slot_bytes;
};

/* One thread's scratch. */
typedef struct slot {
    float s[CRL_TILE * CRL_TILE] __attribute__((aligned(CRL_ALIGN_BYTES)));
    float dp[CRL_TILE * CRL_TILE];
    crl_softmax softmax;
    float delta[CRL_TILE];
    float rest[]; /* (CRL_TILE, D) outputs, then the products' own */
} slot;

typedef struct tensors {
    const float *qkv, *y, *lse, *dy;
    float *out;     /* y of forward, dqkv of backward */
    float *out_lse; /* of forward */
    bool accumulate;
} tensors;

static crl_gemm_config product_config(const crl_attention *attention, product kind, int64_t q,
                                      int64_t k) {
    const int64_t d = attention->config.head_channels, c = attention->channels;
    const crl_gemm_config configs[PRODUCTS] = {
        [SCORE] = {q, k, d, 3 * c, 1, 1, 3 * c, CRL_TILE, false, false},
        [OUTPUT] = {q, d, k, CRL_TILE, 1, 3 * c, 1, d, false, false},
        [DP] = {q, k, d, c, 1, 1, 3 * c, CRL_TILE, false, false},
        [DV] = {k, d, q, 1, CRL_TILE, c, 1, 3 * c, false, false},
        [DK] = {k, d, q, 1, CRL_TILE, 3 * c, 1, 3 * c, false, false},
        [DQ] = {q, d, k, CRL_TILE, 1, 3 * c, 1, 3 * c, false, false},
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

static crl_status attention_create(crl_attention **out, const crl_attention_config *config,
                                   crl_stream *stream) {
    (void)stream;
    crl_attention *attention = NULL;
    crl_status status;
    CRL_TRY_OUT(check_config(config));
    CRL_TRY_OUT(crl_alloc(&attention, 1, sizeof *attention));
    attention->config = *config;
    attention->scale =
        (float)(config->scale != 0 ? config->scale : 1.0 / sqrt((double)config->head_channels));
    attention->channels = config->heads * config->head_channels;
    attention->blocks = crl_ceil_div(config->t, CRL_TILE);
    attention->last = config->t - (attention->blocks - 1) * CRL_TILE;
    CRL_TRY_OUT(create_products(attention));
    const size_t floats = CRL_TILE * (size_t)config->head_channels;
    attention->slot_bytes = (size_t)crl_round_up(
        (int64_t)(sizeof(slot) + floats * sizeof(float) + attention->gemm_bytes) + CRL_ALIGN_BYTES,
        CRL_ALIGN_BYTES);
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
    return attention->slot_bytes * (size_t)crl_min(tasks_of(attention, true), MAX_SLOTS);
}

static size_t backward_scratch_bytes(const crl_attention *attention) {
    return attention->slot_bytes * (size_t)crl_min(tasks_of(attention, false), MAX_SLOTS);
}

/* Runs a product on the tile (i, j) and remembers the first failure in *code. */
static void multiply(const crl_attention *attention, slot *own, product kind, const int64_t tile[2],
                     bool add, const float *a, const float *b, float *y, int *code) {
    const int64_t last = attention->blocks - 1;
    const crl_gemm *gemm = attention->gemm[kind][tile[0] == last][tile[1] == last][add];
    const uintptr_t end = (uintptr_t)(own->rest + CRL_TILE * attention->config.head_channels);
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

/* Queries of block i of one head (b, h). */
static int forward_task(const crl_attention *attention, const tensors *x, int64_t head, int64_t i,
                        slot *own) {
    const int64_t d = attention->config.head_channels, c = attention->channels;
    const int64_t t = attention->config.t, heads = attention->config.heads;
    const int64_t sample = head / heads, channel = head % heads * d, row = i * CRL_TILE;
    const float *q = x->qkv + sample * t * 3 * c + channel, *k = q + c, *v = k + c;
    int code = 0;
    for (int64_t j = 0; j < key_blocks(attention, i); j++) {
        const int64_t at[2] = {i, j};
        const int64_t key = j * CRL_TILE * 3 * c;
        const crl_tile tile = tile_at(attention, at);
        multiply(attention, own, SCORE, at, false, q + row * 3 * c, k + key, own->s, &code);
        crl_tile_softmax(&tile, j == 0, own->s, &own->softmax, own->rest, d);
        multiply(attention, own, OUTPUT, at, j > 0, own->s, v + key, own->rest, &code);
    }
    crl_tile_finish(crl_min(CRL_TILE, t - row), &own->softmax, own->rest,
                    x->out + (sample * t + row) * c + channel, c, d, x->out_lse + head * t + row);
    return code;
}

/* All tiles of one head (b, h). */
static int backward_task(const crl_attention *attention, const tensors *x, int64_t head,
                         slot *own) {
    const int64_t d = attention->config.head_channels, c = attention->channels;
    const int64_t t = attention->config.t, heads = attention->config.heads;
    const int64_t sample = head / heads, channel = head % heads * d, stride = 3 * c;
    const float *q = x->qkv + sample * t * stride + channel, *k = q + c, *v = k + c;
    float *dq = x->out + sample * t * stride + channel, *dk = dq + c, *dv = dk + c;
    int code = 0;
    for (int64_t i = 0; i < attention->blocks; i++) {
        const int64_t row = i * CRL_TILE, out = (sample * t + row) * c + channel;
        const float *dy = x->dy + out;
        crl_tile_delta(crl_min(CRL_TILE, t - row), x->y + out, dy, c, d, own->delta);
        for (int64_t j = 0; j < key_blocks(attention, i); j++) {
            const int64_t at[2] = {i, j};
            const int64_t query = row * stride, key = j * CRL_TILE * stride;
            const bool add_q = x->accumulate || j > 0;
            const bool add_k = x->accumulate || i > (attention->config.causal ? j : 0);
            const crl_tile tile = tile_at(attention, at);
            multiply(attention, own, SCORE, at, false, q + query, k + key, own->s, &code);
            multiply(attention, own, DP, at, false, dy, v + key, own->dp, &code);
            crl_tile_probability(&tile, own->s, x->lse + head * t + row);
            multiply(attention, own, DV, at, add_k, own->s, dy, dv + key, &code);
            crl_tile_gradient(&tile, own->s, own->dp, own->delta);
            multiply(attention, own, DK, at, add_k, own->dp, q + query, dk + key, &code);
            multiply(attention, own, DQ, at, add_q, own->dp, k + key, dq + query, &code);
        }
    }
    return code;
}

static crl_status run_tasks(const crl_attention *attention, const tensors *x, bool forward,
                            void *scratch) {
    const int64_t tasks = tasks_of(attention, forward), blocks = attention->blocks;
    const int threads = crl_threads_begin();
    const bool small = tasks_of(attention, true) * attention->config.head_channels < 256;
    const int team = small ? 1 : (int)crl_min(threads, crl_min(tasks, MAX_SLOTS));
    int code = 0;
#pragma omp parallel for schedule(static) num_threads(team) reduction(max : code) if (team > 1)
    for (int64_t task = 0; task < tasks; task++) {
        slot *own =
            (slot *)((char *)scratch + attention->slot_bytes * (size_t)omp_get_thread_num());
        const int failed = forward ? forward_task(attention, x, task / blocks, task % blocks, own)
                                   : backward_task(attention, x, task, own);
        code = failed > code ? failed : code;
    }
    crl_threads_end(threads);
    return crl_gemm_failed(code);
}

static crl_status attention_forward(const crl_attention *attention, crl_stream *stream,
                                    const void *qkv_, void *y_, float *lse, void *scratch) {
    const float *qkv = qkv_;
    float *y = y_;
    (void)stream;
    const tensors x = {.qkv = qkv, .out = y, .out_lse = lse};
    return run_tasks(attention, &x, true, scratch);
}

static crl_status attention_backward(const crl_attention *attention, crl_stream *stream,
                                     const void *qkv_, const void *y_, const float *lse,
                                     const void *dy_, void *dqkv_, bool accumulate, void *scratch) {
    const float *qkv = qkv_;
    const float *y = y_;
    const float *dy = dy_;
    float *dqkv = dqkv_;
    (void)stream;
    const tensors x = {
        .qkv = qkv, .y = y, .lse = lse, .dy = dy, .out = dqkv, .accumulate = accumulate};
    return run_tasks(attention, &x, false, scratch);
}

const crl_attention_ops crl_attention_cpu = {
    .create = attention_create,
    .destroy = attention_destroy,
    .forward_scratch_bytes = forward_scratch_bytes,
    .backward_scratch_bytes = backward_scratch_bytes,
    .forward = attention_forward,
    .backward = attention_backward,
};
