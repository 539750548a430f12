/* SPDX-License-Identifier: Apache-2.0 */
/* The one waiting loop, shared by requests and all-reduces. */
#pragma once

#include "engine/comm/comm.h"

enum { CRL_TAG_CLOSING = CRL_TAG_COLLECTIVE | 0xffff }; /* the end of the job: no all-reduce's */

/* Tries to move on. While not done, *peer is the rank waited for, *receiving the direction; *moved:
 * something happened, so the deadline starts anew. */
typedef struct crl_poll_result {
    bool done, moved, receiving;
    int peer;
} crl_poll_result;
typedef crl_status (*crl_poll_fn)(void *argument, crl_poll_result *result);

/* Calls `poll` until done; note, idle, deadline and report are seen to here. */
CRL_NODISCARD crl_status crl_comm_wait_poll(crl_comm *comm, const char *what, crl_poll_fn poll,
                                            void *argument);
