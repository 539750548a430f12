/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Unpacking gzip [rfc1952] through zlib, checksums and lengths included. Refuses bytes after the
 * stream. The size written at its end is a hint for the first allocation, believed up to 8 times
 * the packed size; beyond that the output grows as it comes.
 */
#define ZLIB_CONST /* inflate only reads its input */
#include "engine/run/data/gzip.h"

#include <endian.h>
#include <stdint.h>
#include <string.h>
#include <zlib.h>

#include "engine/base/alloc.h"

enum {
    GZIP_WINDOW_BITS = 15 + 16, /* zlib: largest window, gzip wrapper only */
    LEAST_BYTES = 1 << 12,
    BELIEVED_RATIO = 8,
    PIECE_BYTES = 1 << 30 /* zlib counts in unsigned int */
};

typedef struct output {
    unsigned char *data;
    size_t bytes, capacity;
} output;

bool crl_gzip_recognise(const void *content, size_t bytes) {
    const unsigned char *head = content;
    return bytes >= 2 && head[0] == 0x1f && head[1] == 0x8b;
}

static voidpf zlib_alloc(voidpf opaque, uInt count, uInt size_bytes) {
    void *block = NULL;
    (void)opaque;
    return crl_alloc(&block, count, size_bytes) == CRL_STATUS_OK ? block : NULL;
}

static void zlib_free(voidpf opaque, voidpf block) {
    (void)opaque;
    crl_free(block);
}

/* One byte more than the hint, so that the end is found without growing once more. */
static size_t first_capacity(const unsigned char *content, size_t bytes) {
    uint32_t hint = 0;
    if (bytes >= sizeof hint) {
        memcpy(&hint, content + bytes - sizeof hint, sizeof hint);
    }
    const size_t claimed = (size_t)le32toh(hint) + 1, believed = bytes * BELIEVED_RATIO;
    const size_t capacity = claimed < believed ? claimed : believed;
    return capacity > LEAST_BYTES ? capacity : LEAST_BYTES;
}

static uInt piece(size_t bytes) {
    return bytes < PIECE_BYTES ? (uInt)bytes : PIECE_BYTES;
}

static crl_status make_room(output *out) {
    if (out->bytes < out->capacity) {
        return CRL_STATUS_OK;
    }
    size_t capacity;
    CRL_TRY(crl_size_mul(&capacity, out->capacity, 2, "gzip"));
    CRL_TRY(crl_realloc(&out->data, out->capacity, capacity, 1));
    out->capacity = capacity;
    return CRL_STATUS_OK;
}

static crl_status check_code(int code, const z_stream *stream, const char *name, size_t at) {
    if (code == Z_OK || code == Z_STREAM_END) {
        return CRL_STATUS_OK;
    }
    if (code == Z_MEM_ERROR) {
        return CRL_FAIL(NOMEM, "%s: no memory to unpack it", name);
    }
    if (code == Z_BUF_ERROR) {
        return CRL_FAIL(INVALID, "%s: gzip stream ends early, after %zu bytes", name, at);
    }
    return CRL_FAIL(INVALID, "%s: gzip stream is damaged at byte %zu: %s", name, at,
                    stream->msg ? stream->msg : zError(code));
}

/* One call of inflate; *done when the last member has ended. */
static crl_status inflate_some(z_stream *stream, output *out, const char *name,
                               const unsigned char *content, size_t bytes, bool *done) {
    CRL_TRY(make_room(out));
    const size_t at = (size_t)(stream->next_in - content);
    stream->avail_in = piece(bytes - at);
    stream->next_out = out->data + out->bytes;
    const uInt room = piece(out->capacity - out->bytes);
    stream->avail_out = room;
    const int code = inflate(stream, Z_NO_FLUSH);
    const size_t now = (size_t)(stream->next_in - content);
    CRL_TRY(check_code(code, stream, name, now));
    out->bytes += room - stream->avail_out;
    if (code != Z_STREAM_END) {
        return CRL_STATUS_OK;
    }
    *done = now == bytes;
    if (!*done && !crl_gzip_recognise(content + now, bytes - now)) {
        return CRL_FAIL(INVALID, "%s: gzip stream ends at byte %zu, expected %zu", name, now,
                        bytes);
    }
    return *done ? CRL_STATUS_OK : check_code(inflateReset(stream), stream, name, now);
}

crl_status crl_gzip_expand(unsigned char **out, size_t *out_bytes, const char *name,
                           const void *content, size_t bytes) {
    crl_status status;
    bool done = false;
    output unpacked = {.capacity = first_capacity(content, bytes)};
    z_stream stream = {.zalloc = zlib_alloc, .zfree = zlib_free, .next_in = content};
    CRL_TRY(crl_alloc(&unpacked.data, unpacked.capacity, 1));
    CRL_TRY_OUT(check_code(inflateInit2(&stream, GZIP_WINDOW_BITS), &stream, name, 0));
    while (!done) {
        CRL_TRY_OUT(inflate_some(&stream, &unpacked, name, content, bytes, &done));
    }
    *out = unpacked.data;
    *out_bytes = unpacked.bytes;
    unpacked.data = NULL;
out:
    inflateEnd(&stream);
    crl_free(unpacked.data);
    return status;
}
