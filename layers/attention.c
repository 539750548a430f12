/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Causal multi-head self-attention over a packed projection: (B,T,3C) to (B,T,C), q, k and v side
 * by side [vaswani17]. Holds no projection of its own (linear layers before and after it do) and
 * saves one number per query and head instead of the (T,T) scores [dao22].
 */
#include "engine/base/alloc.h"
#include "layers/infer_internal.h"

typedef struct attention_options {
    int64_t heads;
    bool causal;
} attention_options;

typedef struct attention_state {
    const crl_attention_ops *ops;
    crl_attention *attention;
} attention_state;

static const crl_option options[] = {{.name = "heads",
                                      .help = "number of heads; divides the channels",
                                      .type = &crl_option_int,
                                      .offset = offsetof(attention_options, heads),
                                      .min = 1,
                                      .max = INT32_MAX},
                                     {.name = "causal",
                                      .value = "true",
                                      .help = "a token sees itself and earlier ones only",
                                      .type = &crl_option_bool,
                                      .offset = offsetof(attention_options, causal)},
                                     {0}};

enum { PACKED = 3, SOFTMAX_FLOPS = 15 /* per score and pass, the exponential as about ten */ };

/* A score is a query-key pair of one head; each product over them costs 2 C per pair. */
static void count_cost(crl_layer_spec *spec) {
    const attention_options *option = spec->options;
    const crl_shape *y = &spec->output[0].shape;
    const double b = (double)y->size[0], t = (double)y->size[1], c = (double)y->size[2];
    const double pairs = b * (option->causal ? t * (t + 1) / 2 : t * t);
    const double product = 2 * pairs * c;
    const double softmax = SOFTMAX_FLOPS * pairs * (double)option->heads;
    spec->cost.flops[CRL_PHASE_FORWARD] = 2 * product + softmax;
    spec->cost.flops[CRL_PHASE_INPUT] = 5 * product + softmax; /* scores again, dp, dv, dq, dk */
    crl_infer_bytes(spec, false);
}

static crl_status infer(crl_layer_spec *spec) {
    const attention_options *option = spec->options;
    CRL_TRY(crl_infer_begin(spec, "attention", 1, 1));
    CRL_TRY(crl_infer_input(spec, "attention", 0, spec->compute, 3));
    crl_shape shape = spec->input[0].shape;
    if (shape.dimensions != 3) {
        return CRL_FAIL(INVALID, "attention %s: input has %d dimensions, expected 3", spec->node,
                        shape.dimensions);
    }
    const int64_t packed = shape.size[2];
    if (packed % PACKED != 0 || packed / PACKED % option->heads != 0) {
        return CRL_FAIL(INVALID,
                        "attention %s: input last dimension is %lld, expected a multiple of 3 x "
                        "%lld heads",
                        spec->node, (long long)packed, (long long)option->heads);
    }
    shape.size[2] = packed / PACKED;
    CRL_TRY(crl_infer_output(spec, "attention", spec->compute, shape));
    CRL_TRY(crl_infer_save(spec, "attention", CRL_DTYPE_F32,
                           CRL_SHAPE(shape.size[0], option->heads, shape.size[1])));
    spec->input_needs_inputs = 1u << 0;
    spec->input_needs_outputs = 1u << 0;
    spec->input_needs_saves = 1u << 0;
    spec->gradient_inputs = 1u << 0;
    count_cost(spec);
    return CRL_STATUS_OK;
}

static void release(void *memory) {
    attention_state *state = memory;
    if (state == NULL) {
        return;
    }
    state->ops->destroy(state->attention);
    crl_free(state);
}

static crl_status prepare(const crl_layer_spec *spec, const crl_layer_env *env, void **out,
                          size_t scratch_bytes[CRL_PHASES]) {
    const attention_options *option = spec->options;
    const crl_shape *y = &spec->output[0].shape;
    const crl_attention_ops *ops = env->kernels->attention;
    crl_status status = CRL_STATUS_OK;
    attention_state *state = NULL;

    CRL_TRY_OUT(crl_alloc(&state, 1, sizeof *state));
    state->ops = ops;
    CRL_TRY_OUT(ops->create(&state->attention,
                            &(crl_attention_config){.b = y->size[0],
                                                    .t = y->size[1],
                                                    .heads = option->heads,
                                                    .head_channels = y->size[2] / option->heads,
                                                    .causal = option->causal},
                            env->stream));
    scratch_bytes[CRL_PHASE_FORWARD] = ops->forward_scratch_bytes(state->attention);
    scratch_bytes[CRL_PHASE_INPUT] =
        env->training ? ops->backward_scratch_bytes(state->attention) : 0;
    scratch_bytes[CRL_PHASE_WEIGHT] = 0;
    *out = state;
    state = NULL;
out:
    release(state);
    return status;
}

static crl_status forward(const crl_layer_call *call) {
    const attention_state *state = call->state;
    return state->ops->forward(state->attention, call->stream, call->x[0], call->y[0],
                               call->save[0], call->scratch);
}

static crl_status backward_input(const crl_layer_call *call) {
    const attention_state *state = call->state;
    if (call->dx[0] == NULL) {
        return CRL_STATUS_OK;
    }
    return state->ops->backward(state->attention, call->stream, call->x[0], call->y[0],
                                call->save[0], call->dy[0], call->dx[0], call->dx_accumulate[0],
                                call->scratch);
}

const crl_layer crl_layer_attention = {
    .name = "attention",
    .help = "multi-head self-attention over packed q, k, v",
    .options = options,
    .options_bytes = sizeof(attention_options),
    .infer = infer,
    .prepare = prepare,
    .release = release,
    .forward = forward,
    .backward_input = backward_input,
};
