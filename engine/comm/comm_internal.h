/* SPDX-License-Identifier: Apache-2.0 */
/* The one waiting loop, shared by requests and all-reduces. */
#pragma once

#include "engine/comm/wire.h"

enum { CRL_TAG_CLOSING = CRL_TAG_COLLECTIVE | 0xffff }; /* the end of the job: no all-reduce's */

/* Tries to move on. While not done, *peer is the rank waited for, *receiving the direction; *moved:
 * something happened, so the deadline starts anew. */
typedef struct crl_poll_result {
    bool done, moved, receiving;
    bool soon; /* no other rank's news: the device's, which wakes nobody */
    int peer;  /* this rank itself: its device */
} crl_poll_result;
typedef crl_status (*crl_poll_fn)(void *argument, crl_poll_result *result);

/* Calls `poll` until done; note, idle, deadline and report are seen to here. */
CRL_NODISCARD crl_status crl_comm_wait_poll(crl_comm *comm, const char *what, crl_poll_fn poll,
                                            void *argument);
/* Answers roll calls; ABORTED once the job is over. */
CRL_NODISCARD crl_status crl_comm_attend(const crl_comm *comm);
/* Ends the job on all ranks unless `status` is OK, and passes it on. */
CRL_NODISCARD crl_status crl_comm_end_job(crl_comm *comm, crl_status status);
/* Memory that messages of the comm come from: queued on its stream on a device, done on the host.
 */
CRL_NODISCARD crl_status crl_comm_zero(const crl_comm *comm, void *to, size_t bytes);
CRL_NODISCARD crl_status crl_comm_copy(const crl_comm *comm, void *to, const void *from,
                                       size_t bytes);
