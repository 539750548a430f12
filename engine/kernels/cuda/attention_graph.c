/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The graphs that cuDNN knows as flash attention [dao22], forward and backward, in the shapes that
 * its documentation gives them: q (B,H,T,D), k transposed (B,H,D,T), v (B,H,T,D), backward v
 * transposed too. Strides say where they lie in the packed array, so nothing is copied.
 *
 *     forward   s = scale q kᵀ -> masked -> p = softmax(s) -> y = p v      lse = max + log sum
 *     backward  delta = rowsum(dy·y)       p = e^(masked(scale q kᵀ - lse))   dv = pᵀ dy
 *               ds = scale p (dy vᵀ - delta)      dk = dsᵀ q      dq = ds k
 *
 * Backward is the deterministic form: dq has no f32 array that blocks add to as they come, so cuDNN
 * keeps all of ds in its workspace instead. Refuses all but bf16 and f16.
 */
#include "engine/kernels/cuda/attention_graph.h"

enum {
    MOST_BYTES = 256 << 20, /* of a run's workspace, when it can be divided */
    SPARE_BYTES = 1 << 20,
    LARGEST_HEAD = 256
};

size_t crl_attention_graph_workspace_bytes(const crl_attention_shape *shape, bool backward) {
    const size_t t = ((size_t)shape->t + 127) / 128 * 128;
    const size_t pairs = (size_t)shape->b * (size_t)shape->heads * t * t;
    return SPARE_BYTES + (backward ? 2 * pairs : 0);
}

/* Own kernels need no dS: slower, but they fit. */
bool crl_attention_graph_takes(const crl_attention_shape *shape) {
    const size_t most_bytes = (size_t)8 << 30; /* of one sample */
    const bool narrow = shape->dtype == CRL_DTYPE_BF16 || shape->dtype == CRL_DTYPE_F16;
    crl_attention_shape one = *shape;
    one.b = 1;
    return narrow && shape->t > 1 && shape->d % 8 == 0 && shape->d <= LARGEST_HEAD &&
           crl_attention_graph_workspace_bytes(&one, true) <= most_bytes;
}

int64_t crl_attention_graph_samples(const crl_attention_shape *shape) {
    crl_attention_shape part = *shape;
    while (part.b > 1 && (shape->b % part.b != 0 ||
                          crl_attention_graph_workspace_bytes(&part, true) > MOST_BYTES))
        part.b--;
    return part.b;
}

/* What the tensors of a graph have in common. */
typedef struct builder {
    crl_cudnn_graph *graph;
    const crl_attention_shape *shape;
    cudnnDataType_t type; /* of arrays */
} builder;

/* (B,H,T,D) of an array with rows of `row` elements. */
static crl_cudnn_tensor rows(const builder *b, int64_t uid, int64_t row) {
    const crl_attention_shape *s = b->shape;
    return (crl_cudnn_tensor){
        uid, b->type, CRL_CUDNN_DEVICE, {s->b, s->heads, s->t, s->d}, {s->t * row, s->d, row, 1}};
}

static crl_cudnn_tensor transposed(crl_cudnn_tensor x) {
    const int64_t dim = x.dims[2], stride = x.strides[2];
    x.dims[2] = x.dims[3];
    x.strides[2] = x.strides[3];
    x.dims[3] = dim;
    x.strides[3] = stride;
    return x;
}

static crl_cudnn_value packed(const builder *b, int64_t uid) {
    const crl_cudnn_tensor x = rows(b, uid, 3 * b->shape->heads * b->shape->d);
    return crl_cudnn_add_tensor(b->graph, &x);
}

static crl_cudnn_value packed_transposed(const builder *b, int64_t uid) {
    const crl_cudnn_tensor x = transposed(rows(b, uid, 3 * b->shape->heads * b->shape->d));
    return crl_cudnn_add_tensor(b->graph, &x);
}

static crl_cudnn_value output(const builder *b, int64_t uid) {
    const crl_cudnn_tensor x = rows(b, uid, b->shape->heads * b->shape->d);
    return crl_cudnn_add_tensor(b->graph, &x);
}

/* (B,H,T,last), one after the other; uid 0: virtual */
static crl_cudnn_value plain(const builder *b, int64_t uid, cudnnDataType_t type, int64_t last) {
    const crl_attention_shape *s = b->shape;
    const crl_cudnn_tensor x = {uid,
                                type,
                                uid == 0 ? CRL_CUDNN_VIRTUAL : CRL_CUDNN_DEVICE,
                                {s->b, s->heads, s->t, last},
                                {s->heads * s->t * last, s->t * last, last, 1}};
    return crl_cudnn_add_tensor(b->graph, &x);
}

