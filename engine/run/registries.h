/* SPDX-License-Identifier: Apache-2.0 */
/* The plug-ins a run may choose from, handed in by the caller: engine/run names none of them. */
#pragma once

#ifdef __cplusplus
extern "C" {
#endif

/* Each is a NULL-terminated array of pointers to `const` tables (base/registry.h). The first
 * schedule, partitioner and transport are what a job of one rank in this process uses (generate,
 * measuring costs), whatever the settings say: any that needs no options. */
typedef struct crl_registries {
    const void *const *models;       /* crl_model_def */
    const void *const *layers;       /* crl_layer */
    const void *const *schedules;    /* crl_schedule */
    const void *const *partitioners; /* crl_partitioner */
    const void *const *optimizers;   /* crl_optimizer */
    const void *const *datasets;     /* crl_dataset_format */
    const void *const *transports;   /* crl_transport */
    const void *const *tokenizers;   /* crl_tokenizer_kind */
    const void *const *backends;     /* crl_backend; the first is the host's */
} crl_registries;

#ifdef __cplusplus
}
#endif
