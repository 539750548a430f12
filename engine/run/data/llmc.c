/* SPDX-License-Identifier: Apache-2.0 */
/*
 * llm.c token shards [llmc]: int32[256] header, then the tokens, all little-endian.
 *
 *     header[0]   20240520            20240801
 *     header[1]   1                   7
 *     header[2]   number of tokens    number of tokens
 *     tokens      u16                 u32
 *
 * Refuses a file that is not exactly as long as its header says.
 */
#include <endian.h>
#include <inttypes.h>
#include <string.h>

#include "engine/run/data/token_files_internal.h"

enum { HEADER_WORDS = 256, HEADER_BYTES = HEADER_WORDS * 4 };

typedef struct variant {
    int32_t magic, version;
    int token_bytes;
} variant;

static const variant variants[] = {{20240520, 1, 2}, {20240801, 7, 4}};

static int32_t word_at(const unsigned char *head, int index) {
    uint32_t word;
    memcpy(&word, head + 4 * index, sizeof word);
    return (int32_t)le32toh(word);
}

static const variant *find_variant(int32_t magic) {
    for (size_t i = 0; i < sizeof variants / sizeof *variants; ++i) {
        if (variants[i].magic == magic) {
            return &variants[i];
        }
    }
    return NULL;
}

static bool recognise(const char *path, const unsigned char *head, size_t head_bytes) {
    (void)path;
    return head_bytes >= 4 && find_variant(word_at(head, 0));
}

static crl_status layout(crl_token_shard *shard, int fd) {
    unsigned char head[12];
    const int64_t file_bytes = shard->facts.st_size;
    if (file_bytes < HEADER_BYTES) {
        return CRL_FAIL(INVALID, "%s: %" PRId64 " bytes, expected a header of %d bytes",
                        shard->path, file_bytes, HEADER_BYTES);
    }
    CRL_TRY(crl_file_read_at(fd, shard->path, head, sizeof head, 0));
    const variant *kind = find_variant(word_at(head, 0));
    if (!kind) {
        return CRL_FAIL(INVALID,
                        "%s: magic number is %" PRId32 ", expected %" PRId32 " or %" PRId32,
                        shard->path, word_at(head, 0), variants[0].magic, variants[1].magic);
    }
    if (word_at(head, 1) != kind->version) {
        return CRL_FAIL(INVALID, "%s: version is %" PRId32 ", expected %" PRId32, shard->path,
                        word_at(head, 1), kind->version);
    }
    const int64_t tokens = word_at(head, 2);
    if (tokens < 1) {
        return CRL_FAIL(INVALID, "%s: header counts %" PRId64 " tokens, expected at least 1",
                        shard->path, tokens);
    }
    const int64_t expected_bytes = HEADER_BYTES + tokens * kind->token_bytes;
    if (file_bytes != expected_bytes) {
        return CRL_FAIL(INVALID,
                        "%s: %" PRId64 " bytes, expected %" PRId64 " for the %" PRId64
                        " tokens of its header",
                        shard->path, file_bytes, expected_bytes, tokens);
    }
    shard->header_bytes = HEADER_BYTES;
    shard->token_bytes = kind->token_bytes;
    shard->tokens = tokens;
    return CRL_STATUS_OK;
}

static crl_status open_llmc(crl_dataset **out, const crl_dataset_config *config) {
    return crl_token_files_open(out, config, layout);
}

const crl_dataset_format crl_dataset_llmc = {
    .name = "llmc",
    .help = "llm.c token shards (magic 20240520 or 20240801)",
    .recognise = recognise,
    .open = open_llmc,
    .close = crl_token_files_close,
    .count = crl_token_files_count,
    .fields = crl_token_files_fields,
    .read = crl_token_files_read,
    .check = crl_token_files_check,
};
