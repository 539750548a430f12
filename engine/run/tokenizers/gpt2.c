/* SPDX-License-Identifier: Apache-2.0 */
/*
 * GPT-2's tokenizer [radford19]: text is split into words, numbers, punctuation and blanks by one
 * pattern, each piece is byte-pair encoded. Refuses invalid UTF-8, naming the byte, and never makes
 * the special token: <|endoftext|> in a text is ordinary text.
 */
#define PCRE2_CODE_UNIT_WIDTH 8
#include <inttypes.h>
#include <pcre2.h>
#include <string.h>

#include "engine/base/alloc.h"
#include "engine/run/tokenizer.h"
#include "engine/run/tokenizers/bpe_internal.h"

enum { RANKS = 50256, END_OF_TEXT = 50256, VOCABULARY = 50257 };
enum { CACHE_SLOTS = 1 << 14, CACHED_BYTES = 64 };

static const char end_of_text[] = "<|endoftext|>";

/* White space is spelled out: PCRE2's \s also takes U+180E, which is none to Unicode (or GPT-2). */
#define BLANK "\\p{Z}\\x{9}-\\x{d}\\x{85}"
static const char pattern[] = "'(?:[sdmt]|ll|ve|re)| ?\\p{L}+| ?\\p{N}+| ?[^" BLANK
                              "\\p{L}\\p{N}]+|[" BLANK "]+(?![^" BLANK "])|[" BLANK "]+";

struct crl_tokenizer {
    crl_bpe bpe;
    pcre2_general_context *memory;
    pcre2_code *split;
};

/* A piece met before in this text: where, and where its tokens are in the output. */
typedef struct seen {
    size_t text, token;
    uint32_t bytes, count; /* bytes 0: none */
} seen;

typedef struct encoder {
    const crl_bpe *bpe;
    const char *text;
    size_t bytes;
    int32_t *token;
    size_t count, capacity;
    seen *cache; /* (CACHE_SLOTS) */
    crl_bpe_scratch scratch;
} encoder;

static void *pcre_alloc(PCRE2_SIZE bytes, void *context) {
    void *block = NULL;
    (void)context;
    return crl_alloc(&block, bytes, 1) == CRL_STATUS_OK ? block : NULL;
}

static void pcre_free(void *block, void *context) {
    (void)context;
    crl_free(block);
}

static crl_status compile(crl_tokenizer *tokenizer) {
    int code = 0;
    PCRE2_SIZE at = 0;
    tokenizer->memory = pcre2_general_context_create(pcre_alloc, pcre_free, NULL);
    pcre2_compile_context *context =
        tokenizer->memory ? pcre2_compile_context_create(tokenizer->memory) : NULL;
    if (!context) {
        return CRL_FAIL(NOMEM, "tokenizer gpt2: no memory for its pattern");
    }
    tokenizer->split = pcre2_compile((PCRE2_SPTR)pattern, sizeof pattern - 1,
                                     PCRE2_UTF | PCRE2_UCP | PCRE2_ANCHORED, &code, &at, context);
    pcre2_compile_context_free(context);
    if (!tokenizer->split) {
        return code == PCRE2_ERROR_HEAP_FAILED
                   ? CRL_FAIL(NOMEM, "tokenizer gpt2: no memory for its pattern")
                   : CRL_FAIL(UNSUPPORTED,
                              "tokenizer gpt2: this PCRE2 refuses the pattern at %zu, error %d", at,
                              code);
    }
    /* Where machine code cannot be made, the interpreter finds the same pieces, only slower. */
    (void)pcre2_jit_compile(tokenizer->split, PCRE2_JIT_COMPLETE);
    return CRL_STATUS_OK;
}

static void close_gpt2(crl_tokenizer *tokenizer) {
    if (tokenizer) {
        pcre2_code_free(tokenizer->split);
        pcre2_general_context_free(tokenizer->memory);
        crl_bpe_fini(&tokenizer->bpe);
        crl_free(tokenizer);
    }
}

static crl_status open_gpt2(crl_tokenizer **out, const char *path) {
    crl_status status;
    crl_tokenizer *tokenizer = NULL;
    if (!path || !*path) {
        return CRL_FAIL(INVALID, "tokenizer gpt2: no rank file given, expected a tiktoken file");
    }
    CRL_TRY(crl_alloc(&tokenizer, 1, sizeof *tokenizer));
    CRL_TRY_OUT(crl_bpe_load(&tokenizer->bpe, path, RANKS));
    CRL_TRY_OUT(compile(tokenizer));
    *out = tokenizer;
    tokenizer = NULL;
out:
    close_gpt2(tokenizer);
    return status;
}

static int64_t vocabulary(const crl_tokenizer *tokenizer) {
    (void)tokenizer;
    return VOCABULARY;
}

static crl_status reserve(encoder *encoder, size_t more) {
    const size_t needed = encoder->count + more; /* at most one token per byte of the text */
    if (needed <= encoder->capacity) {
        return CRL_STATUS_OK;
    }
    const size_t capacity = needed > 2 * encoder->capacity ? needed : 2 * encoder->capacity;
    CRL_TRY(crl_realloc(&encoder->token, encoder->capacity, capacity, sizeof *encoder->token));
    encoder->capacity = capacity;
    return CRL_STATUS_OK;
}

static bool same_piece(const encoder *encoder, const seen *entry, size_t begin, size_t bytes) {
    return entry->bytes == bytes &&
           memcmp(encoder->text + entry->text, encoder->text + begin, bytes) == 0;
}

