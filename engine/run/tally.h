/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The few numbers all ranks of a step agree on, in two parts that travel while the step goes on,
 * from the device to the host and then between hosts:
 *
 *   losses  (micro-batches × 4 | wish to stop)   known before the backward pass ends: they say what
 *                                                the gradient is divided by
 *   norms   (params | ranks × 3 times)           known after all gradients are summed
 *
 * Both are sums of parts that do not overlap, which is exact; everyone then adds the parts in the
 * same order, which makes loss and norm bit-equal on all ranks and in all layouts.
 */
#pragma once

#include "engine/comm/agree.h"
#include "engine/comm/wire.h"
#include "engine/run/readback.h"
#include "engine/run/rank.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Channels of the world's group. */
enum { CRL_TALLY_LOSSES = 0, CRL_TALLY_NORMS, CRL_TALLY_ONCE };

/* How a rank spent its step. */
typedef struct crl_tally_times {
    double busy_ns, span_ns; /* computing; the program from begin to end */
    double exposed_s;        /* waiting for sums of gradients afterwards */
} crl_tally_times;

typedef struct crl_tally {
    const crl_rank *rank;
    crl_group world;
    crl_agree losses, norms;
    crl_readback losses_read, norms_read;
    bool losses_due, norms_due; /* started, but still on their way to the host */
    bool stopping;              /* this rank's part of what is due */
    crl_tally_times times;
} crl_tally;

/* What all ranks know of a step's end. */
typedef struct crl_tally_norms {
    double squares;   /* of the summed gradient, all parameters */
    double bubble;    /* see crl_step_report */
    double exposed_s; /* largest */
} crl_tally_norms;

/* Buffers; `rank`, bound, and `comm`, for host memory, are lent. NOMEM. */
CRL_NODISCARD crl_status crl_tally_init(crl_tally *tally, const crl_rank *rank, crl_comm *comm);
/* Aborts the job when numbers are under way. One that is all zero is fine. */
void crl_tally_fini(crl_tally *tally);
/* Moves both parts on, without blocking; the argument is a crl_tally. */
CRL_NODISCARD crl_status crl_tally_progress(void *tally);

/* Collective: all ranks, without blocking. Gives this rank's losses (its replica's micro-batches,
 * device memory), where it has the loss, and its wish to stop. */
CRL_NODISCARD crl_status crl_tally_start_losses(crl_tally *tally, const crl_loss *loss,
                                                bool stopping);
/* Blocking. Adds the losses of all micro-batches to `total`, in order; *stopping: anybody's wish.
 */
CRL_NODISCARD crl_status crl_tally_wait_losses(crl_tally *tally, crl_loss *total, bool *stopping);
/* Collective: all ranks, without blocking. After the gradients are summed. */
CRL_NODISCARD crl_status crl_tally_start_norms(crl_tally *tally, const crl_tally_times *times);
/* Blocking. */
CRL_NODISCARD crl_status crl_tally_wait_norms(crl_tally *tally, crl_tally_norms *out);
/* Collective: all ranks, blocking. FNV-1a over all parameters' bits, in graph order. NOMEM. */
CRL_NODISCARD crl_status crl_tally_hash(const crl_tally *tally, uint64_t *out);

#ifdef __cplusplus
}
#endif
