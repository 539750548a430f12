/* SPDX-License-Identifier: Apache-2.0 */
/* Train, evaluate and generate: what the command line and programs call. */
#pragma once

#include "engine/base/log.h"
#include "engine/run/layout.h"

#ifdef __cplusplus
extern "C" {
#endif

/* One training step; the same numbers on all ranks, but for times, which are rank 0's. */
typedef struct crl_step_report {
    int64_t step;  /* from 1 */
    int64_t steps; /* to come in all */
    double epoch;
    double loss;          /* mean over the weights of the global batch */
    double gradient_norm; /* before clipping */
    double loss_scale;    /* its gradient was made with */
    bool skipped;         /* the gradient overflowed: no update */
    double learning_rate;
    double step_s;
    double samples, tokens; /* of this step; tokens: rows that count in the loss */
    /* 0..1, as the simulator's: 1 - sum of the ranks' computing times / (ranks · time of the
     * program on the rank that takes longest). Waiting for messages and for slower stages both
     * count. */
    double bubble;
    /* Largest over ranks: blocked after the rank's last backward until all its gradients are
     * summed, be it for bytes or for replicas that are not there yet. */
    double exposed_comm_s;
    int64_t peak_bytes; /* largest reservation of a rank */
    bool stopping;      /* a rank was asked to stop: this is the last step */
} crl_step_report;

typedef struct crl_evaluation_report {
    int64_t step;
    double loss, accuracy; /* accuracy 0..1 of rows that count */
    double samples, tokens, seconds;
} crl_evaluation_report;

/* The run as it starts. */
typedef struct crl_run_report {
    const crl_layout *layout;
    int ranks, threads;
    const char *transport;
    int64_t parameters, first_step, steps, steps_per_epoch, train_samples, validation_samples;
    int64_t peak_bytes;
    const char *resumed_from; /* NULL: fresh */
} crl_run_report;

/* Called on rank 0, in its thread. Any may be NULL. */
typedef struct crl_run_events {
    void *context;
    void (*started)(void *context, const crl_run_report *report);
    void (*stepped)(void *context, const crl_step_report *report);
    void (*evaluated)(void *context, const crl_evaluation_report *report);
    void (*saved)(void *context, int64_t step, const char *path);
    /* Asked by every rank, in its own thread, once a step: true on any of them makes the step the
     * last one; a checkpoint is saved. */
    bool (*stop)(void *context);
    crl_log log; /* what a user may want to know beside the numbers */
} crl_run_events;

typedef struct crl_run_result {
    int64_t steps;                    /* the last step made */
    bool stopped;                     /* before the last one of the settings, as asked */
    double loss;                      /* of it */
    uint64_t parameter_hash;          /* FNV-1a over all parameters' bits in graph order */
    crl_evaluation_report evaluation; /* the last one; step -1: none */
    int64_t reserved_bytes;           /* measured: rank 0's reservation */
    int64_t late_allocations; /* made by any rank after the first step's end, by rank threads */
    int64_t late_primitives;
    int64_t rollbacks; /* updates taken back since the run began: optimizer.validate=after */
    int64_t skipped;   /* steps that overflowed, earlier runs' included: precision f16 */
    double loss_scale; /* after the last step */
} crl_run_result;

/*
 * Trains as the settings say: launches the transport's ranks, resumes, steps, evaluates, saves.
 * With the mpi transport every process calls it. `registries` as for crl_settings_load.
 * Fails with the message of the rank that failed first.
 */
CRL_NODISCARD crl_status crl_train(crl_run_result *out, const crl_settings *settings,
                                   const crl_registries *registries, const crl_run_events *events);

/* The validation set's loss and accuracy under a checkpoint (a run directory or a checkpoint). */
CRL_NODISCARD crl_status crl_evaluate(crl_evaluation_report *out, const crl_settings *settings,
                                      const crl_registries *registries, const char *checkpoint);

typedef struct crl_generate_config {
    const char *checkpoint;
    const int32_t *prompt; /* tokens; lent */
    int64_t prompt_count;
    int64_t count;      /* tokens to make */
    double temperature; /* 0: the likeliest */
    int64_t top_k;      /* 0: all */
    int64_t seed;
    void *context;
    /* Each token as it is made; false stops. */
    bool (*token)(void *context, int32_t token);
} crl_generate_config;

/* Continues a prompt with a language model (one whose loss layer's first input is (B,T,V) and that
 * reads one i32 (B,T) field beside the targets). Runs on one rank whatever the layout says. */
CRL_NODISCARD crl_status crl_generate(const crl_settings *settings,
                                      const crl_registries *registries,
                                      const crl_generate_config *config);

#ifdef __cplusplus
}
#endif
