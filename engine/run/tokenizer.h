/* SPDX-License-Identifier: Apache-2.0 */
/* Text to tokens and back. */
#pragma once

#include <stdint.h>

#include "engine/base/status.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct crl_tokenizer crl_tokenizer; /* an open one, of any kind */

typedef struct crl_tokenizer_kind {
    const char *name; /* "bytes", "gpt2" */
    const char *help;
    /* `path`: the rank file (gpt2: tiktoken format, `base64 rank` lines); NULL where none is
     * needed. */
    crl_status (*open)(crl_tokenizer **out, const char *path);
    void (*close)(crl_tokenizer *tokenizer);
    int64_t (*vocabulary)(const crl_tokenizer *tokenizer);
    /* *out is owned by the caller (crl_free). */
    crl_status (*encode)(const crl_tokenizer *tokenizer, const char *text, size_t bytes,
                         int32_t **out, size_t *out_count);
    /* Bytes of one token: lent. NOT_FOUND for one outside the vocabulary. */
    crl_status (*decode)(const crl_tokenizer *tokenizer, int32_t token, const char **out,
                         size_t *out_bytes);
} crl_tokenizer_kind;

extern const crl_tokenizer_kind crl_tokenizer_bytes;
extern const crl_tokenizer_kind crl_tokenizer_gpt2;
extern const void *const crl_tokenizers[]; /* NULL-terminated registry */

/* Writes tokens as an llm.c shard (magic 20240520, version 1, u16), atomically. INVALID when a
 * token is above 65535. */
CRL_NODISCARD crl_status crl_tokens_write(const char *path, const int32_t *tokens, size_t count);

#ifdef __cplusplus
}
#endif
