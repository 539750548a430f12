/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Token embedding, with a learned position embedding added when asked for: y[b,t] =
 * token[x[b,t]] + position[t]. Refuses sequences longer than its context.
 */
#include "layers/infer_internal.h"

typedef struct embedding_options {
    int64_t vocabulary, channels, context;
    bool positions;
    double init_scale;
} embedding_options;

static const crl_option options[] = {{.name = "vocabulary",
                                      .help = "number of tokens",
                                      .type = &crl_option_int,
                                      .offset = offsetof(embedding_options, vocabulary),
                                      .min = 1,
                                      .max = INT32_MAX},
                                     {.name = "channels",
                                      .help = "size of one embedding",
                                      .type = &crl_option_int,
                                      .offset = offsetof(embedding_options, channels),
                                      .min = 1,
                                      .max = INT32_MAX},
                                     {.name = "positions",
                                      .value = "false",
                                      .help = "adds a learned embedding of the position",
                                      .type = &crl_option_bool,
                                      .offset = offsetof(embedding_options, positions)},
                                     {.name = "context",
                                      .value = "0",
                                      .help = "number of learned positions; 0: the sequence length",
                                      .type = &crl_option_int,
                                      .offset = offsetof(embedding_options, context),
                                      .max = INT32_MAX},
                                     {.name = "init_scale",
                                      .value = "0.02",
                                      .help = "deviation of the initial embeddings",
                                      .type = &crl_option_double,
                                      .offset = offsetof(embedding_options, init_scale),
                                      .min = 0,
                                      .max = 1e6},
                                     {0}};

/* Samples are (T); without positions any further dimensions are just more tokens. */
static int64_t tokens_per_sample(const crl_layer_spec *spec) {
    return crl_shape_product(&spec->input[0].shape, 1, spec->input[0].shape.dimensions);
}

/* Tables are not read as a whole: a row per token. */
static void count_cost(crl_layer_spec *spec) {
    const double y = crl_infer_elements(&spec->output[0]), x = crl_infer_elements(&spec->input[0]);
    const double addends = spec->params;
    const double row_bytes = (double)crl_dtype_bytes(spec->compute) * y;
    const double gradient_bytes = 2 * sizeof(float) * y; /* read and written */
    spec->cost.flops[CRL_PHASE_FORWARD] = y * (addends - 1);
    spec->cost.flops[CRL_PHASE_WEIGHT] = y * addends;
    spec->cost.bytes[CRL_PHASE_FORWARD] = sizeof(int32_t) * x + row_bytes * (addends + 1);
    spec->cost.bytes[CRL_PHASE_WEIGHT] = sizeof(int32_t) * x + row_bytes + gradient_bytes * addends;
}

static crl_status infer(crl_layer_spec *spec) {
    const embedding_options *option = spec->options;
    CRL_TRY(crl_infer_begin(spec, "embedding", 1, 1));
    CRL_TRY(crl_infer_input(spec, "embedding", 0, CRL_DTYPE_I32, option->positions ? 2 : 1));
    crl_shape shape = spec->input[0].shape;
    const int most = option->positions ? 2 : CRL_MAX_DIMENSIONS - 1;
    if (shape.dimensions > most) {
        return CRL_FAIL(INVALID, "embedding %s: input has %d dimensions, expected at most %d",
                        spec->node, shape.dimensions, most);
    }
    shape.size[shape.dimensions++] = option->channels;
    CRL_TRY(crl_infer_output(spec, "embedding", spec->compute, shape));
    crl_param_spec param = {.name = "token",
                            .shape = CRL_SHAPE(option->vocabulary, option->channels),
                            .decay = true,
                            .init = CRL_INIT_NORMAL,
                            .init_scale = option->init_scale};
    CRL_TRY(crl_infer_param(spec, "embedding", &param));
    if (option->positions) {
        const int64_t t = shape.size[1];
        const int64_t context = option->context > 0 ? option->context : t;
        if (t > context) {
            return CRL_FAIL(INVALID,
                            "embedding %s: input has %lld tokens, expected at most context %lld",
                            spec->node, (long long)t, (long long)context);
        }
        param.name = "position";
        param.shape = CRL_SHAPE(context, option->channels);
        CRL_TRY(crl_infer_param(spec, "embedding", &param));
    }
    spec->weight_needs_inputs = 1u << 0;
    count_cost(spec);
    return CRL_STATUS_OK;
}

static crl_status forward(const crl_layer_call *call) {
    const crl_layer_spec *spec = call->spec;
    const crl_shape *token = &spec->param[0].shape;
    return call->kernels->embedding->forward(
        call->stream, call->x[0], call->w[0], spec->params == 2 ? call->w[1] : NULL, call->y[0],
        spec->batch, tokens_per_sample(spec), token->size[0], token->size[1]);
}

static crl_status backward_weight(const crl_layer_call *call) {
    const crl_layer_spec *spec = call->spec;
    const crl_shape *token = &spec->param[0].shape;
    const bool positions = spec->params == 2;
    return call->kernels->embedding->backward(
        call->stream, call->x[0], call->dy[0], call->dw[0], positions ? call->dw[1] : NULL,
        spec->batch, tokens_per_sample(spec), token->size[0], token->size[1],
        positions ? spec->param[1].shape.size[0] : 0, call->dw_accumulate);
}

/* Every shard has some of the tokens; positions are on all. */
static crl_status shard(const crl_layer_spec *spec, int shards,
                        int dimension[CRL_LAYER_MAX_PARAMS]) {
    const int64_t vocabulary = spec->param[0].shape.size[0];
    if (vocabulary % shards != 0) {
        return CRL_FAIL(INVALID,
                        "embedding %s: vocabulary is %lld, expected a multiple of %d shards",
                        spec->node, (long long)vocabulary, shards);
    }
    dimension[0] = 0;
    if (spec->params == 2) {
        dimension[1] = -1;
    }
    return CRL_STATUS_OK;
}

const crl_layer crl_layer_embedding = {
    .name = "embedding",
    .help = "token embedding, with learned positions if asked for",
    .options = options,
    .options_bytes = sizeof(embedding_options),
    .infer = infer,
    .forward = forward,
    .backward_weight = backward_weight,
    .shard = shard,
};
