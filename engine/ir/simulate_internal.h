/* SPDX-License-Identifier: Apache-2.0 */
/* What the parts of the simulator share, and what the pictures need of it. */
#pragma once

#include "engine/ir/program_internal.h"
#include "engine/ir/simulate.h"

/* Seconds a compute action takes; messages, REDUCE and STEP: 0. */
static inline double action_duration(const crl_simulation_config *config,
                                     const crl_action *action) {
    const crl_stage_cost *time = &config->stage[action->stage];
    switch (action->kind) {
    case CRL_ACTION_FORWARD:
        return time->forward_s;
    case CRL_ACTION_BACKWARD:
        return time->input_s + time->weight_s;
    case CRL_ACTION_INPUT:
        return time->input_s;
    case CRL_ACTION_WEIGHT:
        return time->weight_s;
    default:
        return 0;
    }
}

typedef struct simulator {
    const crl_program *program;
    const crl_simulation_config *config;
    const program_index *index;
    crl_simulation *result;
    double *clock;   /* (positions) when its last action was over, its send started */
    double *link;    /* (positions) when all it has sent so far has left */
    double *arrival; /* (messages; a program without: actions) of what was sent */
    double *bytes;   /* (positions) kept and held now */
    int *live;       /* (positions) micro-batches between F and B or I */
} simulator;

/* A program that brings no messages gets one for each dependency between two positions. */
static inline bool is_bare(const simulator *self) {
    return self->program->messages == 0;
}

/* Number of the action on another position whose result a compute action needs, or -1. */
int crl_simulator_input(const program_index *index, int position, const crl_action *action);
/* Number of the one on another position that needs the result of `action`, or -1. */
int crl_simulator_output(const program_index *index, int position, const crl_action *action);
/* When what an action of any kind waits for is there, and (*cause) the number of the action on
 * another position that made it; -1: it waits for nothing. */
double crl_simulator_awaited(const simulator *self, int position, const crl_action *action,
                             int *cause);
/* The next action of a position, in an order that respects dependencies: a program_visit_fn. */
void crl_simulator_visit(void *context, int position, int at);
/* Follows the makespan back to its beginning. NOMEM. */
crl_status crl_simulator_path(const simulator *self);
