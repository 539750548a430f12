/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Transport contract: how bytes get from rank to rank. A transport knows nothing of stages, tensors
 * or collectives; those are built on the calls below by comm.h and collective.h.
 *
 * Every send is to be thought of as a rendezvous: it may complete only when its receive is posted.
 * Messages between the same two ranks with the same tag are matched in posting order; different
 * tags are independent. Tags are below 2^30; a transport may refuse those whose lower 28 bits are
 * large, with UNSUPPORTED. Calls never block. A rank's endpoint is used by one thread.
 *
 * A call that fails has aborted the job. Once a call has failed, or abort has returned, the
 * transport touches no memory of this rank's requests any more: only then may buffers of active
 * ones be freed.
 */
#pragma once

#include <stdint.h>

#include "engine/base/status.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct crl_endpoint crl_endpoint; /* a transport's state of one rank */

/* One message under way. Caller's memory; at rest when zero. */
typedef struct crl_request {
    void *slot; /* the transport's */
    int peer;
    int tag;
    bool receiving;
    bool active;
} crl_request;

/* What a rank waits for, as it reports it to others: fixed size, no pointers. */
typedef struct crl_wait_note {
    int peer;         /* -1: not waiting */
    int64_t since_ns; /* clock of whoever holds the note: a roll call converts it */
    char what[96];    /* "gradient of stage 2, micro-batch 5" */
} crl_wait_note;

typedef crl_status (*crl_rank_fn)(void *argument, crl_endpoint *endpoint, int rank, int ranks);

/* Memory that all ranks of a job have in common. */
typedef struct crl_share {
    size_t bytes;
    void (*init)(void *memory, int ranks); /* it comes zeroed */
    void (*fini)(void *memory);            /* when all ranks have ended */
} crl_share;

typedef struct crl_transport {
    const char *name;
    const char *help;
    /*
     * Runs `run(argument, endpoint, rank, ranks)` on every rank of the job that lives in this
     * process: `ranks` threads (local) or this process alone (mpi, which ignores `ranks` when 0
     * and refuses a mismatch). Returns when all of them have, with the first failure: that of the
     * rank that failed first, not of those that noticed. A rank that returns a failure aborts.
     */
    crl_status (*launch)(int ranks, crl_rank_fn run, void *argument);
    /* Makes room for so many requests at a time: then none of the calls below allocates. NULL: they
     * never do. */
    crl_status (*reserve)(crl_endpoint *endpoint, int requests);
    /* Start, without waiting. `data` stays untouched/unread until test says done. */
    crl_status (*send)(crl_endpoint *endpoint, int peer, int tag, const void *data, size_t bytes,
                       crl_request *request);
    crl_status (*recv)(crl_endpoint *endpoint, int peer, int tag, void *data, size_t bytes,
                       crl_request *request);
    /* Moves all traffic of the endpoint on; *done = this request is complete and at rest.
     * COMM when sizes of a matched pair differ; ABORTED when a peer has failed. */
    crl_status (*test)(crl_endpoint *endpoint, crl_request *request, bool *done);
    /* Moves all traffic on and answers roll calls; ABORTED when a peer has failed. NULL: only the
     * calls above do. */
    crl_status (*attend)(crl_endpoint *endpoint);
    /* Gives the core away for a moment while there is nothing to do; wakes early on news. */
    void (*idle)(crl_endpoint *endpoint, int64_t at_most_ns);
    /* Publishes what this rank waits for (peer -1: nothing), for the others' reports. */
    void (*note)(crl_endpoint *endpoint, const crl_wait_note *note);
    /* The notes of all ranks as far as they can be had within `at_most_ns`; answered[r] false: the
     * rank did not answer (stalled or dead). Called by a rank whose deadline has passed. */
    crl_status (*roll_call)(crl_endpoint *endpoint, crl_wait_note *note, bool *answered,
                            int64_t at_most_ns);
    /* Tells every rank that the job is over and why; their next call fails with ABORTED and this
     * record. The first abort wins; where the transport knows that it was another rank's, this
     * thread's record becomes that one. */
    void (*abort)(crl_endpoint *endpoint, const crl_error *error);
    /* Where all ranks are threads of one process: the job's common memory, which the first caller
     * makes. There is one of a job: all callers ask for the same. NOMEM. NULL: elsewhere. */
    crl_status (*share)(crl_endpoint *endpoint, const crl_share *share, void **out);
    /* Optional native all-reduce (sum of f32, blocking), for the benchmark. NULL: none. */
    crl_status (*allreduce)(crl_endpoint *endpoint, float *data, int64_t count);
} crl_transport;

extern const crl_transport crl_transport_local;
extern const crl_transport crl_transport_mpi; /* only when built with MPI */

#ifdef __cplusplus
}
#endif
