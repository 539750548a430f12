/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Wire contract: how tensors get from device to device, beside the transport that carries what lies
 * in host memory. A wire knows messages and streams; it knows nothing of stages or gradients.
 *
 *   kind     way of a message                                    needs
 *   staged   device -> pinned memory -> transport -> device      nothing more
 *   shared   device -> device, the receiver copies               all ranks in one process
 *   nccl     NCCL's send and receive, in order on channels       a GPU per rank, routes
 *
 * Messages are ordered with the stream of all computing. A send reads its data after the work that
 * was queued before the call, a receive writes only after it. Once a message is done, work queued
 * from then on may overwrite what was sent, and sees what was received. To be done is one of two
 * things:
 *
 *   crl_comm_test  the device is through with it: testing never makes the stream wait
 *   crl_comm_wait  also when only the stream has to wait for the rest: the host goes on
 *
 * So polling a receive between kernels costs nothing, while waiting for it holds up what follows.
 */
#pragma once

#include "engine/comm/comm.h"
#include "engine/comm/route.h"
#include "engine/device/device.h"

#ifdef __cplusplus
extern "C" {
#endif

struct crl_allreduce_algorithm; /* collective.h */
struct crl_group;

typedef struct crl_wire crl_wire; /* a kind's state of one rank */

typedef struct crl_wire_config {
    crl_comm *host; /* lent; of the same ranks */
    const crl_device *device;
    crl_stream *stream;     /* of all computing; lent */
    const crl_route *route; /* (routes) of all messages of this rank; copied */
    int routes;
    int requests; /* the most messages under way at a time, beforehand known */
    const struct crl_reduce_ops *reduce; /* for crl_reduce_scatter; lent */
} crl_wire_config;

/* All may fail with what comm.h and device.h name; a failure ends the job (comm.c sees to it). */
typedef struct crl_wire_kind {
    const char *name;
    const char *help;
    bool uses_routes; /* false: `route` may be missing */
    /* Collective: all ranks. UNSUPPORTED with the reason, on all ranks or on none. */
    crl_status (*usable)(const crl_wire_config *config);
    /* Collective: all ranks. Blocking, with the deadline. */
    crl_status (*create)(crl_wire **out, const crl_wire_config *config);
    /* Waits for the device's work on messages, or ends it when the job is over. Collective where
     * the job goes on. */
    void (*destroy)(crl_wire *wire);
    crl_status (*send)(crl_wire *wire, int peer, int tag, const void *data, size_t bytes,
                       crl_request *request);
    crl_status (*recv)(crl_wire *wire, int peer, int tag, void *data, size_t bytes,
                       crl_request *request);
    /* `follow`: done as soon as the stream can be made to wait for the rest. */
    crl_status (*test)(crl_wire *wire, crl_request *request, bool follow, bool *done);
    /* Moves all messages on. *busy: the device is at work on some, so look again soon. */
    crl_status (*progress)(crl_wire *wire, bool *busy);
    /* The job is over: nothing more is queued, and what is must come to an end. */
    void (*abort)(crl_wire *wire);
    /* All-reduces of its own, for crl_allreduce_on. NULL: those over messages. Their scratch is
     * that of crl_allreduce_tree and crl_allreduce_ring at most; their `create` is collective:
     * group. */
    const struct crl_allreduce_algorithm *tree, *sum;
    /* As in collective.h, but queued on the stream. NULL: over messages. */
    crl_status (*all_gather)(crl_wire *wire, const struct crl_group *group, void *data,
                             size_t bytes);
    crl_status (*reduce_scatter)(crl_wire *wire, const struct crl_group *group, float *data,
                                 int64_t count, float *scratch);
} crl_wire_kind;

extern const crl_wire_kind crl_wire_staged;
extern const crl_wire_kind crl_wire_shared;
extern const crl_wire_kind crl_wire_nccl; /* only when built with NCCL */
/* NULL-terminated, for crl_registry_find. */
extern const void *const crl_wires[];

/*
 * The kind of that name, or for "auto" the first usable of shared, nccl, staged. *out is NULL on a
 * device whose memory is the host's. Collective: all ranks. NOT_FOUND: name; UNSUPPORTED: a named
 * kind that is not usable.
 */
CRL_NODISCARD crl_status crl_wire_find(const crl_wire_kind **out, const char *name,
                                       const crl_wire_config *config);

#ifdef __cplusplus
}
#endif
