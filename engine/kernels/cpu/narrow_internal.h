/* SPDX-License-Identifier: Apache-2.0 */
/* Arrays of a table's type as f32 and back. For f32 they copy. */
#pragma once

#include "engine/tensor/tensor.h"

/* y = x of `type`, exactly; NaN stays NaN. */
void crl_widen(crl_dtype type, const void *x, float *y, int64_t n);
/* y of `type` = x, to nearest, ties to even. NaN becomes a quiet one; what is too large becomes
 * infinite; small numbers of f16 become its subnormal ones. */
void crl_narrow(crl_dtype type, const float *x, void *y, int64_t n);
/* 16 bits only, n a multiple of CRL_LANES: on the bits, on any machine; and by instructions of the
 * machine: elements done, from the start on, none where it has none. */
void crl_narrow_plain(crl_dtype type, const float *x, uint16_t *y, int64_t n);
void crl_widen_plain(crl_dtype type, const uint16_t *x, float *y, int64_t n);
int64_t crl_narrow_x86(crl_dtype type, const float *x, uint16_t *y, int64_t n);
int64_t crl_widen_x86(crl_dtype type, const uint16_t *x, float *y, int64_t n);
/* Element `first` of an array of `type`. */
const void *crl_at(crl_dtype type, const void *x, int64_t first);
void *crl_at_mutable(crl_dtype type, void *x, int64_t first);
/* One element as f32. */
float crl_widen_one(crl_dtype type, const void *x, int64_t i);

enum { CRL_PIECE = 1 << 11 }; /* elements of a long row that are worked on at once */

/* A piece of an array of `type` as f32: where it lies, or widened into the buffer. Remembers what
 * the buffer holds, so that a second pass over a short row costs nothing. */
typedef struct crl_reader {
    crl_dtype type;
    const void *x;
    const void *held; /* start and length of what the buffer holds */
    int64_t held_elements;
    float buffer[CRL_PIECE] __attribute__((aligned(64)));
} crl_reader;

/* Elements first..first+n-1, n at most CRL_PIECE. Valid until the next call. */
const float *crl_read(crl_reader *reader, int64_t first, int64_t n);
void crl_reader_init(crl_reader *reader, crl_dtype type, const void *x);

/* Likewise for what is written: between begin and end, f32. */
typedef struct crl_writer {
    crl_dtype type;
    void *y;
    float buffer[CRL_PIECE] __attribute__((aligned(64)));
} crl_writer;

void crl_writer_init(crl_writer *writer, crl_dtype type, void *y);
/* `keep`: the piece is added to and so holds what was there. */
float *crl_write_begin(crl_writer *writer, int64_t first, int64_t n, bool keep);
void crl_write_end(crl_writer *writer, int64_t first, int64_t n);