static crl_cudnn_value row_statistic(const builder *b, int64_t uid) {
    return plain(b, uid, CUDNN_DATA_FLOAT, 1);
}

static crl_cudnn_value scores(const builder *b, cudnnDataType_t type) {
    return plain(b, 0, type, b->shape->t);
}

/* Scores seen from the keys: (B,H,T,T) with the last two exchanged. */
static crl_cudnn_value scores_transposed(const builder *b, crl_cudnn_value from) {
    const int64_t t = b->shape->t, heads = b->shape->heads;
    const crl_cudnn_tensor x = {
        0, b->type, CRL_CUDNN_VIRTUAL, {b->shape->b, heads, t, t}, {heads * t * t, t * t, 1, t}};
    crl_cudnn_value y = crl_cudnn_add_tensor(b->graph, &x);
    crl_cudnn_reshape(b->graph, from, y);
    return y;
}

static crl_cudnn_value number(const builder *b, int64_t uid) {
    const crl_cudnn_tensor x = {uid, CUDNN_DATA_FLOAT, CRL_CUDNN_VALUE, {1, 1, 1, 1}, {1, 1, 1, 1}};
    return crl_cudnn_add_tensor(b->graph, &x);
}

/* y = mode(x, other) in f32; other may be NULL. */
static crl_cudnn_value map(const builder *b, cudnnPointwiseMode_t mode, crl_cudnn_value x,
                           crl_cudnn_value other, crl_cudnn_value y) {
    crl_cudnn_pointwise(b->graph, mode, CUDNN_DATA_FLOAT, 0, x, other, NULL, y);
    return y;
}

static crl_cudnn_value map_scores(const builder *b, cudnnPointwiseMode_t mode, crl_cudnn_value x,
                                  crl_cudnn_value other) {
    return map(b, mode, x, other, scores(b, CUDNN_DATA_FLOAT));
}

/* s where the key is not behind the query, else -infinity. */
static crl_cudnn_value masked(const builder *b, crl_cudnn_value s) {
    if (!b->shape->causal)
        return s;
    crl_cudnn_value query = scores(b, CUDNN_DATA_INT32), key = scores(b, CUDNN_DATA_INT32);
    crl_cudnn_value seen = scores(b, CUDNN_DATA_BOOLEAN), y = scores(b, CUDNN_DATA_FLOAT);
    crl_cudnn_pointwise(b->graph, CUDNN_POINTWISE_GEN_INDEX, CUDNN_DATA_INT32, 2, s, NULL, NULL,
                        query);
    crl_cudnn_pointwise(b->graph, CUDNN_POINTWISE_GEN_INDEX, CUDNN_DATA_INT32, 3, s, NULL, NULL,
                        key);
    crl_cudnn_pointwise(b->graph, CUDNN_POINTWISE_CMP_GE, CUDNN_DATA_BOOLEAN, 0, query, key, NULL,
                        seen);
    crl_cudnn_pointwise(b->graph, CUDNN_POINTWISE_BINARY_SELECT, CUDNN_DATA_FLOAT, 0, s,
                        number(b, CRL_ATTENTION_MASKED), seen, y);
    return y;
}

/* scale · q kᵀ */
static crl_cudnn_value scaled_scores(const builder *b, crl_cudnn_value q, crl_cudnn_value k,
                                     crl_cudnn_value scale) {
    crl_cudnn_value s = scores(b, CUDNN_DATA_FLOAT);
    crl_cudnn_matmul(b->graph, q, k, s);
    return map_scores(b, CUDNN_POINTWISE_MUL, s, scale);
}

/* Rounded to the type of v; writes lse. */
static crl_cudnn_value softmax(const builder *b, crl_cudnn_value s) {
    crl_cudnn_value largest = row_statistic(b, 0), sum = row_statistic(b, 0);
    crl_cudnn_value log_sum = row_statistic(b, 0), lse = row_statistic(b, CRL_ATTENTION_LSE);
    crl_cudnn_reduce(b->graph, CUDNN_REDUCE_TENSOR_MAX, s, largest);
    crl_cudnn_value below = map_scores(b, CUDNN_POINTWISE_SUB, s, largest);
    crl_cudnn_value e = map_scores(b, CUDNN_POINTWISE_EXP, below, NULL);
    crl_cudnn_reduce(b->graph, CUDNN_REDUCE_TENSOR_ADD, e, sum);
    map(b, CUDNN_POINTWISE_LOG, sum, NULL, log_sum);
    map(b, CUDNN_POINTWISE_ADD, largest, log_sum, lse);
    return map(b, CUDNN_POINTWISE_DIV, e, sum, scores(b, b->type));
}

