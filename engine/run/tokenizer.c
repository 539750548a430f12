/* SPDX-License-Identifier: Apache-2.0 */
/* The registry of tokenizers, and tokens as a file. Refuses to write tokens u16 cannot hold. */
#include "engine/run/tokenizer.h"

#include <endian.h>
#include <inttypes.h>
#include <string.h>

#include "engine/base/alloc.h"
#include "engine/base/file.h"

enum { MAGIC = 20240520, VERSION = 1, HEADER_BYTES = 1024 };

const void *const crl_tokenizers[] = {
#define CRL_TOKENIZER(name) &crl_tokenizer_##name,
#include "engine/run/tokenizers.def"
#undef CRL_TOKENIZER
    NULL,
};

static void put_word(char *content, int index, uint32_t value) {
    const uint32_t word = htole32(value);
    memcpy(content + 4 * index, &word, sizeof word);
}

static crl_status put_tokens(char *out, const int32_t *tokens, size_t count, const char *path) {
    for (size_t i = 0; i < count; ++i) {
        if (tokens[i] < 0 || tokens[i] > UINT16_MAX) {
            return CRL_FAIL(INVALID, "%s: token %zu is %" PRId32 ", expected 0 to %d", path, i,
                            tokens[i], UINT16_MAX);
        }
        const uint16_t token = htole16((uint16_t)tokens[i]);
        memcpy(out + 2 * i, &token, sizeof token);
    }
    return CRL_STATUS_OK;
}

crl_status crl_tokens_write(const char *path, const int32_t *tokens, size_t count) {
    crl_status status;
    char *content = NULL;
    if (count < 1 || count > INT32_MAX) {
        return CRL_FAIL(INVALID, "%s: %zu tokens to write, expected 1 to %d", path, count,
                        INT32_MAX);
    }
    const size_t bytes = HEADER_BYTES + 2 * count;
    CRL_TRY(crl_alloc(&content, bytes, 1));
    put_word(content, 0, MAGIC);
    put_word(content, 1, VERSION);
    put_word(content, 2, (uint32_t)count);
    CRL_TRY_OUT(put_tokens(content + HEADER_BYTES, tokens, count, path));
    CRL_TRY_OUT(crl_file_write_atomic(path, content, bytes));
out:
    crl_free(content);
    return status;
}
