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
    double message_s;  /* of its own that a position takes to start a send, and to end a receive */
    bool shared_links; /* what a position sends leaves in turn: one begins when the last has left */
} crl_simulation_config;

/* What one position does with the makespan: the times add up to it. */
typedef struct crl_position_times {
    double forward_s, input_s, weight_s; /* computing; B counts as input and weight */
    double message_s;                    /* starting and ending messages */
    double wait_input_s;                 /* for something that is not computed yet */
    double wait_message_s;               /* for something that is on its way */
    double wait_send_s;                  /* for its own send, whose buffer it needs */
    double after_s;                      /* after its last action */
    double peak_bytes;                   /* most of kept_bytes and held_bytes at a time */
    int peak_activations; /* most micro-batches, each of a stage, between F and B or I */
} crl_position_times;

/* A compute action of the critical path. */
typedef struct crl_path_step {
    int position, index;
    double start_s, end_s;
} crl_path_step;

typedef struct crl_simulation {
    double makespan_s;
    double *busy_s;   /* (P) computing */
    double **start_s; /* (P)(actions of the position) of a compute action: after waiting */
    double bubble;    /* 1 - sum busy / (P · makespan) */
    /* Longest time of a position from the start of its first action to the end of its last: what a
     * step takes among many, when positions begin the next one without waiting for each other. */
    double span_s;
    double **end_s;               /* (P)(actions of the position) */
    crl_position_times *position; /* (P) */
    int64_t messages;             /* between positions */
    /* The chain of actions that the makespan is made of, first to last: each one starts when the
     * one before it ends, or when its result arrives. */
    int path_steps;
    crl_path_step *path;
} crl_simulation;

/*
 * Times a program. With messages, they cost what the links say. Without, every F that needs one of
 * another position, and every B or I, gets its input in a message of the producing stage's
 * output_bytes (gradients: of the consuming one's). INVALID: a program that the checker refuses,
 * costs below 0 or infinite, or a makespan that is; NOMEM.
 */
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
