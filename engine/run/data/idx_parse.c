/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The IDX format [lecun98], big-endian:
 *
 *     00 00 type n    type 0x08: u8    n dimensions
 *     u32 x n         sizes
 *     data            exactly their product
 *
 * Refuses other element types, empty dimensions, and a file longer or shorter than its header says.
 */
#include <endian.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "engine/run/data/idx.h"

enum { MAGIC_BYTES = 4, TYPE_U8 = 0x08 };

static crl_status check_magic(const char *name, const unsigned char *head, size_t bytes) {
    if (bytes < MAGIC_BYTES) {
        return CRL_FAIL(INVALID, "%s: %zu bytes, expected an IDX header of 8 or more", name, bytes);
    }
    if (head[0] != 0 || head[1] != 0) {
        return CRL_FAIL(INVALID, "%s: begins with %02x %02x %02x %02x, expected 00 00 08 01 to 06",
                        name, head[0], head[1], head[2], head[3]);
    }
    if (head[2] != TYPE_U8) {
        return CRL_FAIL(INVALID, "%s: element type is 0x%02x, expected 0x08 (u8)", name, head[2]);
    }
    if (head[3] < 1 || head[3] > CRL_MAX_DIMENSIONS) {
        return CRL_FAIL(INVALID, "%s: %d dimensions, expected 1 to %d", name, head[3],
                        CRL_MAX_DIMENSIONS);
    }
    return CRL_STATUS_OK;
}

static crl_status read_sizes(crl_shape *shape, uint64_t *elements, const char *name,
                             const unsigned char *head) {
    *elements = 1;
    for (int i = 0; i < shape->dimensions; ++i) {
        uint32_t size;
        memcpy(&size, head + MAGIC_BYTES + 4 * i, sizeof size);
        size = be32toh(size);
        if (size == 0) {
            return CRL_FAIL(INVALID, "%s: dimension %d is 0, expected at least 1", name, i);
        }
        if (__builtin_mul_overflow(*elements, size, elements) || *elements > INT64_MAX) {
            return CRL_FAIL(INVALID, "%s: header's sizes overflow at dimension %d of %" PRIu32,
                            name, i, size);
        }
        shape->size[i] = size;
    }
    return CRL_STATUS_OK;
}

/* "60000x28x28" */
static const char *sizes_text(const crl_shape *shape, char *text, size_t text_bytes) {
    int length = 0;
    for (int i = 0; i < shape->dimensions && (size_t)length < text_bytes; ++i) {
        length += snprintf(text + length, text_bytes - (size_t)length, "%s%" PRId64,
                           i > 0 ? "x" : "", shape->size[i]);
    }
    return text;
}

crl_status crl_idx_parse(crl_idx *out, const char *name, const void *content, size_t bytes) {
    const unsigned char *head = content;
    CRL_TRY(check_magic(name, head, bytes));
    crl_idx idx = {.shape.dimensions = head[3]};
    const size_t header_bytes = MAGIC_BYTES + 4 * (size_t)head[3];
    if (bytes < header_bytes) {
        return CRL_FAIL(INVALID, "%s: %zu bytes, expected an IDX header of %zu", name, bytes,
                        header_bytes);
    }
    uint64_t elements;
    CRL_TRY(read_sizes(&idx.shape, &elements, name, head));
    if (bytes - header_bytes != elements) {
        char text[80];
        return CRL_FAIL(INVALID, "%s: %zu bytes of data, expected %" PRIu64 " for %s", name,
                        bytes - header_bytes, elements, sizes_text(&idx.shape, text, sizeof text));
    }
    idx.data = head + header_bytes;
    *out = idx;
    return CRL_STATUS_OK;
}
