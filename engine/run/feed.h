/* SPDX-License-Identifier: Apache-2.0 */
/* From data files to the executor's fields: opens a dataset, matches its fields with the graph's
 * input nodes by name, and makes loaders for a rank. */
#pragma once

#include "engine/run/loader.h"
#include "engine/run/rank.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct crl_feed {
    const crl_dataset_format *format;
    crl_dataset *dataset;
    int64_t samples;
    int fields;
    int field[CRL_DATASET_MAX_FIELDS]; /* of the dataset, by index of crl_executor_fields */
} crl_feed;

/* Opens `files` for what `executor` reads. INVALID names the input node and what the dataset has.
 */
CRL_NODISCARD crl_status crl_feed_open(crl_feed *feed, const crl_settings *settings,
                                       const crl_registries *registries, const crl_text_list *files,
                                       const crl_graph *graph, const crl_executor *executor);
/* Closes the dataset; a feed that was never opened is fine when zero. */
void crl_feed_close(crl_feed *feed);

/* Which steps, in which order. */
typedef struct crl_feed_range {
    uint64_t seed;
    bool shuffle;
    int64_t micro_batch;
    int micro_batches; /* M of the whole step */
    int64_t global_batch;
    int64_t first_step, last_step;
} crl_feed_range;

/* A loader of this rank's micro-batches of those steps; owned by the caller. NOMEM. */
CRL_NODISCARD crl_status crl_feed_loader(crl_loader **out, const crl_feed *feed,
                                         const crl_rank *rank, const crl_feed_range *range);

#ifdef __cplusplus
}
#endif