static void add_forward(const builder *b) {
    crl_cudnn_value q = packed(b, CRL_ATTENTION_Q), k = packed_transposed(b, CRL_ATTENTION_K);
    crl_cudnn_value s = scaled_scores(b, q, k, number(b, CRL_ATTENTION_SCALE));
    crl_cudnn_value p = softmax(b, masked(b, s));
    crl_cudnn_matmul(b->graph, p, packed(b, CRL_ATTENTION_V), output(b, CRL_ATTENTION_Y));
}

/* rowsum(dy·y), through a multiplication that stands where dropout would be. */
static crl_cudnn_value delta_of(const builder *b, crl_cudnn_value dy) {
    crl_cudnn_value product = plain(b, 0, CUDNN_DATA_FLOAT, b->shape->d);
    crl_cudnn_value sum = row_statistic(b, 0);
    map(b, CUDNN_POINTWISE_MUL, dy, output(b, CRL_ATTENTION_Y), product);
    crl_cudnn_reduce(b->graph, CUDNN_REDUCE_TENSOR_ADD, product, sum);
    return map(b, CUDNN_POINTWISE_MUL, sum, number(b, CRL_ATTENTION_ONE),
               row_statistic(b, CRL_ATTENTION_DELTA));
}

static void add_backward(const builder *b) {
    crl_cudnn_value dy = output(b, CRL_ATTENTION_DY), delta = delta_of(b, dy);
    crl_cudnn_value q = packed(b, CRL_ATTENTION_Q), k = packed_transposed(b, CRL_ATTENTION_K);
    crl_cudnn_value scale = number(b, CRL_ATTENTION_SCALE), s = scaled_scores(b, q, k, scale);
    s = map_scores(b, CUDNN_POINTWISE_SUB, s, row_statistic(b, CRL_ATTENTION_LSE));
    crl_cudnn_value p = map_scores(b, CUDNN_POINTWISE_EXP, masked(b, s), NULL);
    crl_cudnn_matmul(b->graph, scores_transposed(b, p), dy, packed(b, CRL_ATTENTION_DV));

    crl_cudnn_value dp = scores(b, CUDNN_DATA_FLOAT);
    crl_cudnn_matmul(b->graph, dy, packed_transposed(b, CRL_ATTENTION_V), dp);
    crl_cudnn_value ds = map_scores(b, CUDNN_POINTWISE_SUB, dp, delta);
    ds = map_scores(b, CUDNN_POINTWISE_MUL, ds, p);
    ds = map_scores(b, CUDNN_POINTWISE_MUL, ds, scale);
    crl_cudnn_matmul(b->graph, scores_transposed(b, ds), q, packed(b, CRL_ATTENTION_DK));

    crl_cudnn_tensor rows_of_k = rows(b, 0, 3 * b->shape->heads * b->shape->d);
    rows_of_k.place = CRL_CUDNN_VIRTUAL;
    crl_cudnn_value k_again = crl_cudnn_add_tensor(b->graph, &rows_of_k);
    crl_cudnn_reshape(b->graph, k, k_again);
    crl_cudnn_matmul(b->graph, ds, k_again, packed(b, CRL_ATTENTION_DQ));
}

static crl_status plan_for(crl_cudnn_plan **out, const crl_attention_shape *shape,
                           const crl_cudnn_target *target, bool backward) {
    builder b = {NULL, shape,
                 shape->dtype == CRL_DTYPE_BF16 ? CUDNN_DATA_BFLOAT16 : CUDNN_DATA_HALF};
    CRL_TRY(crl_cudnn_graph_create(&b.graph, target->cudnn));
    if (backward)
        add_backward(&b);
    else
        add_forward(&b);
    return crl_cudnn_plan_create(out, b.graph, target,
                                 crl_attention_graph_workspace_bytes(shape, backward));
}

crl_status crl_attention_graph_forward(crl_cudnn_plan **out, const crl_attention_shape *shape,
                                       const crl_cudnn_target *target) {
    return plan_for(out, shape, target, false);
}

crl_status crl_attention_graph_backward(crl_cudnn_plan **out, const crl_attention_shape *shape,
                                        const crl_cudnn_target *target) {
    return plan_for(out, shape, target, true);
}
