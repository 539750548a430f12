/* SPDX-License-Identifier: Apache-2.0 */
/* What train, evaluate and generate share: a rank with its job, from settings to destruction. */
#pragma once

#include "engine/run/step.h"

enum { CRL_SESSION_CHANNEL = 2, CRL_CHECKPOINT_FORMAT = 1, CRL_RUN_PATH_BYTES = 4096 };

typedef struct crl_session {
    const crl_settings *settings;
    const crl_registries *registries;
    crl_comm *comm;
    crl_layout *layout;
    crl_rank *rank;
    crl_stream *stream; /* of the device; NULL on the CPU */
    crl_stepper stepper;
    crl_loader *evaluating; /* of an evaluation that failed, until the device is at rest */
    int threads;
    int64_t peak_bytes; /* largest reservation of a rank */
} crl_session;

/* A checkpoint and the facts of it that decide the numbers. */
typedef struct crl_resume_point {
    char path[CRL_RUN_PATH_BYTES]; /* "": none */
    char optimizer[64];
    char precision[8]; /* "f32", "bf16" or "f16" */
    int64_t step, seed, global_batch, micro_batch, lanes;
    double loss_scale; /* f16: 0 in a checkpoint that has none */
    int64_t loss_scale_good, skipped;
} crl_resume_point;

/* Collective: all ranks. Rank 0 looks at `where` (as crl_checkpoint_find), the others get its
 * answer. `optional`: that there is none is an answer, not NOT_FOUND. */
CRL_NODISCARD crl_status crl_resume_find(crl_resume_point *out, crl_comm *comm, const char *where,
                                         bool optional);
/* INVALID when training under these settings would not go on as the checkpoint's run would have. */
CRL_NODISCARD crl_status crl_resume_check(const crl_resume_point *point,
                                          const crl_settings *settings);

/* Chooses device and threads, plans, reserves, and draws the initial weights. */
CRL_NODISCARD crl_status crl_session_open(crl_session *session, const crl_settings *settings,
                                          const crl_registries *registries, crl_comm *comm,
                                          bool training);
/* The weights of a checkpoint; with_state: and the optimizer's state and the loss scale. */
CRL_NODISCARD crl_status crl_session_load(crl_session *session, const crl_resume_point *from,
                                          bool with_state);
/* Collective: all ranks. Saves into the settings' run directory. */
CRL_NODISCARD crl_status crl_session_save(crl_session *session, int64_t step, char *path,
                                          size_t path_bytes);
/* Collective: all ranks. One pass over the validation feed. */
CRL_NODISCARD crl_status crl_session_evaluate(crl_session *session, const crl_feed *feed,
                                              int64_t step, crl_evaluation_report *out);
/* After a failure (`failed`) the job is ended first: peers must not write into freed buffers.
 * Afterwards the device is at rest; before, no loader that it may copy from can be destroyed. */
void crl_session_close(crl_session *session, bool failed);

/* Runs `run` on every rank of the settings' transport and layout. */
CRL_NODISCARD crl_status crl_session_launch(const crl_settings *settings,
                                            const crl_registries *registries, int ranks,
                                            crl_comm_rank_fn run, void *argument);

/* The same run on one rank of this process: the first schedule, partitioner and transport of the
 * registries, no cuts. */
void crl_settings_alone(crl_settings *out, const crl_settings *settings,
                        const crl_registries *registries);
