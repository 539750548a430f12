/* SPDX-License-Identifier: Apache-2.0 */
/* What train, evaluate and generate share: a rank with its job, from settings to destruction. */
#pragma once

#include "engine/run/step.h"

typedef struct crl_session {
    const crl_settings *settings;
    const crl_registries *registries;
    crl_comm *comm;
    crl_layout *layout;
    crl_rank *rank;
    crl_stepper stepper;
    int threads;
} crl_session;

/* Sets threads, plans, reserves, and fills the weights: from `checkpoint` ("": random; with_state:
 * and the optimizer state). */
CRL_NODISCARD crl_status crl_session_open(crl_session *session, const crl_settings *settings,
                                          const crl_registries *registries, crl_comm *comm,
                                          bool training);
CRL_NODISCARD crl_status crl_session_load(crl_session *session, const char *checkpoint,
                                          bool with_state);
/* Collective: all ranks. Saves into the settings' run directory. */
CRL_NODISCARD crl_status crl_session_save(crl_session *session, int64_t step, char *path,
                                          size_t path_bytes);
/* Collective: all ranks. One pass over the validation feed. */
CRL_NODISCARD crl_status crl_session_evaluate(crl_session *session, const crl_feed *feed,
                                              int64_t step, crl_evaluation_report *out);
/* After a failure (`failed`) the job is ended first: peers must not write into freed buffers. */
void crl_session_close(crl_session *session, bool failed);

/* Runs `run` on every rank of the settings' transport and layout. */
CRL_NODISCARD crl_status crl_session_launch(const crl_settings *settings,
                                            const crl_registries *registries, int ranks,
                                            crl_comm_rank_fn run, void *argument);

/* The same run on one rank of this process: the first schedule, partitioner and transport of the
 * registries, no cuts. */
void crl_settings_alone(crl_settings *out, const crl_settings *settings,
                        const crl_registries *registries);
