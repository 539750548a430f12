/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A rank's view of its job: point-to-point messages with a deadline on every wait, and groups of
 * ranks. Used by the rank's own thread only. A rank has one for what lies in host memory and, made
 * from it, one for its device's: messages there are ordered with a stream, as wire.h says.
 */
#pragma once

#include "engine/comm/transport.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct crl_comm {
    const crl_transport *transport;
    crl_endpoint *endpoint;
    int rank, ranks;
    int64_t deadline_ns; /* of every wait; default 300 s */
    /* Of this comm and the one made from it, where there is one: */
    int64_t waited_ns; /* time spent blocked since the caller last zeroed it */
    int64_t sent_bytes, received_bytes, sent_messages; /* started so far */
    /* Of a comm for device memory; all NULL for one for host memory. */
    const struct crl_device *device;
    struct crl_stream *stream; /* that messages are ordered with */
    struct crl_event *event;   /* of crl_comm_wait_stream */
    const struct crl_wire_kind *kind;
    struct crl_wire *wire;               /* NULL: messages go through the transport directly */
    const struct crl_reduce_ops *reduce; /* of the device, for crl_reduce_scatter */
    struct crl_comm *other; /* of the same rank: the host's one of this, or made from this */
} crl_comm;

/* Tags: the upper bits name the use, the lower ones are the user's. All below 2^30. */
enum {
    CRL_TAG_ACTION = 0 << 28,     /* activations and gradients between stages */
    CRL_TAG_COLLECTIVE = 1 << 28, /* group's channel << 16 | all-reduce's channel + 1, or 0 */
    CRL_TAG_USER = 2 << 28
};

/*
 * Any call below may fail with COMM (transport, sizes that differ), ABORTED (another rank has
 * failed), UNSUPPORTED (tag) or NOMEM; a failure has ended the job on all ranks.
 */

/* Makes room for so many requests at a time, so that starting them allocates nothing. */
CRL_NODISCARD crl_status crl_comm_reserve(crl_comm *comm, int requests);
/* Starts a message of `bytes` to `peer`; never blocks. `data` and `request`, which must be at rest,
 * stay the caller's but untouched until done. INVALID: peer, tag, or a request in use. */
CRL_NODISCARD crl_status crl_comm_send(crl_comm *comm, int peer, int tag, const void *data,
                                       size_t bytes, crl_request *request);
/* Posts its receive, of exactly as many bytes; likewise. */
CRL_NODISCARD crl_status crl_comm_recv(crl_comm *comm, int peer, int tag, void *data, size_t bytes,
                                       crl_request *request);
/* Moves traffic on; *done: the request is complete and at rest. An inactive one is done. On a
 * device: the device is through with it. */
CRL_NODISCARD crl_status crl_comm_test(crl_comm *comm, crl_request *request, bool *done);
/* Called while waiting, to move other work on (pending all-reduces); may be NULL. */
typedef crl_status (*crl_progress_fn)(void *argument);
/* Blocks until done or the deadline. `what` is for the report: "activation of stage 1, micro-batch
 * 3". TIMEOUT: "waited 300 s for <what> from rank 2; rank 2 waits for ... ; rank 3 does not
 * answer". On a device: until the stream, not the host, has to wait for the rest. */
CRL_NODISCARD crl_status crl_comm_wait(crl_comm *comm, crl_request *request, const char *what,
                                       crl_progress_fn progress, void *argument);
/* Blocking: starts the message and waits for it. */
CRL_NODISCARD crl_status crl_comm_send_wait(crl_comm *comm, int peer, int tag, const void *data,
                                            size_t bytes, const char *what);
/* The receiving side of the same; exactly `bytes` must arrive. */
CRL_NODISCARD crl_status crl_comm_recv_wait(crl_comm *comm, int peer, int tag, void *data,
                                            size_t bytes, const char *what);

/*
 * Ends the job on all ranks with this thread's error record. Afterwards no request of this rank is
 * touched any more. A rank that fails for a reason of its own calls it before it frees buffers of
 * active requests; after a failed comm call that has been done already.
 */
void crl_comm_abort(crl_comm *comm);

struct crl_wire_config;

/*
 * A second comm of the same ranks, for memory of config->device: messages take the wire `kind`, or
 * the transport directly when it is NULL or the device's memory is the host's. Shares the first
 * one's endpoint: ending the job through either ends it for both. Collective: all ranks. Blocking.
 */
CRL_NODISCARD crl_status crl_comm_on_device(crl_comm *out, crl_comm *host,
                                            const struct crl_wire_kind *kind,
                                            const struct crl_wire_config *config);
/* No message of this comm touches memory or stream any more afterwards. Collective unless the job
 * has ended. Blocking. One that is all zero is fine. */
void crl_comm_leave_device(crl_comm *comm);
/* Until all work queued on the comm's stream so far is done; nothing to do for host memory.
 * `progress` (may be NULL) moves other work on meanwhile. TIMEOUT, and what the stream reports. */
CRL_NODISCARD crl_status crl_comm_wait_stream(crl_comm *comm, const char *what,
                                              crl_progress_fn progress, void *argument);

/*
 * Launches a job and gives every rank its comm. A rank that returns a failure aborts the job: the
 * others' calls fail with ABORTED and the first one's record. Returns that first failure. No rank
 * leaves before all have succeeded or one has failed. deadline_ns 0: the default.
 */
typedef crl_status (*crl_comm_rank_fn)(void *argument, crl_comm *comm);
CRL_NODISCARD crl_status crl_comm_launch(const crl_transport *transport, int ranks,
                                         int64_t deadline_ns, crl_comm_rank_fn run, void *argument);

#ifdef __cplusplus
}
#endif
