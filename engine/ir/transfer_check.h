/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Blocking send/receive programs, one list per rank, for checking by hand-made vectors. A batch's
 * parts start together and the batch completes when all have.
 */
#pragma once

#include "engine/ir/program.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct crl_transfer {
    bool send;
    int peer;
    const char *tag;
    int batch; /* transfers of a rank with the same number (ascending) are one batch */
} crl_transfer;

/* Whether they end: `transfer[r]` has `count[r]` items. rendezvous false: sends complete at once.
 * NOMEM. */
CRL_NODISCARD crl_status crl_transfers_check(crl_check_report *report, int ranks,
                                             const crl_transfer *const *transfer, const int *count,
                                             bool rendezvous);

#ifdef __cplusplus
}
#endif
