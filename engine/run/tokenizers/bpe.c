/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Merging one piece: parts are a linked list over byte positions, candidates wait in a binary heap.
 *
 *     h e l l o      parts 0 1 2 3 4, candidates (he) (el) (ll) (lo)
 *     he l l o       pop (he): parts 0 2 3 4, new candidate (hel); (el) is stale
 *
 * A candidate is stale when its token's length is no longer that of two neighbouring parts; it is
 * dropped when popped. Refuses to know where pieces come from.
 */
#include "engine/run/tokenizers/bpe_internal.h"

#include <string.h>

#include "engine/base/alloc.h"

uint64_t crl_bpe_hash(const char *piece, size_t bytes) {
    uint64_t hash = UINT64_C(0xcbf29ce484222325); /* FNV-1a: pieces are a few bytes long */
    for (size_t i = 0; i < bytes; ++i) {
        hash = (hash ^ (unsigned char)piece[i]) * UINT64_C(0x100000001b3);
    }
    return hash ^ hash >> 32;
}

int32_t crl_bpe_find(const crl_bpe *bpe, const char *piece, size_t bytes, uint64_t hash) {
    if (bytes > bpe->longest) {
        return -1;
    }
    for (size_t at = hash & (bpe->slots - 1);; at = (at + 1) & (bpe->slots - 1)) {
        const int32_t token = bpe->slot[at] - 1;
        if (token < 0) {
            return -1;
        }
        const uint32_t begin = bpe->begin[token];
        if (bpe->begin[token + 1] - begin == bytes &&
            memcmp(bpe->text + begin, piece, bytes) == 0) {
            return token;
        }
    }
}

static int32_t find_part(const crl_bpe *bpe, const char *piece, size_t bytes) {
    return bytes > bpe->longest ? -1 : crl_bpe_find(bpe, piece, bytes, crl_bpe_hash(piece, bytes));
}

static void push(crl_bpe_scratch *scratch, uint64_t key) {
    uint64_t *heap = scratch->heap;
    size_t at = scratch->heap_size++;
    while (at > 0 && heap[(at - 1) / 2] > key) {
        heap[at] = heap[(at - 1) / 2];
        at = (at - 1) / 2;
    }
    heap[at] = key;
}

static uint64_t pop(crl_bpe_scratch *scratch) {
    uint64_t *heap = scratch->heap;
    const uint64_t least = heap[0], key = heap[--scratch->heap_size];
    const size_t size = scratch->heap_size;
    size_t at = 0;
    for (size_t child; (child = 2 * at + 1) < size; at = child) {
        child += child + 1 < size && heap[child + 1] < heap[child] ? 1 : 0;
        if (heap[child] >= key) {
            break;
        }
        heap[at] = heap[child];
    }
    heap[at] = key;
    return least;
}

/* The part at `first` and its neighbour become a candidate when their bytes are a token. */
static void consider(const crl_bpe *bpe, crl_bpe_scratch *scratch, const char *piece, size_t bytes,
                     uint32_t first) {
    const uint32_t second = scratch->next[first];
    if (second < bytes) {
        const int32_t token = find_part(bpe, piece + first, scratch->next[second] - first);
        if (token >= 0) {
            push(scratch, (uint64_t)token << 32 | first);
        }
    }
}

static bool stale(const crl_bpe *bpe, const crl_bpe_scratch *scratch, size_t bytes, int32_t token,
                  uint32_t first) {
    const uint32_t second = scratch->next[first];
    const uint32_t length = bpe->begin[token + 1] - bpe->begin[token];
    /* next is 0 where a part was swallowed: the piece's begin is never a successor. */
    return second == 0 || second >= bytes || scratch->next[second] - first != length;
}

static void join(crl_bpe_scratch *scratch, size_t bytes, uint32_t first) {
    const uint32_t second = scratch->next[first], third = scratch->next[second];
    scratch->next[first] = third;
    scratch->next[second] = 0;
    if (third < bytes) {
        scratch->previous[third] = first;
    }
}

static crl_status reserve(crl_bpe_scratch *scratch, size_t bytes) {
    if (scratch->capacity >= bytes) {
        return CRL_STATUS_OK;
    }
    const size_t capacity = bytes < 128 ? 256 : bytes * 2;
    crl_bpe_scratch_fini(scratch);
    CRL_TRY(crl_alloc(&scratch->next, capacity + 1, sizeof *scratch->next));
    CRL_TRY(crl_alloc(&scratch->previous, capacity + 1, sizeof *scratch->previous));
    /* One candidate per pair at first, two more and one less with every merge. */
    CRL_TRY(crl_alloc(&scratch->heap, 2 * capacity, sizeof *scratch->heap));
    scratch->capacity = capacity;
    return CRL_STATUS_OK;
}

static void start(const crl_bpe *bpe, crl_bpe_scratch *scratch, const char *piece, size_t bytes) {
    scratch->heap_size = 0;
    for (uint32_t i = 0; i < bytes; ++i) {
        scratch->next[i] = i + 1;
        scratch->previous[i] = i - 1; /* of the first part: not used */
    }
    scratch->next[bytes] = (uint32_t)bytes;
    for (uint32_t i = 0; i < bytes; ++i) {
        consider(bpe, scratch, piece, bytes, i);
    }
}

crl_status crl_bpe_merge(const crl_bpe *bpe, crl_bpe_scratch *scratch, const char *piece,
                         size_t bytes, int32_t *out, size_t *out_count) {
    CRL_ASSERT(bytes >= 1 && bytes < UINT32_MAX);
    CRL_TRY(reserve(scratch, bytes));
    start(bpe, scratch, piece, bytes);
    while (scratch->heap_size > 0) {
        const uint64_t key = pop(scratch);
        const uint32_t first = (uint32_t)key;
        if (stale(bpe, scratch, bytes, (int32_t)(key >> 32), first)) {
            continue;
        }
        join(scratch, bytes, first);
        consider(bpe, scratch, piece, bytes, first);
        if (first > 0) {
            consider(bpe, scratch, piece, bytes, scratch->previous[first]);
        }
    }
    size_t count = 0;
    for (uint32_t i = 0; i < bytes; i = scratch->next[i]) {
        out[count++] = find_part(bpe, piece + i, scratch->next[i] - i);
    }
    *out_count = count;
    return CRL_STATUS_OK;
}

void crl_bpe_scratch_fini(crl_bpe_scratch *scratch) {
    crl_free(scratch->next);
    crl_free(scratch->previous);
    crl_free(scratch->heap);
    *scratch = (crl_bpe_scratch){0};
}
