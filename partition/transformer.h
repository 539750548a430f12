/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Transformers as numbers: what a decoder-only model of equal layers holds and takes, split over a
 * tensor group as Megatron does it [narayanan21] [korthikanti22]. Pure.
 *
 * T sequence, C hidden, H heads, V vocabulary as in docs/notation.md; B of a micro-batch.
 */
#pragma once

#include "engine/ir/machine.h"
#include "engine/ir/profile.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct crl_transformer {
    const char *name;
    int64_t layers, hidden, heads, sequence, vocabulary;
    int64_t feed_forward;   /* inner width; 0: 4 · hidden */
    int64_t micro_batch;    /* B */
    int tensor;             /* devices of a tensor group; 0: 1 */
    bool sequence_parallel; /* norms and dropouts split over the group as well */
    bool fused_attention;   /* scores stay on chip and are made again in backward [dao22] */
    bool gathered_messages; /* each device of a group sends its share, the receivers gather */
    double element_bytes;   /* of activations and weights; 0: 2 */
    double gradient_bytes;  /* of a parameter's gradient, as it is kept; 0: element_bytes */
    double state_bytes;     /* of a parameter's optimizer state, masters included; 0: 12 */
    int state_shards;       /* replicas that divide the optimizer's state among them; 0: 1 */
} crl_transformer;

/* INVALID "transformer x: ...": sizes below 1, heads or vocabulary the group does not divide. */
CRL_NODISCARD crl_status crl_transformer_check(const crl_transformer *model);

/* Parameters of one layer: 12 C² + 13 C at the usual inner width; over the whole group. */
double crl_transformer_layer_parameters(const crl_transformer *model);
/* Of the whole model: layers, (V + T) C of the embeddings (the head's are the same), last norm. */
double crl_transformer_parameters(const crl_transformer *model);
/* Flops of products for `samples`, forward and backward and what mode (CRL_RECOMPUTE_...) repeats.
 */
double crl_transformer_flops(const crl_transformer *model, double samples, int mode);
/* Bytes one layer keeps of a micro-batch on a device, by mode [korthikanti22] table 2. */
double crl_transformer_layer_kept_bytes(const crl_transformer *model, int mode);
/* Bytes its weight gradients still need when its input gradients are made: inputs of the products
 * and gradients of their results, 32 sbh undivided [qi23] §2. */
double crl_transformer_layer_held_bytes(const crl_transformer *model);

/* Seconds of one layer and a micro-batch on a device. */
typedef struct crl_transformer_times {
    double forward_s, input_s, weight_s;
    double recompute_s[CRL_RECOMPUTES];
} crl_transformer_times;

/* The times of a layer, and of the head: last norm, logits and cross entropy. */
crl_transformer_times crl_transformer_layer_times(const crl_transformer *model,
                                                  const crl_machine *machine);
/* The same for the head. */
crl_transformer_times crl_transformer_head_times(const crl_transformer *model,
                                                 const crl_machine *machine);

/* A profile of embedding, layers "h0", "h1", ..., and head. INVALID, NOMEM. The caller destroys it.
 */
CRL_NODISCARD crl_status crl_transformer_profile(crl_profile **out, const crl_transformer *model,
                                                 const crl_machine *machine);

#ifdef __cplusplus
}
#endif
