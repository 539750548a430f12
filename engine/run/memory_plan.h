/* SPDX-License-Identifier: Apache-2.0 */
/* Offsets for things with lifetimes. A pure function: same input, same plan. */
#pragma once

#include "engine/base/status.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Lives from time `first` to time `last`, both included. */
typedef struct crl_lifetime {
    size_t bytes;
    int first, last;
    size_t offset; /* set by the plan, a multiple of 64 */
} crl_lifetime;

/* Things whose lifetimes meet do not overlap in memory. `*out_peak_bytes` is the space needed.
 * NOMEM for its own bookkeeping, INVALID when sizes overflow. */
CRL_NODISCARD crl_status crl_memory_plan(crl_lifetime *item, int count, size_t *out_peak_bytes);

/* `bytes` up to the next multiple of 64. */
size_t crl_memory_round(size_t bytes);

#ifdef __cplusplus
}
#endif
