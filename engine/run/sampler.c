/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Which samples a step trains on. Epoch e is the permutation of the stream (seed, shuffle, e), so
 * any step can be asked for at any time. Refuses to know ranks, lanes or micro-batches.
 */
#include "engine/run/sampler.h"

#include <inttypes.h>

#include "engine/base/alloc.h"
#include "engine/base/rng.h"

/* A stream has 2^34 words and a place takes two of them. */
static const int64_t largest_permutation = INT64_C(1) << 33;

struct crl_sampler {
    crl_sampler_config config;
    int64_t steps_per_epoch;
    int64_t epoch; /* whose permutation `id` holds; -1: none */
    int64_t *id;   /* (samples) when shuffled, else (global_batch) */
};

static crl_status check_config(const crl_sampler_config *config) {
    if (config->samples < 1) {
        return CRL_FAIL(INVALID, "sampler: %" PRId64 " samples, expected at least 1",
                        config->samples);
    }
    if (config->global_batch < 1) {
        return CRL_FAIL(INVALID, "sampler: global batch is %" PRId64 ", expected at least 1",
                        config->global_batch);
    }
    if (config->shuffle && config->samples > largest_permutation) {
        return CRL_FAIL(INVALID,
                        "sampler: %" PRId64 " samples, expected at most %" PRId64 " to shuffle",
                        config->samples, largest_permutation);
    }
    return CRL_STATUS_OK;
}

crl_status crl_sampler_create(crl_sampler **out, const crl_sampler_config *config) {
    crl_status status;
    crl_sampler *sampler = NULL;
    CRL_TRY(check_config(config));
    CRL_TRY(crl_alloc(&sampler, 1, sizeof *sampler));
    const int64_t samples = config->samples;
    const int64_t batch = config->global_batch < samples ? config->global_batch : samples;
    sampler->config = *config;
    sampler->config.global_batch = batch;
    sampler->steps_per_epoch = samples / batch + (samples % batch != 0 ? 1 : 0);
    sampler->epoch = -1;
    CRL_TRY_OUT(
        crl_alloc(&sampler->id, (size_t)(config->shuffle ? samples : batch), sizeof *sampler->id));
    *out = sampler;
    sampler = NULL;
out:
    crl_sampler_destroy(sampler);
    return status;
}

void crl_sampler_destroy(crl_sampler *sampler) {
    if (sampler) {
        crl_free(sampler->id);
        crl_free(sampler);
    }
}

int64_t crl_sampler_steps_per_epoch(const crl_sampler *sampler) {
    return sampler->steps_per_epoch;
}

static void shuffle_epoch(crl_sampler *sampler, int64_t epoch) {
    if (sampler->epoch == epoch) {
        return;
    }
    const crl_rng rng = {.seed = sampler->config.seed,
                         .purpose = CRL_RNG_SHUFFLE,
                         .step = (uint32_t)epoch,
                         .sample = (uint32_t)(epoch >> 32)};
    crl_rng_permutation(&rng, sampler->id, sampler->config.samples);
    sampler->epoch = epoch;
}

void crl_sampler_get(crl_sampler *sampler, int64_t step, const int64_t **out_ids,
                     int64_t *out_count) {
    CRL_ASSERT(step >= 0);
    const crl_sampler_config *config = &sampler->config;
    const int64_t first = step % sampler->steps_per_epoch * config->global_batch;
    const int64_t left = config->samples - first;
    *out_count = left < config->global_batch ? left : config->global_batch;
    if (config->shuffle) {
        shuffle_epoch(sampler, step / sampler->steps_per_epoch);
        *out_ids = sampler->id + first;
        return;
    }
    for (int64_t i = 0; i < *out_count; ++i) {
        sampler->id[i] = first + i;
    }
    *out_ids = sampler->id;
}
