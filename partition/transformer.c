/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a transformer holds and multiplies. Bytes follow [korthikanti22] §4 letter by letter: they
 * are written there for elements of 2 bytes and masks of 1, and so are they here; elements of
 * another size count in proportion.
 *
 * of a layer, s b h = T B C, a = heads, t = tensor group:
 *   none        tensor  sbh (10 + 24/t + 5as/(ht))    with sequence   sbh/t (34 + 5as/h)
 *   selective           sbh (10 + 24/t)                               sbh/t 34
 *   full                2 sbh                                         2 sbh
 */
#include "partition/transformer_internal.h"

static double or_default(double value, double otherwise) {
    return value > 0 ? value : otherwise;
}

transformer_sizes crl_transformer_sizes(const crl_transformer *model) {
    transformer_sizes z = {.layers = (double)model->layers,
                           .hidden = (double)model->hidden,
                           .heads = (double)model->heads,
                           .sequence = (double)model->sequence,
                           .vocabulary = (double)model->vocabulary,
                           .batch = (double)model->micro_batch};
    z.feed_forward = or_default((double)model->feed_forward, 4 * z.hidden);
    z.tensor = or_default(model->tensor, 1);
    z.norm = model->sequence_parallel ? z.tensor : 1;
    z.element_bytes = or_default(model->element_bytes, 2);
    z.gradient_bytes = or_default(model->gradient_bytes, z.element_bytes);
    z.state_bytes = or_default(model->state_bytes, 12);
    z.shards = or_default(model->state_shards, 1);
    z.rows = z.batch * z.sequence;
    z.activity = z.rows * z.hidden;
    z.scores = z.batch * z.heads / z.tensor * z.sequence * z.sequence;
    return z;
}

crl_status crl_transformer_check(const crl_transformer *model) {
    const char *name = model->name ? model->name : "";
    const int64_t most = (int64_t)1 << 40;
    const int64_t size[] = {model->layers,   model->hidden,     model->heads,
                            model->sequence, model->vocabulary, model->micro_batch};
    const char *const what[] = {"layers",   "hidden",     "heads",
                                "sequence", "vocabulary", "micro-batch"};
    for (int i = 0; i < 6; i++) {
        if (size[i] < 1 || size[i] > most) {
            return CRL_FAIL(INVALID, "transformer %s: %s is %lld, expected 1 to %lld", name,
                            what[i], (long long)size[i], (long long)most);
        }
    }
    const int64_t tensor = model->tensor > 0 ? model->tensor : 1;
    if (model->heads % tensor != 0) {
        return CRL_FAIL(INVALID, "transformer %s: %lld heads over %lld devices do not divide", name,
                        (long long)model->heads, (long long)tensor);
    }
    if (model->feed_forward < 0 || model->tensor < 0 || model->state_shards < 0 ||
        !(model->element_bytes >= 0) || !(model->gradient_bytes >= 0) ||
        !(model->state_bytes >= 0)) {
        return CRL_FAIL(INVALID, "transformer %s: a size is below 0", name);
    }
    return CRL_STATUS_OK;
}

double crl_transformer_layer_parameters(const crl_transformer *model) {
    const transformer_sizes z = crl_transformer_sizes(model);
    const double attention = 4 * z.hidden * z.hidden + 4 * z.hidden;
    const double mlp = 2 * z.hidden * z.feed_forward + z.feed_forward + z.hidden;
    return attention + mlp + 4 * z.hidden; /* two norms */
}

double crl_transformer_parameters(const crl_transformer *model) {
    const transformer_sizes z = crl_transformer_sizes(model);
    return z.layers * crl_transformer_layer_parameters(model) +
           (z.vocabulary + z.sequence) * z.hidden + 2 * z.hidden;
}

double crl_transformer_flops(const crl_transformer *model, double samples, int mode) {
    const transformer_sizes z = crl_transformer_sizes(model);
    const double rows = samples * z.sequence;
    const double dense = rows * (8 * z.hidden * z.hidden + 4 * z.hidden * z.feed_forward);
    const double attention = rows * 4 * z.sequence * z.hidden;
    const double head = rows * 2 * z.hidden * z.vocabulary;
    const double again = mode == CRL_RECOMPUTE_FULL        ? dense + attention
                         : mode == CRL_RECOMPUTE_SELECTIVE ? attention
                                                           : 0;
    return z.layers * (3 * (dense + attention) + again) + 3 * head;
}

/* Bytes that the tensor group divides: 8 for attention, 16 for an MLP of 4 C, in x; as inputs of
 * the products they are kept from forward, as many are held for the weights. */
static double split_of(const transformer_sizes *z) {
    return 8 + 4 * z->feed_forward / z->hidden;
}

double crl_transformer_layer_held_bytes(const crl_transformer *model) {
    const transformer_sizes z = crl_transformer_sizes(model);
    return z.activity * (8 / z.norm + split_of(&z) / z.tensor) * z.element_bytes / 2;
}

double crl_transformer_layer_kept_bytes(const crl_transformer *model, int mode) {
    const transformer_sizes z = crl_transformer_sizes(model);
    const double scale = z.element_bytes / 2;
    if (mode == CRL_RECOMPUTE_FULL) {
        return 2 * z.activity * scale;
    }
    const double linear = z.activity * (10 / z.norm + split_of(&z) / z.tensor);
    const bool keeps_scores = mode == CRL_RECOMPUTE_NONE && !model->fused_attention;
    return (linear + (keeps_scores ? 5 * z.scores : 0)) * scale;
}
