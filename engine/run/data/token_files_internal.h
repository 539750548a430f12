/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What all formats of token files share: files ("shards") of little-endian tokens behind a header.
 * A sample is a window of one shard, T tokens and the T that follow one place later:
 *
 *     tokens   [iT, iT + T)        i = 0 .. (n - 1) / T - 1, for a shard of n tokens
 *     targets  [iT + 1, iT + T + 1)
 *
 * A format adds only where the tokens of a file begin and how many there are.
 */
#pragma once

#include "engine/base/file.h"
#include "engine/run/dataset.h"

typedef struct crl_token_shard {
    char *path;
    struct stat facts;    /* as seen when opened: a file that changes later is refused */
    int64_t header_bytes; /* the tokens begin here */
    int token_bytes;      /* 2 or 4 */
    int64_t tokens;       /* in this shard */
    int64_t first_sample; /* number of its first sample in the dataset */
} crl_token_shard;

struct crl_dataset {
    crl_token_shard *shard;
    int shards;
    int64_t context; /* T */
    int64_t samples;
    crl_field field[2]; /* tokens, targets */
};

/* Fills header_bytes, token_bytes and tokens from the open file. */
typedef crl_status (*crl_token_layout_fn)(crl_token_shard *shard, int fd);

CRL_NODISCARD crl_status crl_token_files_open(crl_dataset **out, const crl_dataset_config *config,
                                              crl_token_layout_fn layout);
void crl_token_files_close(crl_dataset *dataset);
int64_t crl_token_files_count(const crl_dataset *dataset);
int crl_token_files_fields(const crl_dataset *dataset, const crl_field **out);
CRL_NODISCARD crl_status crl_token_files_read(const crl_dataset *dataset, int field,
                                              const int64_t *sample, int64_t n, void *out);
CRL_NODISCARD crl_status crl_token_files_check(const crl_dataset *dataset, int64_t vocabulary,
                                               char *report, size_t report_bytes);
