/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Reads tiktoken rank files [tiktoken]: a line per token, its bytes in base64, a blank, its rank.
 * Refuses ranks out of order, tokens given twice, files of another length, and files without all
 * 256 single bytes, with which some text could not be encoded.
 */
#include <inttypes.h>
#include <string.h>

#include "engine/base/alloc.h"
#include "engine/base/file.h"
#include "engine/run/tokenizers/bpe_internal.h"

enum { LIMIT_BYTES = 1 << 28 };

/* None of the libraries this is linked with decodes base64. -1: not one of its 64 characters. */
static int digit_of(char c) {
    return c >= 'A' && c <= 'Z'   ? c - 'A'
           : c >= 'a' && c <= 'z' ? c - 'a' + 26
           : c >= '0' && c <= '9' ? c - '0' + 52
           : c == '+'             ? 62
           : c == '/'             ? 63
                                  : -1;
}

/* Bytes written to `out`; 0 when `text` is not base64 with its padding. */
static size_t decode_base64(const char *text, size_t length, char *out) {
    size_t bytes = 0, digits = length;
    uint32_t bits = 0;
    while (digits > 0 && length - digits < 2 && text[digits - 1] == '=') {
        --digits;
    }
    if (length % 4 != 0) {
        return 0;
    }
    for (size_t i = 0; i < digits; ++i) {
        const int digit = digit_of(text[i]);
        if (digit < 0) {
            return 0;
        }
        bits = bits << 6 | (uint32_t)digit;
        if (i % 4 > 0) { /* the second, third and fourth digit each complete a byte */
            out[bytes++] = (char)(bits >> (6 - 2 * (i % 4)));
        }
    }
    return bytes;
}

static crl_status insert(crl_bpe *bpe, int32_t token, const char *path) {
    const char *text = bpe->text + bpe->begin[token];
    const size_t bytes = bpe->begin[token + 1] - bpe->begin[token];
    const uint64_t hash = crl_bpe_hash(text, bytes);
    bpe->longest = bytes > bpe->longest ? bytes : bpe->longest;
    const int32_t twin = crl_bpe_find(bpe, text, bytes, hash);
    if (twin >= 0) {
        return CRL_FAIL(INVALID, "%s:%" PRId32 ": same bytes as the token of rank %" PRId32, path,
                        token + 1, twin);
    }
    size_t at = hash & (bpe->slots - 1);
    while (bpe->slot[at] != 0) {
        at = (at + 1) & (bpe->slots - 1);
    }
    bpe->slot[at] = token + 1;
    return CRL_STATUS_OK;
}

/* "<base64> <rank>" */
static crl_status read_line(crl_bpe *bpe, int32_t token, const char *line, size_t length,
                            const char *path) {
    const int32_t number = token + 1;
    const char *blank = memchr(line, ' ', length);
    if (!blank) {
        return CRL_FAIL(INVALID, "%s:%" PRId32 ": no rank, expected '<base64> <rank>'", path,
                        number);
    }
    char *text = bpe->text + bpe->begin[token];
    const size_t bytes = decode_base64(line, (size_t)(blank - line), text);
    if (bytes == 0) {
        return CRL_FAIL(INVALID, "%s:%" PRId32 ": '%.*s' is not base64", path, number,
                        (int)(blank - line < 64 ? blank - line : 64), line);
    }
    int64_t rank = blank + 1 < line + length ? 0 : -1;
    for (const char *c = blank + 1; c < line + length && rank >= 0; ++c) {
        rank = *c >= '0' && *c <= '9' && rank < INT32_MAX ? rank * 10 + (*c - '0') : -1;
    }
    if (rank != token) {
        return CRL_FAIL(INVALID, "%s:%" PRId32 ": rank is '%.*s', expected %" PRId32, path, number,
                        (int)(line + length - blank - 1 < 64 ? line + length - blank - 1 : 64),
                        blank + 1, token);
    }
    bpe->begin[token + 1] = bpe->begin[token] + (uint32_t)bytes;
    return insert(bpe, token, path);
}

static crl_status read_lines(crl_bpe *bpe, const char *content, size_t bytes, const char *path) {
    const char *at = content, *end = content + bytes;
    int32_t lines = 0;
    for (; at < end; ++lines) {
        const char *stop = memchr(at, '\n', (size_t)(end - at));
        stop = stop ? stop : end;
        if (lines == bpe->tokens) {
            return CRL_FAIL(INVALID, "%s: more than %" PRId32 " lines, expected that many tokens",
                            path, lines);
        }
        CRL_TRY(read_line(bpe, lines, at, (size_t)(stop - at), path));
        at = stop + 1;
    }
    if (lines < bpe->tokens) {
        return CRL_FAIL(INVALID, "%s: %" PRId32 " lines, expected %" PRId32 " tokens", path, lines,
                        bpe->tokens);
    }
    return CRL_STATUS_OK;
}

static crl_status check_bytes(const crl_bpe *bpe, const char *path) {
    for (int i = 0; i < CRL_BPE_BYTES; ++i) {
        const char byte = (char)i;
        if (crl_bpe_find(bpe, &byte, 1, crl_bpe_hash(&byte, 1)) < 0) {
            return CRL_FAIL(INVALID, "%s: no token for byte 0x%02x, expected one for each", path,
                            i);
        }
    }
    return CRL_STATUS_OK;
}

crl_status crl_bpe_load(crl_bpe *bpe, const char *path, int32_t tokens) {
    crl_status status;
    char *content = NULL;
    size_t bytes;
    CRL_TRY(crl_file_read(&content, &bytes, path, LIMIT_BYTES));
    bpe->tokens = tokens;
    bpe->slots = 1;
    while (bpe->slots < 2 * (size_t)tokens) {
        bpe->slots *= 2;
    }
    CRL_TRY_OUT(crl_alloc(&bpe->text, bytes, 1)); /* base64 is longer than what it holds */
    CRL_TRY_OUT(crl_alloc(&bpe->begin, (size_t)tokens + 1, sizeof *bpe->begin));
    CRL_TRY_OUT(crl_alloc(&bpe->slot, bpe->slots, sizeof *bpe->slot));
    CRL_TRY_OUT(read_lines(bpe, content, bytes, path));
    CRL_TRY_OUT(check_bytes(bpe, path));
out:
    crl_free(content);
    if (status != CRL_STATUS_OK) {
        crl_bpe_fini(bpe);
    }
    return status;
}

void crl_bpe_fini(crl_bpe *bpe) {
    crl_free(bpe->text);
    crl_free(bpe->begin);
    crl_free(bpe->slot);
    *bpe = (crl_bpe){0};
}
