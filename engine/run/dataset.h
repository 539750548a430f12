/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Dataset contract: samples by number. A reader never decides the order (sampler.h does) and never
 * knows ranks or micro-batches (loader.h does).
 */
#pragma once

#include "engine/base/option.h"
#include "engine/tensor/tensor.h"

#ifdef __cplusplus
extern "C" {
#endif

enum { CRL_DATASET_MAX_FIELDS = 4 };

/* One tensor of every sample; shapes without the batch dimension. */
typedef struct crl_field {
    const char *name; /* "tokens", "targets", "images", "labels" */
    crl_tensor_spec spec;
} crl_field;

typedef struct crl_dataset_config {
    crl_text_list
        path;        /* files; a dataset may need several (images, labels) or take many (shards) */
    int64_t context; /* tokens: T of a sample; 0 elsewhere */
} crl_dataset_config;

typedef struct crl_dataset crl_dataset; /* an open one, of any format */

typedef struct crl_dataset_format {
    const char *name; /* "llmc", "u16", "idx" */
    const char *help;
    /* Looks at the beginning of the first file: is it one of these? */
    bool (*recognise)(const char *path, const unsigned char *head, size_t head_bytes);
    crl_status (*open)(crl_dataset **out, const crl_dataset_config *config);
    void (*close)(crl_dataset *dataset);
    int64_t (*count)(const crl_dataset *dataset); /* samples */
    int (*fields)(const crl_dataset *dataset, const crl_field **out);
    /* Reads `field` of n samples into `out`, one after the other. No allocation. Thread-safe. */
    crl_status (*read)(const crl_dataset *dataset, int field, const int64_t *sample, int64_t n,
                       void *out);
    /* Reads everything once and checks it (token range, label range): for `carole data check`.
     * `report` gets one line of facts. vocabulary 0: unknown. */
    crl_status (*check)(const crl_dataset *dataset, int64_t vocabulary, char *report,
                        size_t report_bytes);
} crl_dataset_format;

/* Finds the format called `name` in the registry, or, for "auto", the one that recognises the first
 * file. NOT_FOUND, INVALID. */
CRL_NODISCARD crl_status crl_dataset_format_find(const crl_dataset_format **out,
                                                 const void *const *formats, const char *name,
                                                 const crl_dataset_config *config);

#ifdef __cplusplus
}
#endif
