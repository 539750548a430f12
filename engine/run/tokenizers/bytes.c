/* SPDX-License-Identifier: Apache-2.0 */
/* One token per byte, vocabulary 256. Refuses nothing: any bytes are text to it. */
#include <inttypes.h>

#include "engine/base/alloc.h"
#include "engine/run/tokenizer.h"

enum { VOCABULARY = 256 };

struct crl_tokenizer {
    char byte[VOCABULARY];
};

static crl_status open_bytes(crl_tokenizer **out, const char *path) {
    crl_tokenizer *tokenizer;
    (void)path;
    CRL_TRY(crl_alloc(&tokenizer, 1, sizeof *tokenizer));
    for (int i = 0; i < VOCABULARY; ++i) {
        tokenizer->byte[i] = (char)i;
    }
    *out = tokenizer;
    return CRL_STATUS_OK;
}

static void close_bytes(crl_tokenizer *tokenizer) {
    crl_free(tokenizer);
}

static int64_t vocabulary(const crl_tokenizer *tokenizer) {
    (void)tokenizer;
    return VOCABULARY;
}

static crl_status encode(const crl_tokenizer *tokenizer, const char *text, size_t bytes,
                         int32_t **out, size_t *out_count) {
    int32_t *token;
    (void)tokenizer;
    CRL_TRY(crl_alloc(&token, bytes, sizeof *token));
    for (size_t i = 0; i < bytes; ++i) {
        token[i] = (unsigned char)text[i];
    }
    *out = token;
    *out_count = bytes;
    return CRL_STATUS_OK;
}

static crl_status decode(const crl_tokenizer *tokenizer, int32_t token, const char **out,
                         size_t *out_bytes) {
    if (token < 0 || token >= VOCABULARY) {
        return CRL_FAIL(NOT_FOUND, "tokenizer bytes: token is %" PRId32 ", expected 0 to %d", token,
                        VOCABULARY - 1);
    }
    *out = &tokenizer->byte[token];
    *out_bytes = 1;
    return CRL_STATUS_OK;
}

const crl_tokenizer_kind crl_tokenizer_bytes = {
    .name = "bytes",
    .help = "one token per byte, vocabulary 256",
    .open = open_bytes,
    .close = close_bytes,
    .vocabulary = vocabulary,
    .encode = encode,
    .decode = decode,
};
