/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Windows of token shards, read with pread as they are asked for. Refuses to load a shard whole,
 * and to go on with a file that changed after it was opened.
 *
 * No descriptor stays open: a thousand shards times several ranks in one process would pass the
 * usual limit of 1024, and opening again costs microseconds per sample.
 */
#include "engine/run/data/token_files_internal.h"

#include <endian.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "engine/base/alloc.h"

enum { FIELD_TOKENS, FIELD_TARGETS, FIELDS };
enum { CHECK_TOKENS = 1 << 16 }; /* read at a time by check */

static crl_status open_shard(crl_token_shard *shard, const char *path, crl_token_layout_fn layout) {
    int fd;
    CRL_TRY(crl_alloc_text(&shard->path, path));
    CRL_TRY(crl_file_open(&fd, &shard->facts, path));
    crl_status status = shard->facts.st_size == 0
                            ? CRL_FAIL(INVALID, "%s: is empty, expected tokens", path)
                            : layout(shard, fd);
    close(fd);
    return status;
}

static void describe_fields(crl_dataset *dataset) {
    const crl_tensor_spec spec = {CRL_DTYPE_I32, CRL_SHAPE(dataset->context)};
    dataset->field[FIELD_TOKENS] = (crl_field){"tokens", spec};
    dataset->field[FIELD_TARGETS] = (crl_field){"targets", spec};
}

static crl_status require_samples(const crl_dataset *dataset) {
    int64_t longest = 0;
    for (int i = 0; i < dataset->shards; ++i) {
        longest = dataset->shard[i].tokens > longest ? dataset->shard[i].tokens : longest;
    }
    if (dataset->samples == 0) {
        return CRL_FAIL(INVALID,
                        "%s: %s%" PRId64 " tokens, expected at least %" PRId64
                        " for one sample of context %" PRId64,
                        dataset->shard[0].path, dataset->shards > 1 ? "longest shard has " : "",
                        longest, dataset->context + 1, dataset->context);
    }
    return CRL_STATUS_OK;
}

static crl_status check_config(const crl_dataset_config *config) {
    if (config->path.count < 1) {
        return CRL_FAIL(INVALID, "dataset: no token files given, expected at least 1");
    }
    if (config->context < 1 || config->context > INT32_MAX) {
        return CRL_FAIL(INVALID, "dataset: context is %" PRId64 ", expected 1 to %d",
                        config->context, INT32_MAX);
    }
    return CRL_STATUS_OK;
}

crl_status crl_token_files_open(crl_dataset **out, const crl_dataset_config *config,
                                crl_token_layout_fn layout) {
    crl_status status;
    crl_dataset *dataset = NULL;
    CRL_TRY(check_config(config));
    CRL_TRY(crl_alloc(&dataset, 1, sizeof *dataset));
    CRL_TRY_OUT(crl_alloc(&dataset->shard, (size_t)config->path.count, sizeof *dataset->shard));
    dataset->shards = config->path.count;
    dataset->context = config->context;
    for (int i = 0; i < dataset->shards; ++i) {
        crl_token_shard *shard = &dataset->shard[i];
        CRL_TRY_OUT(open_shard(shard, config->path.item[i], layout));
        shard->first_sample = dataset->samples;
        /* A file's tokens are fewer than its bytes, so the sum of all shards cannot overflow. */
        dataset->samples += shard->tokens > 0 ? (shard->tokens - 1) / dataset->context : 0;
    }
    CRL_TRY_OUT(require_samples(dataset));
    describe_fields(dataset);
    *out = dataset;
    dataset = NULL;
out:
    crl_token_files_close(dataset);
    return status;
}

void crl_token_files_close(crl_dataset *dataset) {
    if (!dataset) {
        return;
    }
    for (int i = 0; i < dataset->shards; ++i) {
        crl_free(dataset->shard[i].path);
    }
    crl_free(dataset->shard);
    crl_free(dataset);
}

int64_t crl_token_files_count(const crl_dataset *dataset) {
    return dataset->samples;
}

int crl_token_files_fields(const crl_dataset *dataset, const crl_field **out) {
    *out = dataset->field;
    return FIELDS;
}

/* The last shard whose first sample is not after `sample`: shards without samples are passed over.
 */
static const crl_token_shard *find_shard(const crl_dataset *dataset, int64_t sample) {
    int low = 0, high = dataset->shards;
    while (high - low > 1) {
        const int middle = low + (high - low) / 2;
        if (dataset->shard[middle].first_sample <= sample) {
            low = middle;
        } else {
            high = middle;
        }
    }
    return &dataset->shard[low];
}

static bool same_file(const struct stat *a, const struct stat *b) {
    return a->st_dev == b->st_dev && a->st_ino == b->st_ino && a->st_size == b->st_size &&
           a->st_mtim.tv_sec == b->st_mtim.tv_sec && a->st_mtim.tv_nsec == b->st_mtim.tv_nsec;
}

