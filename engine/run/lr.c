/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The learning-rate curve: a pure function of the step. Both ends are exact: the last step of the
 * warm-up (the first step when there is none) has `peak`, `total_steps` and later have `minimum`.
 *
 *      peak        /--___                 constant stays at peak
 *                 /      --__
 *      minimum   /           ----------
 *               0  warmup    total
 */
#include <math.h>

#include "engine/run/optimizer.h"

static const double pi = 3.14159265358979323846;

double crl_lr_at(const crl_lr_config *config, int64_t step) {
    const int64_t top = config->warmup_steps > 1 ? config->warmup_steps : 1;
    if (step < top) {
        return step > 0 ? config->peak * ((double)step / (double)top) : 0.0;
    }
    if (step == top || config->kind == CRL_LR_CONSTANT) {
        return config->peak;
    }
    if (step >= config->total_steps) {
        return config->minimum;
    }
    const double gone = (double)(step - top) / (double)(config->total_steps - top);
    const double share = config->kind == CRL_LR_COSINE ? 0.5 * (1.0 - cos(pi * gone)) : gone;
    return config->peak * (1.0 - share) + config->minimum * share;
}
