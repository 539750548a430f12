/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The GPT-2 family [radford19]: pre-norm blocks of causal attention and a 4C-wide MLP, learned
 * positions, an output head that shares the token embedding.
 *
 *     x = wte(tokens)
 *     x = x + drop(proj(attn(qkv(ln1(x)))))      for each
 *     x = x + drop(proj(gelu(fc(ln2(x)))))       block
 *     loss(head(lnf(x)), targets)
 *
 * Dropout acts on the embeddings and the two residual branches; refuses dropout of attention
 * weights, which would need the (T,T) matrix.
 */
#include <math.h>

#include "engine/carole.h"

typedef struct gpt_options {
    int64_t layers, heads, channels, context, vocabulary;
    double dropout;
    bool tied, bias;
} gpt_options;

static const double init_deviation = 0.02;

/* Limits of the sizes keep every product of a few of them inside int64_t. */
static const crl_option options[] = {{.name = "layers",
                                      .value = "12",
                                      .help = "number of blocks",
                                      .type = &crl_option_int,
                                      .offset = offsetof(gpt_options, layers),
                                      .min = 1,
                                      .max = 100000},
                                     {.name = "heads",
                                      .value = "12",
                                      .help = "attention heads; divides the channels",
                                      .type = &crl_option_int,
                                      .offset = offsetof(gpt_options, heads),
                                      .min = 1,
                                      .max = 65536},
                                     {.name = "channels",
                                      .value = "768",
                                      .help = "width of the residual stream",
                                      .type = &crl_option_int,
                                      .offset = offsetof(gpt_options, channels),
                                      .min = 1,
                                      .max = 1 << 24},
                                     {.name = "context",
                                      .value = "1024",
                                      .help = "tokens of one sample",
                                      .type = &crl_option_int,
                                      .offset = offsetof(gpt_options, context),
                                      .min = 1,
                                      .max = 1 << 24},
                                     {.name = "vocabulary",
                                      .value = "50257",
                                      .help = "number of different tokens",
                                      .type = &crl_option_int,
                                      .offset = offsetof(gpt_options, vocabulary),
                                      .min = 1,
                                      .max = 1 << 24},
                                     {.name = "dropout",
                                      .value = "0",
                                      .help = "probability of an element to be dropped",
                                      .type = &crl_option_double,
                                      .offset = offsetof(gpt_options, dropout),
                                      .min = 0,
                                      .max = 1},
                                     {.name = "tied",
                                      .value = "true",
                                      .help = "the output head shares the token embedding",
                                      .type = &crl_option_bool,
                                      .offset = offsetof(gpt_options, tied)},
                                     {.name = "bias",
                                      .value = "true",
                                      .help = "biases in the linear layers of the blocks",
                                      .type = &crl_option_bool,
                                      .offset = offsetof(gpt_options, bias)},
                                     {0}};

/* One block under construction: names are "h<block>.<part>". */
typedef struct block {
    crl_model *model;
    const gpt_options *option;
    int index;
} block;

static const char *part(const block *h, const char *name) {
    return crl_model_text(h->model, "h%d.%s", h->index, name);
}

static crl_status add_linear(const block *h, const char *name, int64_t out, double deviation) {
    return crl_model_add(
        h->model, &(crl_layer_desc){.type = "linear",
                                    .name = part(h, name),
                                    .options = {{"out", (double)out, NULL},
                                                {"bias", 0, h->option->bias ? "true" : "false"},
                                                {"init", 0, "normal"},
                                                {"init_scale", deviation, NULL}}});
}

static crl_status add_dropout(crl_model *model, const gpt_options *option, const char *name) {
    if (option->dropout <= 0) {
        return CRL_STATUS_OK;
    }
    return crl_model_add(model, &(crl_layer_desc){.type = "dropout",
                                                  .name = name,
                                                  .options = {{"p", option->dropout, NULL}}});
}

/* The end of a branch: projection, dropout, and the residual connection from `from`. */
typedef struct branch_end {
    const char *proj, *drop, *sum; /* parts of the block */
} branch_end;

