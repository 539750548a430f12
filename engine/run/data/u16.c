/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Raw little-endian u16 tokens without any header, as nanoGPT [nanogpt] writes them. Refuses odd
 * sizes; nothing else of such a file can be checked without knowing the vocabulary.
 */
#include <inttypes.h>
#include <string.h>

#include "engine/run/data/token_files_internal.h"

/* With no header to look at, the name decides; a .bin of llm.c begins with its magic number. */
static bool recognise(const char *path, const unsigned char *head, size_t head_bytes) {
    static const unsigned char llmc[2][4] = {{0x88, 0xd8, 0x34, 0x01}, {0xa1, 0xd9, 0x34, 0x01}};
    if (!crl_file_name_ends(path, ".bin")) {
        return false;
    }
    return head_bytes < 4 || (memcmp(head, llmc[0], 4) != 0 && memcmp(head, llmc[1], 4) != 0);
}

static crl_status layout(crl_token_shard *shard, int fd) {
    (void)fd;
    if (shard->facts.st_size % 2 != 0) {
        return CRL_FAIL(INVALID, "%s: %" PRId64 " bytes, expected an even number for u16 tokens",
                        shard->path, (int64_t)shard->facts.st_size);
    }
    shard->header_bytes = 0;
    shard->token_bytes = 2;
    shard->tokens = shard->facts.st_size / 2;
    return CRL_STATUS_OK;
}

static crl_status open_u16(crl_dataset **out, const crl_dataset_config *config) {
    return crl_token_files_open(out, config, layout);
}

const crl_dataset_format crl_dataset_u16 = {
    .name = "u16",
    .help = "raw u16 tokens (nanoGPT .bin)",
    .recognise = recognise,
    .open = open_u16,
    .close = crl_token_files_close,
    .count = crl_token_files_count,
    .fields = crl_token_files_fields,
    .read = crl_token_files_read,
    .check = crl_token_files_check,
};
