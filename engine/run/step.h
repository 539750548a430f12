/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One optimizer step of one rank: run the program, finish the gradient sums, agree with all ranks
 * on losses and norms (tally.h), update.
 *
 * The norm decides by how much a gradient is clipped, and whether it may be used at all, so all
 * ranks would have to wait for the slowest of them before they update. With
 * optimizer.validate=after a rank updates at once as if the norm were fine, keeps a copy of what it
 * changed, and looks at the norm when the next step's backward pass is about to begin:
 *
 *   before   F F F F B B B B |norm| U  F F F F B B B B |norm| U
 *   after    F F F F B B B B  U  F F F F |norm| B B B B  U      norm too large: the update is taken
 *                                                               back and made with the right scale,
 *                                                               the step begins anew
 *
 * The gradients are still there, since no backward pass has begun on any rank; so the bits are
 * those of `before` [qi23] §4. After a step that was clipped the next one is validated before,
 * because it is likely to be clipped, too. A step that overflowed is taken back and stays so. See
 * docs/decisions/0009-post-validated-update.md.
 */
#pragma once

#include "engine/run/feed.h"
#include "engine/run/loss_scale.h"
#include "engine/run/tally.h"
#include "engine/run/trainer.h"

#ifdef __cplusplus
extern "C" {
#endif

/* One step to be made. */
typedef struct crl_step_request {
    int64_t step; /* from 1 */
    double learning_rate;
    const crl_loader_step *data;
    bool stopping; /* this rank's wish that it be the last */
    bool settle;   /* the weights are used for something else next: must not be taken back */
} crl_step_request;

typedef struct crl_stepper {
    crl_rank *rank;
    crl_tally tally;
    crl_loss_scale scale; /* of the loss; what it says of the steps validated so far */
    crl_executor_turns turns;
    crl_executor_step run;           /* the program of the step under way */
    const crl_step_request *request; /* the step under way */
    crl_step_report report;          /* of the last update */
    double divisor;                  /* of its gradient, without the loss scale */
    bool open;                       /* it has not been validated */
    bool clipped;                    /* its norm was too large */
    int64_t rollbacks;               /* updates that were taken back */
    /* Told of every step once it is validated, in order; may be NULL. Of the report, what concerns
     * the run as a whole (steps, epoch, peak_bytes) is left 0. */
    void (*stepped)(void *context, const crl_step_report *report);
    void *context;
} crl_stepper;

/* Its buffers; `rank`, bound, and `comm`, for host memory, are lent. NOMEM. */
CRL_NODISCARD crl_status crl_stepper_init(crl_stepper *stepper, crl_rank *rank, crl_comm *comm);
/* One that is all zero is fine. */
void crl_stepper_fini(crl_stepper *stepper);

/* Collective: all ranks, with the same step and settle. Where it may not be taken back (settle,
 * anybody's wish to stop, optimizer.validate=before) the step is validated and reported on return.
 * INVALID "step k: ..." when loss or norm of this step or the one before is not finite: the weights
 * are then those before that step. Where the loss scale is chosen, such a step is skipped instead,
 * on all ranks, and reported so. */
CRL_NODISCARD crl_status crl_stepper_train(crl_stepper *stepper, const crl_step_request *request);
/* Collective: all ranks. Adds the losses of one validation batch to `total` (in micro-batch order).
 */
CRL_NODISCARD crl_status crl_stepper_evaluate(crl_stepper *stepper, const crl_loader_step *data,
                                              crl_loss *total);
/* Collective: all ranks. FNV-1a over all parameters' bits, in graph order. */
CRL_NODISCARD crl_status crl_stepper_hash(const crl_stepper *stepper, uint64_t *out);

#ifdef __cplusplus
}
#endif
