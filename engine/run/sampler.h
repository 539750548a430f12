/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Which samples a step trains on: a function of (seed, step) alone, so a resume position is a step
 * number. An epoch is a permutation of all samples cut into global batches; its last batch may be
 * partial and is never mixed with the next epoch's.
 */
#pragma once

#include <stdint.h>

#include "engine/base/status.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct crl_sampler crl_sampler;

typedef struct crl_sampler_config {
    int64_t samples;      /* in the dataset, at least 1 */
    int64_t global_batch; /* samples of a step */
    uint64_t seed;
    bool shuffle; /* false: in order (validation) */
} crl_sampler_config;

/* INVALID, NOMEM. */
CRL_NODISCARD crl_status crl_sampler_create(crl_sampler **out, const crl_sampler_config *config);
/* NULL is fine. */
void crl_sampler_destroy(crl_sampler *sampler);
/* Global batches of an epoch, the last of which may be partial. */
int64_t crl_sampler_steps_per_epoch(const crl_sampler *sampler);
/* Samples of step 0, 1, ...: lends `*out_ids` (valid until the next call) and their number,
 * 1..global_batch. No allocation. */
void crl_sampler_get(crl_sampler *sampler, int64_t step, const int64_t **out_ids,
                     int64_t *out_count);

#ifdef __cplusplus
}
#endif
