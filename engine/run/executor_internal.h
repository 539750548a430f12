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

/* Where the dataset's fields lie for the kernels: as they come on the CPU, else in one of two sets
 * of device memory in turn, so that a step's may be copied while the step before computes. */
typedef struct crl_executor_fields_copy {
    size_t set_bytes; /* of all fields of this rank's micro-batches; 0: no copies */
    size_t offset[CRL_EXECUTOR_MAX_FIELDS];
    char *memory; /* (2 sets) */
    int set;      /* of the step under way */
    crl_stream *stream;
    crl_event *copied, *read[2]; /* the last copy is done; a set was last read */
} crl_executor_fields_copy;

struct crl_executor {
    crl_executor_config config;
    crl_comm *comm;
    int row, pipeline; /* of the program that this rank runs, and which pipeline it is of */
    int locals;
    crl_local_stage *local;
    int *local_of_stage;         /* (stages) index into local; -1: elsewhere */
    void **node_state;           /* (nodes) */
    const crl_kernels **kernels; /* (nodes) of what each computes in */
    size_t activation_bytes, workspace_bytes;
    char *activations, *workspace;
    int fields;
    int *field_value;    /* (fields) */
    int *field_of_value; /* (values) -1: none */
    crl_executor_fields_copy copy;
    bool records; /* the work of steps that are alike is recorded and replayed */
    crl_recording *recording;
    float recorded_scale; /* of the losses in it */
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

/* Their sizes and, after the memory is there (2 · set_bytes), streams and events. */
CRL_NODISCARD crl_status crl_fields_plan(crl_executor *x);
CRL_NODISCARD crl_status crl_fields_bind(crl_executor *x, char *memory);
void crl_fields_fini(crl_executor *x);
/* Queues the copies of a step, and makes the stream wait for them; after its last kernel. */
CRL_NODISCARD crl_status crl_fields_begin(crl_executor *x, const crl_executor_step *step);
CRL_NODISCARD crl_status crl_fields_end(crl_executor *x);
/* Field `field` of this replica's first micro-batch. */
const char *crl_fields_at(const crl_executor *x, const crl_executor_step *step, int field);

/* Whether this rank's steps can be replayed: no messages, no random numbers. */
void crl_executor_plan_recording(crl_executor *x);
/* Runs the actions of the list, with the turns of the step but for a replayed one. */
CRL_NODISCARD crl_status crl_executor_actions(crl_executor *x, crl_executor_step *step);
/* The same as recorded work: between what comes before and after it on the host. */
CRL_NODISCARD crl_status crl_executor_replay(crl_executor *x, crl_executor_step *step);
void crl_executor_forget_recording(crl_executor *x);

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
