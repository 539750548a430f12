/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Arenas: a list of blocks, the newest with room first. Refuses to free single items.
 *
 *     arena -> [block: ####....] -> [block: ########] -> [large item] -> ...
 */
#include "engine/base/arena.h"

#include "engine/base/alloc.h"

#include <stdint.h>
#include <stdio.h>
#include <string.h>

enum { ARENA_ALIGN_BYTES = 16, FIRST_BLOCK_BYTES = 4096, LARGEST_BLOCK_BYTES = 256 * 1024 };

struct crl_arena_block {
    crl_arena_block *next;
    size_t used, capacity; /* bytes of `data` */
    _Alignas(ARENA_ALIGN_BYTES) char data[];
};

static crl_status block_create(crl_arena_block **out, size_t capacity) {
    size_t bytes;
    crl_arena_block *block;
    CRL_TRY(crl_size_add(&bytes, sizeof *block, capacity, "arena"));
    CRL_TRY(crl_alloc(&block, bytes, 1));
    block->capacity = capacity;
    *out = block;
    return CRL_STATUS_OK;
}

/* A block with room for `bytes`. */
static crl_status block_for(crl_arena *arena, crl_arena_block **out, size_t bytes) {
    crl_arena_block *first = arena->first, *block;
    if (first && first->capacity - first->used >= bytes) {
        *out = first;
        return CRL_STATUS_OK;
    }
    size_t next_capacity = first ? 2 * first->capacity : FIRST_BLOCK_BYTES;
    if (next_capacity > LARGEST_BLOCK_BYTES) {
        next_capacity = LARGEST_BLOCK_BYTES;
    }
    if (bytes <= next_capacity / 2) {
        CRL_TRY(block_create(&block, next_capacity));
        block->next = first;
        arena->first = block;
    } else {
        /* A large item stands alone, behind the block that still has room. */
        CRL_TRY(block_create(&block, bytes));
        crl_arena_block **link = first ? &first->next : &arena->first;
        block->next = *link;
        *link = block;
    }
    *out = block;
    return CRL_STATUS_OK;
}

crl_status crl_arena_alloc(crl_arena *arena, void *out, size_t count, size_t size_bytes) {
    size_t bytes;
    CRL_TRY(crl_size_mul(&bytes, count, size_bytes, "arena"));
    CRL_TRY(crl_size_add(&bytes, bytes, ARENA_ALIGN_BYTES - 1, "arena"));
    bytes &= ~(size_t)(ARENA_ALIGN_BYTES - 1);
    crl_arena_block *block;
    CRL_TRY(block_for(arena, &block, bytes));
    void *item = block->data + block->used;
    block->used += bytes;
    memcpy(out, &item, sizeof item);
    return CRL_STATUS_OK;
}

crl_status crl_arena_text(crl_arena *arena, const char **out, const char *text) {
    const size_t bytes = strlen(text) + 1;
    char *copy;
    CRL_TRY(crl_arena_alloc(arena, &copy, bytes, 1));
    memcpy(copy, text, bytes);
    *out = copy;
    return CRL_STATUS_OK;
}

crl_status crl_arena_vformat(crl_arena *arena, const char **out, const char *format,
                             va_list arguments) {
    va_list again;
    va_copy(again, arguments);
    const int length = vsnprintf(NULL, 0, format, arguments);
    char *text = NULL;
    const crl_status status = length < 0
                                  ? CRL_FAIL(INVALID, "text: '%s' cannot be formatted", format)
                                  : crl_arena_alloc(arena, &text, (size_t)length + 1, 1);
    if (status == CRL_STATUS_OK) {
        vsnprintf(text, (size_t)length + 1, format, again);
        *out = text;
    }
    va_end(again);
    return status;
}

crl_status crl_arena_format(crl_arena *arena, const char **out, const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    const crl_status status = crl_arena_vformat(arena, out, format, arguments);
    va_end(arguments);
    return status;
}

void crl_arena_fini(crl_arena *arena) {
    crl_arena_block *block = arena->first;
    while (block) {
        crl_arena_block *next = block->next;
        crl_free(block);
        block = next;
    }
    arena->first = NULL;
}
