/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Everything one rank has: its programs, executors, parameters and gradient sums, and the one
 * reservation of device memory they all live in.
 *
 *   | weights, rounded weights | gradients × lane buffers | optimizer state, kept copies |
 *   | comm, losses and norms | activations, fields | workspace |
 *
 * Training and validation share activations and workspace, copies of fields included: one begins
 * when all ranks have read the numbers that the other's work ends with.
 */
#pragma once

#include "engine/device/device.h"
#include "engine/run/executor.h"
#include "engine/run/layout.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct crl_rank {
    const crl_layout *layout; /* lent */
    crl_coordinates at;
    int pipeline;              /* that it belongs to */
    crl_range micro_batches;   /* of the step that are this replica's */
    crl_lane_plan **lane_plan; /* (stages) of its own; training */
    crl_program *program, *evaluate_program;
    crl_params *params;
    crl_grad_sync *sync;
    crl_executor *executor, *evaluate_executor;
    crl_memory_report memory;
    const crl_backend *backend; /* the settings' */
    crl_stream *stream;         /* of all its computing; lent; NULL on the CPU */
    char *reservation;
    crl_loss *loss;    /* (M) of the step under way, in the reservation */
    double *squares;   /* (params) of the summed gradients, likewise */
    crl_comm *comm;    /* for host memory; lent */
    crl_comm *tensors; /* for the reservation's */
} crl_rank;

/* Plans everything and prepares the layers; needs no other rank and no tensor memory. `training`
 * false: parameters and the validation executor only. `stream`: of the settings' device; NULL on
 * the CPU, and where only sizes are asked for: it cannot be bound then. */
CRL_NODISCARD crl_status crl_rank_create(crl_rank **out, const crl_layout *layout, int rank,
                                         bool training, crl_stream *stream);
/* Collective: all ranks. Reserves the memory and joins the job. */
CRL_NODISCARD crl_status crl_rank_bind(crl_rank *rank, crl_comm *comm);
/* Frees the reservation; no transfer may be under way. NULL is fine. */
void crl_rank_destroy(crl_rank *rank);

#ifdef __cplusplus
}
#endif