static crl_status add_branch_end(const block *h, const char *from, const branch_end *end) {
    const gpt_options *option = h->option;
    /* 2 branches per block add to the residual stream: keep its variance near that of one. */
    const double deviation = init_deviation / sqrt(2.0 * (double)option->layers);
    const char *last = part(h, option->dropout > 0 ? end->drop : end->proj);
    CRL_TRY(add_linear(h, end->proj, option->channels, deviation));
    CRL_TRY(add_dropout(h->model, option, last));
    return crl_model_add(
        h->model,
        &(crl_layer_desc){.type = "add", .name = part(h, end->sum), .input = {from, last}});
}

/* Adds a block that reads node `from`; *sum is the name of its result. */
static crl_status add_block(const block *h, const char *from, const char **sum) {
    const gpt_options *option = h->option;
    const char *middle = part(h, "res1");
    CRL_TRY(crl_model_add(
        h->model, &(crl_layer_desc){.type = "layernorm", .name = part(h, "ln1"), .input = {from}}));
    CRL_TRY(add_linear(h, "attn.qkv", 3 * option->channels, init_deviation));
    CRL_TRY(crl_model_add(h->model,
                          &(crl_layer_desc){.type = "attention",
                                            .name = part(h, "attn"),
                                            .options = {{"heads", (double)option->heads, NULL}}}));
    CRL_TRY(add_branch_end(h, from, &(branch_end){"attn.proj", "attn.drop", "res1"}));
    CRL_TRY(crl_model_add(
        h->model,
        &(crl_layer_desc){.type = "layernorm", .name = part(h, "ln2"), .input = {middle}}));
    CRL_TRY(add_linear(h, "mlp.fc", 4 * option->channels, init_deviation));
    CRL_TRY(crl_model_add(h->model, &(crl_layer_desc){.type = "gelu",
                                                      .name = part(h, "mlp.gelu"),
                                                      .options = {{"approximation", 0, "tanh"}}}));
    CRL_TRY(add_branch_end(h, middle, &(branch_end){"mlp.proj", "mlp.drop", "res2"}));
    *sum = part(h, "res2");
    return CRL_STATUS_OK;
}

static crl_status add_embedding(crl_model *model, const gpt_options *option) {
    CRL_TRY(
        crl_model_add(model, &(crl_layer_desc){.type = "input",
                                               .name = "tokens",
                                               .options = {{"dims", (double)option->context, NULL},
                                                           {"dtype", 0, "i32"}}}));
    CRL_TRY(crl_model_add(
        model, &(crl_layer_desc){.type = "embedding",
                                 .name = "wte",
                                 .options = {{"vocabulary", (double)option->vocabulary, NULL},
                                             {"channels", (double)option->channels, NULL},
                                             {"positions", 0, "true"},
                                             {"context", (double)option->context, NULL},
                                             {"init_scale", init_deviation, NULL}}}));
    return add_dropout(model, option, "drop");
}

static crl_status add_head(crl_model *model, const gpt_options *option) {
    CRL_TRY(crl_model_add(model, &(crl_layer_desc){.type = "layernorm", .name = "lnf"}));
    crl_layer_desc head = {.type = "linear",
                           .name = "head",
                           .options = {{"out", (double)option->vocabulary, NULL},
                                       {"bias", 0, "false"},
                                       {"init", 0, "normal"},
                                       {"init_scale", init_deviation, NULL}}};
    if (option->tied) {
        head.tie[0] = (crl_layer_tie){.param = "weight", .with = "wte.token"};
    }
    CRL_TRY(crl_model_add(model, &head));
    CRL_TRY(
        crl_model_add(model, &(crl_layer_desc){.type = "input",
                                               .name = "targets",
                                               .options = {{"dims", (double)option->context, NULL},
                                                           {"dtype", 0, "i32"}}}));
    return crl_model_add(model, &(crl_layer_desc){.type = "softmax_cross_entropy",
                                                  .name = "loss",
                                                  .input = {"head", "targets"}});
}

static crl_status build(crl_model *model, const void *given) {
    const gpt_options *option = given;
    CRL_TRY(add_embedding(model, option));
    const char *x = option->dropout > 0 ? "drop" : "wte";
    for (int i = 0; i < (int)option->layers; ++i) {
        CRL_TRY(add_block(&(block){.model = model, .option = option, .index = i}, x, &x));
    }
    return add_head(model, option);
}

const crl_model_def crl_model_gpt = {
    .name = "gpt",
    .help = "decoder-only transformer of the GPT-2 family",
    .options = options,
    .options_bytes = sizeof(gpt_options),
    .build = build,
};
