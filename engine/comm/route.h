/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Routes: which first-in-first-out channel carries a message, where messages have no tags of their
 * own (NCCL). On a channel the k-th send meets the k-th receive, so both ends must post in the same
 * order; messages that the two ends post in different orders need channels of their own.
 */
#pragma once

#include "engine/base/status.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Messages with this tag from one rank to another, and how they travel. */
typedef struct crl_route {
    int tag;
    int from, to; /* ranks */
    int channel;  /* 0.. of this directed pair */
} crl_route;

/*
 * Assigns channels to the messages of one directed pair: message i is sender_order[i]-th among what
 * the sender posts, and receiver_order[i]-th among what the receiver posts (any distinct numbers).
 * Fewest channels such that on each both orders agree; pure. *channels: how many.
 * cost: n log n
 * NOMEM.
 */
CRL_NODISCARD crl_status crl_routes_assign(int *channel, int *channels, const int *sender_order,
                                           const int *receiver_order, int messages);

#ifdef __cplusplus
}
#endif
