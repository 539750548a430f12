/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Brings the fields a rank needs of the micro-batches it runs into memory, one step ahead, in a
 * background thread with two buffers. Partial micro-batches are padded with zero samples.
 */
#pragma once

#include "engine/device/device.h"
#include "engine/run/dataset.h"
#include "engine/run/sampler.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct crl_loader crl_loader;

typedef struct crl_loader_config {
    const crl_dataset_format *format;
    const crl_dataset *dataset; /* lent */
    const crl_device *device;   /* that copies the data; NULL: the CPU */
    crl_sampler_config sampler;
    int64_t micro_batch;                     /* samples of a micro-batch */
    int first_micro_batch, last_micro_batch; /* of the step: [first, last) are this rank's */
    int fields;
    int field[CRL_DATASET_MAX_FIELDS]; /* which fields of the dataset to read */
    int64_t first_step, last_step;     /* steps to be asked for: [first, last), in order */
} crl_loader_config;

/* The data of one step; lent until the next crl_loader_next. */
typedef struct crl_loader_step {
    int64_t samples; /* valid ones in the whole global batch */
    /* Field f (by config index) of micro-batch m is at data[f] + (m - first)·micro_batch·bytes. */
    const void *data[CRL_DATASET_MAX_FIELDS];
} crl_loader_step;

/* Starts the thread, which begins with the first step at once. NOMEM, INVALID. */
CRL_NODISCARD crl_status crl_loader_create(crl_loader **out, const crl_loader_config *config);
/* At any time: waits for the read that is under way. NULL is fine. */
void crl_loader_destroy(crl_loader *loader);
/* Blocks until the next step's data is there. A read error appears here. No allocation. */
CRL_NODISCARD crl_status crl_loader_next(crl_loader *loader, crl_loader_step *out);
/* Valid samples of micro-batch m, given the step's number of samples. */
int64_t crl_loader_valid_samples(int64_t samples, int64_t micro_batch, int m);

#ifdef __cplusplus
}
#endif
