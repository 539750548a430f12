/* SPDX-License-Identifier: Apache-2.0 */
/* The simulator and the grid view: what a program would take, given what its actions take. Pure. */
#pragma once

#include "engine/ir/cost.h"
#include "engine/ir/program.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct crl_simulation_config {
    const crl_stage_cost *stage; /* (S) */
    crl_link link;               /* of messages between positions of one node */
    crl_link between;            /* of those between nodes; used where `node` is given */
    const int *node;             /* (positions) the node each is on; NULL: all on one */
    double message_s;            /* time of its own that starting or ending a message takes a position */
} crl_simulation_config;

typedef struct crl_simulation {
    double makespan_s;
    double *busy_s;   /* (P) */
    double **start_s; /* (P)(actions of the position); end = start + duration */
    double bubble;    /* 1 - sum busy / (P · makespan) */
} crl_simulation;

/* Times a program (with messages: their cost too; without: dependencies cost nothing). INVALID: a
 * program that the checker refuses, times below 0 or infinite; NOMEM. */
CRL_NODISCARD crl_status crl_simulate(crl_simulation **out, const crl_program *program,
                                      const crl_simulation_config *config);
/* NULL is fine. */
void crl_simulation_destroy(crl_simulation *simulation);

/* The picture: one row per position, time to the right, F0 B0 ..., idle as dots. `width` columns at
 * the most (0: no limit). `config` NULL: every F, I and W takes 1. `mark` (may be NULL) highlights
 * the action a check found. INVALID (times), NOMEM. */
CRL_NODISCARD crl_status crl_program_print_grid(const crl_program *program,
                                                const crl_simulation_config *config,
                                                const crl_check_report *mark, int width, FILE *out);

#ifdef __cplusplus
}
#endif
