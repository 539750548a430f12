/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One optimizer step of one rank: run the program, finish the gradient sums, exchange the few
 * numbers all ranks must agree on (losses by micro-batch, gradient norms by parameter), update.
 *
 * The exchanged vector is a sum of parts that do not overlap, so it is exact; everyone then adds
 * the parts in the same order, which makes loss and norm bit-equal on all ranks and in all layouts.
 */
#pragma once

#include "engine/run/feed.h"
#include "engine/run/trainer.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct crl_stepper {
    crl_rank *rank;
    crl_group world;
    crl_loss *loss;   /* (this replica's micro-batches) */
    double *exchange; /* (exchange_count) */
    double *scratch;  /* (ranks × exchange_count) */
    int64_t exchange_count;
} crl_stepper;

/* Buffers of the exchange; `rank` and `comm` are lent. NOMEM. */
CRL_NODISCARD crl_status crl_stepper_init(crl_stepper *stepper, crl_rank *rank, crl_comm *comm);
/* One that is all zero is fine. */
void crl_stepper_fini(crl_stepper *stepper);

/* Collective: all ranks. report->stopping: in, this rank's wish; out, anybody's. Fills loss,
 * gradient_norm, samples, tokens, times of the report. INVALID
 * when the loss or the norm is not finite: weights are then unchanged. */
CRL_NODISCARD crl_status crl_stepper_train(crl_stepper *stepper, int64_t step, double learning_rate,
                                           const crl_loader_step *data, crl_step_report *report);
/* Collective: all ranks. Adds the losses of one validation batch to `total` (in micro-batch order).
 */
CRL_NODISCARD crl_status crl_stepper_evaluate(crl_stepper *stepper, const crl_loader_step *data,
                                              crl_loss *total);
/* Collective: all ranks. FNV-1a over all parameters' bits, in graph order. */
CRL_NODISCARD crl_status crl_stepper_hash(crl_stepper *stepper, uint64_t *out);

#ifdef __cplusplus
}
#endif
