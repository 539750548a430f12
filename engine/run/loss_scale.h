/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The factor of the loss in f16, whose gradients would else vanish below 2^-24 [micikevicius18]:
 * halved when a step overflowed, which is then skipped, doubled after `window` steps that did not.
 * Powers of two change no bit of a gradient that neither vanishes nor overflows. A pure state
 * machine: all ranks feed it the same answers and so agree.
 */
#pragma once

#include <stdint.h>

#include "engine/base/status.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct crl_loss_scale {
    double scale;
    int64_t window;  /* steps; 0: the scale stays what it is */
    int64_t good;    /* steps since it changed last */
    int64_t skipped; /* steps in all */
} crl_loss_scale;

/* Does it choose the scale, and so skip steps that overflow? */
bool crl_loss_scale_chooses(const crl_loss_scale *scale);
/* After a step. INVALID when it overflowed (`finite` false) and the scale cannot be halved: it is
 * below 1 then. */
CRL_NODISCARD crl_status crl_loss_scale_step(crl_loss_scale *scale, bool finite);

#ifdef __cplusplus
}
#endif
