/* SPDX-License-Identifier: Apache-2.0 */
/* See loss_scale.h. */
#include "engine/run/loss_scale.h"

static const double largest = 0x1p60; /* far above what f16 lets through */

bool crl_loss_scale_chooses(const crl_loss_scale *s) {
    return s->window > 0;
}

crl_status crl_loss_scale_step(crl_loss_scale *s, bool finite) {
    if (finite) {
        s->good++;
        if (s->window > 0 && s->good >= s->window && s->scale < largest) {
            s->scale *= 2;
            s->good = 0;
        }
        return CRL_STATUS_OK;
    }
    s->good = 0;
    s->skipped++;
    s->scale /= 2;
    return s->scale >= 1 ? CRL_STATUS_OK
                         : CRL_FAIL(INVALID,
                                    "gradients overflow with a loss scale of 1, expected finite "
                                    "ones; steps skipped: %lld",
                                    (long long)s->skipped);
}
