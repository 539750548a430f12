/* SPDX-License-Identifier: Apache-2.0 */
/* What the executor's files share: preparation (executor.c), the loop (executor_run.c). */
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
};

static inline int crl_executor_micro_batches(const crl_executor *x) {
    return x->config.program->micro_batches;
}
