/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Byte-pair encoding [sennrich16] from ranks: a piece starts as single bytes; the adjacent pair
 * whose joined bytes have the lowest rank is merged, the leftmost first, until no pair has a rank.
 * A token's number is its rank.
 */
#pragma once

#include <stdint.h>

#include "engine/base/status.h"

enum { CRL_BPE_BYTES = 256 };

/* Zero-initialise. */
typedef struct crl_bpe {
    int32_t tokens;
    char *text;      /* all tokens' bytes, one after the other */
    uint32_t *begin; /* (tokens + 1) where each begins in `text` */
    size_t longest;  /* bytes of the longest token */
    int32_t *slot;   /* hash table from bytes to token + 1; 0: free */
    size_t slots;    /* a power of two */
} crl_bpe;

/* Scratch of one encoding; zero-initialise. It grows to the longest piece. */
typedef struct crl_bpe_scratch {
    uint32_t *next, *previous; /* (capacity + 1) by first byte of a part */
    uint64_t *heap;            /* (2 capacity) candidate merges: rank << 32 | first byte */
    size_t capacity, heap_size;
} crl_bpe_scratch;

/* Reads a tiktoken rank file of exactly `tokens` lines "<base64> <rank>", ranks ascending from 0.
 * INVALID "<path>:<line>: ...", NOT_FOUND, IO, NOMEM. */
CRL_NODISCARD crl_status crl_bpe_load(crl_bpe *bpe, const char *path, int32_t tokens);
void crl_bpe_fini(crl_bpe *bpe);
/* 64 bits that identify a piece well enough for a table. */
uint64_t crl_bpe_hash(const char *piece, size_t bytes);
/* The token with exactly these bytes, or -1. */
int32_t crl_bpe_find(const crl_bpe *bpe, const char *piece, size_t bytes, uint64_t hash);
/* Encodes one piece of 1 to 2^32 - 2 bytes; at most one token per byte. O(n log n). */
CRL_NODISCARD crl_status crl_bpe_merge(const crl_bpe *bpe, crl_bpe_scratch *scratch,
                                       const char *piece, size_t bytes, int32_t *out,
                                       size_t *out_count);
void crl_bpe_scratch_fini(crl_bpe_scratch *scratch);
