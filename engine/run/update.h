/* SPDX-License-Identifier: Apache-2.0 */
/* The optimizer's update of the parameters of one rank. Refuses to know why it may be taken back:
 * see step.h. */
#pragma once

#include "engine/run/rank.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct crl_update {
    int64_t step; /* updates made until then, with this one */
    double learning_rate;
    double gradient_scale; /* clip factor / global weight */
    bool keep;             /* crl_params_keep everything first */
} crl_update;

/* Weights and state of all parameters of the rank from their summed gradients. Local, async. What
 * the optimizer's update returns. */
CRL_NODISCARD crl_status crl_update_run(const crl_rank *rank, const crl_update *update);

#ifdef __cplusplus
}
#endif
