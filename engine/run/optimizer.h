/* SPDX-License-Identifier: Apache-2.0 */
/* Optimizer contract: an element-wise update of flat parameter ranges, and the learning-rate curve.
 */
#pragma once

#include "engine/base/option.h"
#include "engine/kernels/kernels.h"

#ifdef __cplusplus
extern "C" {
#endif

enum { CRL_OPTIMIZER_MAX_STATES = 2 };

/* One update call. */
typedef struct crl_optimizer_call {
    const void *options; /* the optimizer's own struct */
    const crl_kernels *kernels;
    crl_stream *stream;
    int64_t step;                           /* from 1 */
    double learning_rate;                   /* of this step */
    double gradient_scale;                  /* clip factor / global weight */
    bool decay;                             /* weight decay applies to this range */
    float *w;                               /* (n) */
    const float *dw;                        /* (n) summed gradient */
    float *state[CRL_OPTIMIZER_MAX_STATES]; /* (n) each */
    void *copy; /* (n) gets the new weights in the kernels' type; NULL: not wanted */
    int64_t n;
} crl_optimizer_call;

typedef struct crl_optimizer {
    const char *name;
    const char *help;
    const crl_option *options; /* its rows of the config's `optimizer` section */
    size_t options_bytes;
    /* How many state arrays these options need, and their names ("m", "v"): checkpoint keys are
     * "<parameter>.<state>". */
    int (*states)(const void *options, const char *name[CRL_OPTIMIZER_MAX_STATES]);
    /* Do the options agree with each other? Called when they are loaded. INVALID; *out_option is
     * then the one to blame, and the message does not name it. NULL: they always do. */
    crl_status (*check)(const void *options, const char **out_option);
    crl_status (*update)(const crl_optimizer_call *call);
} crl_optimizer;

typedef enum crl_lr_kind { CRL_LR_CONSTANT = 0, CRL_LR_LINEAR, CRL_LR_COSINE } crl_lr_kind;

/* Warm-up from 0 to `peak` over `warmup_steps`, then by kind down to `minimum` at `total_steps`. */
typedef struct crl_lr_config {
    crl_lr_kind kind;
    double peak, minimum;
    int64_t warmup_steps, total_steps;
} crl_lr_config;

/* Learning rate of step 1, 2, ... */
double crl_lr_at(const crl_lr_config *config, int64_t step);

#ifdef __cplusplus
}
#endif