static crl_status encode_piece(encoder *encoder, size_t begin, size_t bytes) {
    const char *piece = encoder->text + begin;
    const uint64_t hash = crl_bpe_hash(piece, bytes);
    const int32_t whole = crl_bpe_find(encoder->bpe, piece, bytes, hash);
    CRL_TRY(reserve(encoder, bytes));
    int32_t *out = encoder->token + encoder->count;
    if (whole >= 0) {
        *out = whole;
        encoder->count += 1;
        return CRL_STATUS_OK;
    }
    seen *entry = &encoder->cache[hash % CACHE_SLOTS];
    if (same_piece(encoder, entry, begin, bytes)) {
        memcpy(out, encoder->token + entry->token, entry->count * sizeof *out);
        encoder->count += entry->count;
        return CRL_STATUS_OK;
    }
    size_t count;
    CRL_TRY(crl_bpe_merge(encoder->bpe, &encoder->scratch, piece, bytes, out, &count));
    if (bytes <= CACHED_BYTES) {
        *entry = (seen){begin, encoder->count, (uint32_t)bytes, (uint32_t)count};
    }
    encoder->count += count;
    return CRL_STATUS_OK;
}

static crl_status match_failed(const encoder *encoder, int code, const pcre2_match_data *match,
                               size_t begin) {
    if (code <= PCRE2_ERROR_UTF8_ERR1 && code >= PCRE2_ERROR_UTF8_ERR21) {
        const size_t at = pcre2_get_startchar((pcre2_match_data *)match);
        return CRL_FAIL(INVALID, "text: byte %zu is 0x%02x, expected valid UTF-8", at,
                        at < encoder->bytes ? (unsigned char)encoder->text[at] : 0u);
    }
    if (code == PCRE2_ERROR_NOMEMORY || code == PCRE2_ERROR_HEAPLIMIT) {
        return CRL_FAIL(NOMEM, "text: no memory to split it at byte %zu", begin);
    }
    return CRL_FAIL(INTERNAL, "text: cannot be split at byte %zu, error %d", begin, code);
}

static crl_status encode_pieces(encoder *encoder, const pcre2_code *split,
                                pcre2_match_data *match) {
    const PCRE2_SIZE *span = pcre2_get_ovector_pointer(match);
    /* The first match checks that all of the text is UTF-8; checking at each would be quadratic. */
    uint32_t options = 0;
    for (size_t begin = 0; begin < encoder->bytes; begin = span[1]) {
        const int code = pcre2_match(split, (PCRE2_SPTR)encoder->text, encoder->bytes, begin,
                                     options, match, NULL);
        if (code < 0) {
            return match_failed(encoder, code, match, begin);
        }
        options = PCRE2_NO_UTF_CHECK;
        CRL_TRY(encode_piece(encoder, begin, span[1] - begin));
    }
    return CRL_STATUS_OK;
}

static crl_status encode(const crl_tokenizer *tokenizer, const char *text, size_t bytes,
                         int32_t **out, size_t *out_count) {
    crl_status status;
    encoder encoder = {.bpe = &tokenizer->bpe, .text = text, .bytes = bytes};
    pcre2_match_data *match = NULL;
    if (bytes >= UINT32_MAX) {
        return CRL_FAIL(INVALID, "text: %zu bytes, expected below %" PRIu32, bytes, UINT32_MAX);
    }
    encoder.capacity = bytes / 3 + 16; /* English has four bytes to a token */
    CRL_TRY_OUT(crl_alloc(&encoder.token, encoder.capacity, sizeof *encoder.token));
    CRL_TRY_OUT(crl_alloc(&encoder.cache, CACHE_SLOTS, sizeof *encoder.cache));
    match = pcre2_match_data_create(1, tokenizer->memory);
    if (!match) {
        status = CRL_FAIL(NOMEM, "text: no memory to split it");
        goto out;
    }
    CRL_TRY_OUT(encode_pieces(&encoder, tokenizer->split, match));
    *out = encoder.token;
    *out_count = encoder.count;
    encoder.token = NULL;
out:
    pcre2_match_data_free(match);
    crl_bpe_scratch_fini(&encoder.scratch);
    crl_free(encoder.cache);
    crl_free(encoder.token);
    return status;
}

static crl_status decode(const crl_tokenizer *tokenizer, int32_t token, const char **out,
                         size_t *out_bytes) {
    const crl_bpe *bpe = &tokenizer->bpe;
    if (token < 0 || token >= VOCABULARY) {
        return CRL_FAIL(NOT_FOUND, "tokenizer gpt2: token is %" PRId32 ", expected 0 to %d", token,
                        VOCABULARY - 1);
    }
    if (token == END_OF_TEXT) {
        *out = end_of_text;
        *out_bytes = sizeof end_of_text - 1;
        return CRL_STATUS_OK;
    }
    *out = bpe->text + bpe->begin[token];
    *out_bytes = bpe->begin[token + 1] - bpe->begin[token];
    return CRL_STATUS_OK;
}

const crl_tokenizer_kind crl_tokenizer_gpt2 = {
    .name = "gpt2",
    .help = "GPT-2 byte-pair encoding from a tiktoken rank file, vocabulary 50257",
    .open = open_gpt2,
    .close = close_gpt2,
    .vocabulary = vocabulary,
    .encode = encode,
    .decode = decode,
};
