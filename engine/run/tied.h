/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Gradients of parameters that several nodes use. Every rank that holds such a parameter gets the
 * sums of all its uses and adds them in the order of the nodes, so that copies stay bit-equal:
 *
 *     position 0   use 0 ──┬── + use 1 ──> the sum, in place of use 0
 *                          ╳ exchange
 *     position 3   use 1 ──┴── use 0 + ──> the same sum
 *
 * Refuses to know how a use's own gradient was summed; see grad_sync.h.
 */
#pragma once

#include "engine/comm/route.h"
#include "engine/run/grad_sync.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct crl_tied crl_tied;

/* Plans the exchange; needs no other rank. UNSUPPORTED: a parameter with too many uses. */
CRL_NODISCARD crl_status crl_tied_create(crl_tied **out, const crl_grad_sync_config *config);
/* NULL is fine. */
void crl_tied_destroy(crl_tied *tied);
/* Of the uses that are received. */
size_t crl_tied_bytes(const crl_tied *tied);
/* The messages this rank sends and receives, all under way at a time, in the order in which both
 * ends post them. Lends; returns how many. */
int crl_tied_routes(const crl_tied *tied, const crl_route **out);
/* Gives it its memory (crl_tied_bytes) and the job. The parameters are bound. */
void crl_tied_bind(crl_tied *tied, crl_comm *comm, void *memory);
/* Where the sum of a parameter's uses will be; NULL: it is not tied, or not here. */
float *crl_tied_sum(const crl_tied *tied, int param);
/* Collective: the pipeline. Once the own uses are summed: exchanges and adds, on the stream. */
CRL_NODISCARD crl_status crl_tied_add(crl_tied *tied);

#ifdef __cplusplus
}
#endif