static crl_status reopen(int *out_fd, const crl_token_shard *shard) {
    struct stat facts;
    int fd;
    CRL_TRY(crl_file_open(&fd, &facts, shard->path));
    if (!same_file(&facts, &shard->facts)) {
        close(fd);
        return CRL_FAIL(IO, "%s: changed since it was opened", shard->path);
    }
    *out_fd = fd;
    return CRL_STATUS_OK;
}

/* In place: the u16 lie in the second half of `out`, so widening from the front never overtakes. */
static void widen(int32_t *out, int64_t n) {
    const unsigned char *narrow = (const unsigned char *)out + 2 * (size_t)n;
    for (int64_t i = 0; i < n; ++i) {
        uint16_t token;
        memcpy(&token, narrow + 2 * i, sizeof token);
        out[i] = le16toh(token);
    }
}

static crl_status check_positive(const crl_token_shard *shard, int64_t first, int64_t n,
                                 int32_t *out) {
    for (int64_t i = 0; i < n; ++i) {
        out[i] = (int32_t)le32toh((uint32_t)out[i]);
        if (out[i] < 0) {
            return CRL_FAIL(INVALID, "%s: token %" PRId64 " is %" PRIu32 ", expected at most %d",
                            shard->path, first + i, (uint32_t)out[i], INT32_MAX);
        }
    }
    return CRL_STATUS_OK;
}

/* Tokens [first, first + n) of a shard. */
static crl_status read_tokens(const crl_token_shard *shard, int fd, int64_t first, int64_t n,
                              int32_t *out) {
    const size_t bytes = (size_t)n * (size_t)shard->token_bytes;
    const int64_t offset = shard->header_bytes + first * shard->token_bytes;
    char *target = (char *)out + ((size_t)n * sizeof *out - bytes);
    CRL_TRY(crl_file_read_at(fd, shard->path, target, bytes, offset));
    if (shard->token_bytes == 2) {
        widen(out, n);
        return CRL_STATUS_OK;
    }
    return check_positive(shard, first, n, out);
}

static crl_status read_sample(const crl_dataset *dataset, int field, int64_t sample,
                              int32_t *out /* (T) */) {
    if (sample < 0 || sample >= dataset->samples) {
        return CRL_FAIL(INVALID, "%s: sample %" PRId64 " asked for, expected 0 to %" PRId64,
                        dataset->shard[0].path, sample, dataset->samples - 1);
    }
    const crl_token_shard *shard = find_shard(dataset, sample);
    const int64_t first = (sample - shard->first_sample) * dataset->context;
    int fd;
    CRL_TRY(reopen(&fd, shard));
    const crl_status status =
        read_tokens(shard, fd, first + (field == FIELD_TARGETS ? 1 : 0), dataset->context, out);
    close(fd);
    return status;
}

crl_status crl_token_files_read(const crl_dataset *dataset, int field, const int64_t *sample,
                                int64_t n, void *out) {
    CRL_ASSERT(field == FIELD_TOKENS || field == FIELD_TARGETS);
    int32_t *x = out; /* (n,T) */
    for (int64_t i = 0; i < n; ++i) {
        CRL_TRY(read_sample(dataset, field, sample[i], x + i * dataset->context));
    }
    return CRL_STATUS_OK;
}

static crl_status check_shard(const crl_token_shard *shard, int64_t vocabulary, int32_t *buffer,
                              int32_t *largest) {
    int fd;
    crl_status status = CRL_STATUS_OK;
    CRL_TRY(reopen(&fd, shard));
    for (int64_t first = 0; first < shard->tokens; first += CHECK_TOKENS) {
        const int64_t left = shard->tokens - first;
        const int64_t n = left < CHECK_TOKENS ? left : CHECK_TOKENS;
        CRL_TRY_OUT(read_tokens(shard, fd, first, n, buffer));
        for (int64_t i = 0; i < n; ++i) {
            *largest = buffer[i] > *largest ? buffer[i] : *largest;
            if (vocabulary > 0 && buffer[i] >= vocabulary) {
                status = CRL_FAIL(INVALID,
                                  "%s: token %" PRId64 " is %" PRId32 ", expected below %" PRId64,
                                  shard->path, first + i, buffer[i], vocabulary);
                goto out;
            }
        }
    }
out:
    close(fd);
    return status;
}

crl_status crl_token_files_check(const crl_dataset *dataset, int64_t vocabulary, char *report,
                                 size_t report_bytes) {
    crl_status status = CRL_STATUS_OK;
    int32_t *buffer = NULL, largest = 0;
    int64_t tokens = 0;
    CRL_TRY(crl_alloc(&buffer, CHECK_TOKENS, sizeof *buffer));
    for (int i = 0; i < dataset->shards; ++i) {
        CRL_TRY_OUT(check_shard(&dataset->shard[i], vocabulary, buffer, &largest));
        tokens += dataset->shard[i].tokens;
    }
    snprintf(report, report_bytes,
             "%d file%s, %" PRId64 " tokens, %" PRId64 " samples of context %" PRId64
             ", largest token %" PRId32,
             dataset->shards, dataset->shards == 1 ? "" : "s", tokens, dataset->samples,
             dataset->context, largest);
out:
    crl_free(buffer);
    return status;
}
