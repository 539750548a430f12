/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Stochastic gradient descent with momentum and Nesterov's variant [sutskever13]. Weight decay is
 * added to the gradient. Without momentum it keeps no state. Refuses Nesterov without momentum or
 * with dampening, for which it is not defined.
 */
#include "engine/run/optimizer.h"

typedef struct sgd_options {
    double momentum, dampening, weight_decay;
    bool nesterov;
} sgd_options;

static const crl_option table[] = {
    {"momentum", "0", "share of the last update that is kept", &crl_option_double,
     offsetof(sgd_options, momentum), 0.0, 1.0, NULL},
    {"dampening", "0", "share of the gradient left out of the momentum", &crl_option_double,
     offsetof(sgd_options, dampening), 0.0, 1.0, NULL},
    {"nesterov", "false", "look ahead along the momentum", &crl_option_bool,
     offsetof(sgd_options, nesterov), 0.0, 0.0, NULL},
    {"weight_decay", "0", "decay of weight matrices, added to the gradient", &crl_option_double,
     offsetof(sgd_options, weight_decay), 0.0, 1.0, NULL},
    {0},
};

static int states(const void *options, const char *name[CRL_OPTIMIZER_MAX_STATES]) {
    const sgd_options *sgd = options;
    name[0] = "momentum";
    return sgd->momentum > 0.0 ? 1 : 0;
}

static crl_status check(const void *given, const char **out_option) {
    const sgd_options *options = given;
    if (options->nesterov && (options->momentum <= 0.0 || options->dampening > 0.0)) {
        *out_option = "nesterov";
        return CRL_FAIL(INVALID,
                        "nesterov with momentum %g and dampening %g, expected momentum above 0 and "
                        "dampening 0",
                        options->momentum, options->dampening);
    }
    return CRL_STATUS_OK;
}

static crl_status update(const crl_optimizer_call *call) {
    const sgd_options *options = call->options;
    const crl_sgd_config config = {
        .learning_rate = call->learning_rate,
        .momentum = options->momentum,
        .dampening = options->dampening,
        .weight_decay = call->decay ? options->weight_decay : 0.0,
        .nesterov = options->nesterov,
        .step = call->step,
        .gradient_scale = call->gradient_scale,
    };
    return call->kernels->optimizer->sgd(call->stream, &config, call->w, call->dw,
                                         options->momentum > 0.0 ? call->state[0] : NULL,
                                         call->copy, call->n);
}

const crl_optimizer crl_optimizer_sgd = {
    .name = "sgd",
    .help = "gradient descent with optional momentum",
    .options = table,
    .options_bytes = sizeof(sgd_options),
    .states = states,
    .check = check,
    .update = update,
};
