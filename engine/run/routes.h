/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The routes of a rank's messages: what it sends and receives in training, in evaluation and for
 * tied parameters, in the order in which its programs post them and its peers' programs theirs.
 * Refuses to guess: a message that is not here cannot travel on channels.
 */
#pragma once

#include "engine/comm/route.h"
#include "engine/run/rank.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct crl_routes {
    crl_route *route; /* (count) */
    int count;
} crl_routes;

/* Of a rank that has been created; local, pure. NOMEM. */
CRL_NODISCARD crl_status crl_routes_create(crl_routes *out, const crl_rank *rank);
/* One that is all zero is fine. */
void crl_routes_fini(crl_routes *routes);

#ifdef __cplusplus
}
#endif
