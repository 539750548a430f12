/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the normalising layers share: scale and shift over the last dimension, one f32 number per
 * row for each statistic, and the scratch of their gradients. Knows no layer.
 */
#pragma once

#include "engine/ir/layer.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct crl_norm_config {
    const char *type; /* of the layer, for messages */
    bool bias;
    int statistics;           /* saves (rows of input 0) each */
    double flops[CRL_PHASES]; /* per element of input 0, counting the passes of the kernels */
} crl_norm_config;

/* Appends weight (C), bias (C) and the saves, which both gradients need, and counts the cost.
 * Inputs and outputs are there already. INVALID. */
CRL_NODISCARD crl_status crl_norm_infer(crl_layer_spec *spec, const crl_norm_config *config);
/* crl_layer.prepare: no state, and the scratch of the weight gradient. */
CRL_NODISCARD crl_status crl_norm_prepare(const crl_layer_spec *spec, const crl_layer_env *env,
                                          void **state, size_t scratch_bytes[CRL_PHASES]);

#ifdef __cplusplus
}
#endif
