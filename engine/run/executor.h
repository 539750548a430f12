/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The only step loop: runs one rank's list of a program. It knows actions, places and messages; it
 * contains no schedule, allocates nothing while running, and never decides an order.
 */
#pragma once

#include "engine/comm/mesh.h"
#include "engine/run/grad_sync.h"
#include "engine/run/stage_layout.h"

#ifdef __cplusplus
extern "C" {
#endif

enum { CRL_EXECUTOR_MAX_FIELDS = 4 }; /* inputs of a model */

typedef struct crl_executor crl_executor;

typedef struct crl_executor_config {
    const crl_plan *plan;       /* lent, like all pointers here */
    const crl_program *program; /* of this replica, with messages, checked */
    const crl_backend *backend;
    crl_stream *stream; /* of all computing; NULL: on the CPU, and where only sizes are asked for */
    const crl_params *params;
    crl_grad_sync *sync; /* NULL: forward only */
    const crl_mesh *mesh;
    int position, replica;
    int first_micro_batch; /* of this pipeline in the whole step */
    int first_own;         /* of this replica in its pipeline: fields and losses begin there */
    int own;               /* micro-batches of this replica */
    int first_tag;         /* of its messages: programs of one rank must not share tags */
} crl_executor_config;

/* Prepares the layers of this position's stages and plans memory; needs no other rank.
 * UNSUPPORTED: more than CRL_EXECUTOR_MAX_FIELDS inputs, or more blocks than an int counts. */
CRL_NODISCARD crl_status crl_executor_create(crl_executor **out, const crl_executor_config *config);
/* Releases the layers; not the memory it was bound to. NULL is fine. */
void crl_executor_destroy(crl_executor *executor);
/* What outlives an action, at its peak. */
size_t crl_executor_activation_bytes(const crl_executor *executor);
/* What lives inside one action, with the kernels' scratch. */
size_t crl_executor_workspace_bytes(const crl_executor *executor);
/* The most messages it has under way at a time. */
int crl_executor_requests(const crl_executor *executor);
/* Gives it memory of those sizes (lent, 64-byte aligned) and the job. */
CRL_NODISCARD crl_status crl_executor_bind(crl_executor *executor, crl_comm *comm,
                                           void *activations, void *workspace);

/* The dataset fields this rank reads: values of the graph; lends. */
int crl_executor_fields(const crl_executor *executor, const int **out_values);

/* What a training step does beside its program. Failures end the run. */
typedef struct crl_executor_turns {
    void *context;
    /* Moves other work on: between kernels and in waits. */
    crl_progress_fn progress;
    /* Before anything of the backward pass, gradients and their buffers included. *out_go false:
     * this pass is in vain. The rest of it computes nothing and moves no gradient; only the
     * activations that others have sent or await still travel. All ranks must decide alike. */
    crl_status (*before_backward)(void *context, bool *out_go);
    /* After that, once all losses of this rank's micro-batches are there (it may have none). */
    crl_status (*losses_known)(void *context);
} crl_executor_turns;

/* One pass through the program. */
typedef struct crl_executor_step {
    uint64_t seed;
    uint32_t step;
    bool training;
    int64_t samples; /* valid ones in the global batch */
    /* By index of crl_executor_fields: this rank's micro-batches, in host memory that stays as it
     * is until the step's losses are known. */
    const void *const *field;
    crl_loss *loss;   /* (M of the pipeline), written; the first are this replica's; the device's */
    float loss_scale; /* of the gradients, a power of two */
    bool alike;       /* its work is that of other steps: all samples, weights that stand */
    const crl_executor_turns *turns; /* lent; NULL: none */
    bool in_vain;                    /* set: before_backward said so */
    int64_t busy_ns, span_ns;        /* set: computing, and from begin to end */
} crl_executor_step;

/* Collective: the pipeline. On return all work is queued on the stream (CPU: done). Any failure of
 * a layer, a message or the gradient sums. */
CRL_NODISCARD crl_status crl_executor_run(crl_executor *executor, crl_executor_step *step);

/* After a forward-only run of one stage: where `value` of micro-batch 0 is. NULL: not kept. */
const void *crl_executor_value(const crl_executor *executor, int value);

/* Adds the time of every node by phase, in ns, to `total` (nodes × CRL_PHASES) in each run; NULL
 * stops. */
void crl_executor_profile(crl_executor *executor, int64_t *total_ns);

#ifdef __cplusplus
}
#endif
