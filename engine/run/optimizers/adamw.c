/* SPDX-License-Identifier: Apache-2.0 */
/*
 * AdamW: Adam's moments with decoupled weight decay [loshchilov19] algorithm 2. Holds the options;
 * the arithmetic is the device's fused kernel. Refuses a beta of 1, whose bias correction would
 * divide by zero.
 */
#include "engine/run/optimizer.h"

typedef struct adamw_options {
    double beta1, beta2, epsilon, weight_decay;
} adamw_options;

static const crl_option table[] = {
    {"beta1", "0.9", "decay of the mean of the gradient, below 1", &crl_option_double,
     offsetof(adamw_options, beta1), 0.0, 0.9999999, NULL},
    {"beta2", "0.999", "decay of the mean of the squared gradient, below 1", &crl_option_double,
     offsetof(adamw_options, beta2), 0.0, 0.9999999, NULL},
    {"epsilon", "1e-8", "added to the root of the squared mean", &crl_option_double,
     offsetof(adamw_options, epsilon), 0.0, 1.0, NULL},
    {"weight_decay", "0.01", "decay of weight matrices per step, times the learning rate",
     &crl_option_double, offsetof(adamw_options, weight_decay), 0.0, 1.0, NULL},
    {0},
};

static int states(const void *options, const char *name[CRL_OPTIMIZER_MAX_STATES]) {
    (void)options;
    name[0] = "m";
    name[1] = "v";
    return 2;
}

static crl_status update(const crl_optimizer_call *call) {
    const adamw_options *options = call->options;
    const crl_adamw_config config = {
        .learning_rate = call->learning_rate,
        .beta1 = options->beta1,
        .beta2 = options->beta2,
        .epsilon = options->epsilon,
        .weight_decay = call->decay ? options->weight_decay : 0.0,
        .step = call->step,
        .gradient_scale = call->gradient_scale,
    };
    return call->kernels->optimizer->adamw(call->stream, &config, call->w, call->dw, call->state[0],
                                           call->state[1], call->copy, call->n);
}

const crl_optimizer crl_optimizer_adamw = {
    .name = "adamw",
    .help = "Adam with decoupled weight decay",
    .options = table,
    .options_bytes = sizeof(adamw_options),
    .states = states,
    .update = update,
};
