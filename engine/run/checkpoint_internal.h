/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Names and places of checkpoints inside a run:
 *
 *      <run>/checkpoints/step-00000100        complete
 *                        .tmp-step-00000100   being written, or left by a writer that died
 *                        .old-step-00000100   set aside while the same step is replaced
 *                        latest               text: the name of the last one written
 */
#pragma once

#include "engine/run/checkpoint.h"

#ifdef __cplusplus
extern "C" {
#endif

enum { CRL_CHECKPOINT_PATH_BYTES = 4096 };

/* The paths of one save. */
typedef struct crl_checkpoint_place {
    char folder[CRL_CHECKPOINT_PATH_BYTES]; /* <run>/checkpoints */
    char temporary[CRL_CHECKPOINT_PATH_BYTES];
    char set_aside[CRL_CHECKPOINT_PATH_BYTES];
    char path[CRL_CHECKPOINT_PATH_BYTES];
    char name[64]; /* step-00000100 */
    int64_t step;
} crl_checkpoint_place;

/* INVALID when a path does not fit. */
CRL_NODISCARD crl_status crl_checkpoint_place_make(crl_checkpoint_place *out, const char *run,
                                                   int64_t step);
/* <a>/<b> into `out` (CRL_CHECKPOINT_PATH_BYTES). */
CRL_NODISCARD crl_status crl_checkpoint_join(char *out, const char *a, const char *b);
/* Tensor bytes as the host can read them: `data` itself, or a copy in `piece` (NULL on the host).
 */
CRL_NODISCARD crl_status crl_checkpoint_fetch(const void **out,
                                              const crl_checkpoint_content *content,
                                              const void *data, size_t bytes, void *piece);
/* Are the tensors in the host's memory? */
bool crl_checkpoint_on_host(const crl_checkpoint_content *content);
/* Makes the folder and an empty temporary directory; removes what dead writers left. */
CRL_NODISCARD crl_status crl_checkpoint_begin(const crl_checkpoint_place *place);
/* Moves the complete temporary directory to its name, replacing one of the same step. */
CRL_NODISCARD crl_status crl_checkpoint_publish(const crl_checkpoint_place *place);
/* Names it in `latest` and removes all but the `keep` newest (0: keep all). */
CRL_NODISCARD crl_status crl_checkpoint_retire(const crl_checkpoint_place *place, int keep);

#ifdef __cplusplus
}
#endif
