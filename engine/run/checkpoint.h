/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Checkpoints that know no layout. A checkpoint is the directory <run>/checkpoints/step-00000100:
 *   model.safetensors       parameters by their names in the layer graph
 *   optimizer.safetensors   "<parameter>.<state>"
 *   state.json              step, seed, batch sizes, lanes, model and its options, optimizer,
 *                           format version
 * It is written under a temporary name, synced, and renamed: it is there whole or not at all. Rank
 * 0 writes; the others send it what they hold, a bounded piece at a time. Which one to resume from
 * is rank 0's choice too (run_internal.h); its tensors everyone reads for itself.
 */
#pragma once

#include <jansson.h>

#include "engine/comm/comm.h"
#include "engine/device/device.h"
#include "engine/tensor/tensor.h"

#ifdef __cplusplus
extern "C" {
#endif

/* One tensor of the whole model, in the same order on all ranks. */
typedef struct crl_checkpoint_tensor {
    const char *name;
    crl_shape shape; /* f32 */
    float *data;     /* this rank's copy, on the content's device, or NULL */
    int owner;       /* the rank that sends it to rank 0 when saving */
} crl_checkpoint_tensor;

typedef struct crl_checkpoint_content {
    const crl_checkpoint_tensor *param;
    int params;
    const crl_checkpoint_tensor *state; /* of the optimizer; may be none */
    int states;
    json_t *facts;            /* state.json; lent. Saving: rank 0's is written */
    const crl_device *device; /* whose memory the tensors lie in; NULL: the host's */
    crl_stream *stream;       /* on which they were written, or will be read */
} crl_checkpoint_content;

/* Collective: all ranks. After it, <run>/checkpoints/latest names the new one, and all but the
 * `keep` newest are removed (0: keep all). `path` receives where it is (rank 0's answer on all).
 * A step higher than `step` is from an earlier life of the run and so older, whatever its number.
 * The failure of rank 0 (IO, ...) is returned on all ranks, with its message; nothing of the new
 * checkpoint is then left, and the job can go on. */
CRL_NODISCARD crl_status crl_checkpoint_save(crl_comm *comm, const char *run, int64_t step,
                                             int keep, const crl_checkpoint_content *content,
                                             char *path, size_t path_bytes);
/* The directory to resume from: `path` itself when it is a checkpoint, else the newest complete one
 * of the run directory `path`. NOT_FOUND: there is none at all. INVALID: there are only broken
 * ones, which must not be taken for a fresh start. */
CRL_NODISCARD crl_status crl_checkpoint_find(char *out, size_t out_bytes, const char *path);
/* state.json of a checkpoint; owned by the caller. */
CRL_NODISCARD crl_status crl_checkpoint_facts(json_t **out, const char *path);
/* Fills every tensor whose data is not NULL. Checks all names and shapes, both ways (missing,
 * extra), and that values are finite, before anything is changed. `with_state` false: parameters
 * only. */
CRL_NODISCARD crl_status crl_checkpoint_load(const char *path,
                                             const crl_checkpoint_content *content,
                                             bool with_state);

#ifdef __cplusplus
}
#endif
