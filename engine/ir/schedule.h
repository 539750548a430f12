/* SPDX-License-Identifier: Apache-2.0 */
/* Schedule contract: a pure function from sizes and costs to a program of compute actions. */
#pragma once

#include "engine/ir/cost.h"
#include "engine/ir/program.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct crl_schedule_request {
    int positions;     /* P, devices of the pipeline */
    int stages;        /* S, a multiple of P */
    int micro_batches; /* M of this pipeline; may be fewer than stages */
    /* (P) replicas of every position inside this pipeline; NULL: 1 each. Micro-batches of a
     * position are dealt out to its replicas in turn, after the schedule has been built. */
    const int *widths;
    int group; /* micro-batches that go through the stages of a position together; 0: P */
    const crl_stage_cost *cost; /* (S) NULL: F = I = W = 1, a micro-batch holds 1 until its end */
    double message_s;           /* from the end of an action to its use on another position */
    double memory_limit_bytes;  /* of a position, for kept and held bytes; 0: the schedule's own */
} crl_schedule_request;

typedef struct crl_schedule {
    const char *name;
    const char *help;
    int least_virtual, most_virtual; /* stages per position it serves, S / P; most 0: no limit */
    /* Building weighs as much as simulating this many times as many actions; 0: little. */
    bool keeps_limit; /* builds within memory_limit_bytes, or reports UNSUPPORTED */
    int effort;
    /* The position of a stage; NULL: stage mod P. */
    int (*position)(const crl_schedule_request *request, int stage);
    /* INVALID when the sizes do not suit it, UNSUPPORTED when the memory limit does not. Of every
     * stage the weight halves (B or W) ascend by micro-batch. */
    crl_status (*build)(crl_program **out, const crl_schedule_request *request);
    /* Declared, whatever the request's costs: idle share of the makespan with F = I = W = 1 on
     * every stage and B = 2, and the most micro-batches that one replica of a stage holds from F
     * until I or B. Never exceeded; reached where `exact` says so. */
    double (*bubble)(const crl_schedule_request *request);
    int (*peak_activations)(const crl_schedule_request *request, int stage);
    bool (*exact)(const crl_schedule_request *request); /* NULL: never */
} crl_schedule;

/* INVALID: stages that are not least_virtual to most_virtual on each position. Everything else may
 * be asked of a schedule for stages that pass only. Positions are 1 or more. */
CRL_NODISCARD crl_status crl_schedule_check_stages(const crl_schedule *schedule, int positions,
                                                   int stages);
/* The position of a stage under a schedule. */
static inline int crl_schedule_position(const crl_schedule *schedule,
                                        const crl_schedule_request *request, int stage) {
    return schedule->position ? schedule->position(request, stage) : stage % request->positions;
}

#ifdef __cplusplus
}
#endif
