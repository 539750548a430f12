/* SPDX-License-Identifier: Apache-2.0 */
/* What the executor's files share: preparation (executor.c), the loop and messages
 * (executor_run.c), computing (executor_compute.c). */
#pragma once

#include "engine/run/executor.h"

/* A stage of this position. */
typedef struct crl_local_stage {
    int stage;
    crl_stage_layout *layout;
    size_t *block_offset; /* (micro-batches × blocks) into the activations */
} crl_local_stage;

struct crl_executor {
    crl_executor_config config;
    crl_comm *comm;
    int row, pipeline; /* of the program that this rank runs, and which pipeline it is of */
    int locals;
    crl_local_stage *local;
    int *local_of_stage; /* (stages) index into local; -1: elsewhere */
    void **node_state;   /* (nodes) */
    size_t activation_bytes, workspace_bytes, scratch_offset;
    char *activations, *workspace;
    int fields;
    int *field_value;     /* (fields) */
    int *field_of_value;  /* (values) -1: none */
    crl_request *request; /* (messages) of this rank's side */
    bool *reached;        /* (messages) local copies: one side has been reached */
    crl_request *watched; /* the request that is polled between kernels */
    int64_t *profile_ns;
    const crl_executor_turns *turns; /* of the step under way */
};

/* Which turns of a step have been taken. */
typedef struct crl_turn_state {
    int last_loss; /* index of the list's last forward of the loss; -1: none */
    bool backward, losses;
} crl_turn_state;

/* At the beginning of a pass. */
void crl_turns_begin(crl_turn_state *state, const crl_executor *executor,
                     const crl_action_list *list, crl_executor_step *step);
/* Before action `index` of the list, and at its end: takes the turns that are due. */
CRL_NODISCARD crl_status crl_turns_reach(crl_turn_state *state, const crl_executor *executor,
                                         const crl_action_list *list, int index,
                                         crl_executor_step *step);
/* Does a pass in vain leave this action out? */
bool crl_turns_skip(const crl_executor *executor, const crl_action *action,
                    const crl_executor_step *step);

/* Where a place of a micro-batch is; NULL: nowhere. A field of the dataset is none of them. */
void *crl_executor_locate(const crl_executor *x, const crl_local_stage *local, int micro_batch,
                          crl_place place);
/* Moves all-reduces and what the caller has under way on; in waits, too. */
CRL_NODISCARD crl_status crl_executor_progress(void *executor);
/* Runs F, B, I or W. */
CRL_NODISCARD crl_status crl_executor_compute(crl_executor *x, crl_executor_step *step,
                                              const crl_action *action);

static inline int crl_executor_micro_batches(const crl_executor *x) {
    return x->config.program->micro_batches;
}
