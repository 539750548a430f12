/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Conversion between f32 and the 16-bit types, on the bits, so that it rounds alike on every
 * machine. Written in vectors, because compilers make poor ones of loops that change the width of
 * elements; a shorter rest goes through a padded copy. Refuses every type but f32, bf16 and f16.
 *
 *     f32   s eeeeeeee mmmmmmmmmmmmmmmmmmmmmmm
 *     bf16  s eeeeeeee mmmmmmm                    the upper half of f32
 *     f16   s    eeeee mmmmmmmmmm                 exponents 112 lower
 */
#include "engine/kernels/cpu/narrow_internal.h"

#include "engine/kernels/cpu/cpu_internal.h"
#include "engine/kernels/cpu/math_internal.h"

#include <string.h>

enum {
    F16_MANTISSA = 13,                /* bits of f32's mantissa that f16 lacks */
    EXPONENTS = 112 << 23,            /* what f32's exponent is above f16's */
    F16_INFINITY = 0x7c00,            /* as magnitudes, infinity is above all numbers */
    F32_INFINITY = 0x7f800000,        /* and NaN above infinity */
    F16_SMALLEST_NORMAL = 0x400,      /* 2^-14 */
    F32_SMALLEST_NORMAL = 0x38800000, /* the same in f32 */
    F32_QUIET = 0x400000,             /* the bit of NaNs that raise nothing */
    F32_OVERFLOW = 0x477ff000,        /* 65520, which rounds to f16's infinity */
    HALF = 0x3f000000                 /* 0.5 */
};

typedef uint16_t halves __attribute__((vector_size(CRL_LANES * sizeof(uint16_t))));
typedef uint32_t words __attribute__((vector_size(CRL_LANES * sizeof(uint32_t))));
typedef int32_t masks __attribute__((vector_size(CRL_LANES * sizeof(int32_t))));
typedef float floats __attribute__((vector_size(CRL_LANES * sizeof(float))));

/* `yes` where a magnitude is below the bound, else `no`. */
#define WHERE_BELOW(magnitude, bound, yes, no)                                                     \
    ((no) ^ (((yes) ^ (no)) & (words)((masks)(magnitude) < (bound))))

/* n is a multiple of CRL_LANES in all four. */
CRL_VECTORISED static void widen_bf16(const uint16_t *x, float *y, int64_t n) {
    for (int64_t i = 0; i < n; i += CRL_LANES) {
        halves half;
        memcpy(&half, x + i, sizeof half);
        const words bits = __builtin_convertvector(half, words) << 16;
        memcpy(y + i, &bits, sizeof bits);
    }
}

CRL_VECTORISED static void narrow_bf16(const float *x, uint16_t *y, int64_t n) {
    for (int64_t i = 0; i < n; i += CRL_LANES) {
        words bits;
        memcpy(&bits, x + i, sizeof bits);
        const words rounded = (bits + 0x7fffu + (bits >> 16 & 1)) >> 16, nan = bits >> 16 | 0x40u;
        const words all = WHERE_BELOW(bits & 0x7fffffffu, F32_INFINITY + 1, rounded, nan);
        const halves half = __builtin_convertvector(all, halves);
        memcpy(y + i, &half, sizeof half);
    }
}

CRL_VECTORISED static void widen_f16(const uint16_t *x, float *y, int64_t n) {
    for (int64_t i = 0; i < n; i += CRL_LANES) {
        halves half;
        memcpy(&half, x + i, sizeof half);
        const words wide = __builtin_convertvector(half, words), magnitude = wide & 0x7fffu;
        const words normal = (magnitude << F16_MANTISSA) + EXPONENTS, special = normal + EXPONENTS;
        const words quiet = WHERE_BELOW(magnitude, F16_INFINITY + 1, special, special | F32_QUIET);
        const floats small = __builtin_convertvector((masks)magnitude, floats) * 0x1p-24f;
        const words number = WHERE_BELOW(magnitude, F16_SMALLEST_NORMAL, (words)small, normal);
        const words bits = WHERE_BELOW(magnitude, F16_INFINITY, number, quiet) | (wide & 0x8000u)
                                                                                     << 16;
        memcpy(y + i, &bits, sizeof bits);
    }
}

/* The bits of 0.5 count 2^-24, f16's smallest number: adding it rounds to a multiple of that. */
CRL_VECTORISED static void narrow_f16(const float *x, uint16_t *y, int64_t n) {
    const words infinity = (words){0} + F16_INFINITY;
    for (int64_t i = 0; i < n; i += CRL_LANES) {
        words bits;
        memcpy(&bits, x + i, sizeof bits);
        const words magnitude = bits & 0x7fffffffu;
        const words half_unit = 0xfffu + (magnitude >> F16_MANTISSA & 1);
        const words normal = (magnitude - EXPONENTS + half_unit) >> F16_MANTISSA;
        const words small = (words)((floats)magnitude + 0.5f) - HALF;
        const words number = WHERE_BELOW(magnitude, F32_SMALLEST_NORMAL, small, normal);
        const words finite = WHERE_BELOW(magnitude, F32_OVERFLOW, number, infinity);
        const words nan = 0x7e00u | (magnitude >> F16_MANTISSA & 0x3ffu);
        const words all = WHERE_BELOW(magnitude, F32_INFINITY + 1, finite, nan);
        const halves half = __builtin_convertvector(all | (bits >> 16 & 0x8000u), halves);
        memcpy(y + i, &half, sizeof half);
    }
}

void crl_widen_plain(crl_dtype type, const uint16_t *x, float *y, int64_t n) {
    if (type == CRL_DTYPE_BF16)
        widen_bf16(x, y, n);
    else
        widen_f16(x, y, n);
}

void crl_narrow_plain(crl_dtype type, const float *x, uint16_t *y, int64_t n) {
    if (type == CRL_DTYPE_BF16)
        narrow_bf16(x, y, n);
    else
        narrow_f16(x, y, n);
}

static void widen_whole(crl_dtype type, const uint16_t *x, float *y, int64_t n) {
    const int64_t done = crl_widen_x86(type, x, y, n);
    crl_widen_plain(type, x + done, y + done, n - done);
}

static void narrow_whole(crl_dtype type, const float *x, uint16_t *y, int64_t n) {
    int64_t done = 0;
    while (done < n) {
        const int64_t fast = crl_narrow_x86(type, x + done, y + done, n - done);
        done += fast;
        /* The vector that the instructions refuse; all where there are none. */
        const int64_t left = fast > 0 ? crl_min(CRL_LANES, n - done) : n - done;
        crl_narrow_plain(type, x + done, y + done, left);
        done += left;
    }
}

void crl_widen(crl_dtype type, const void *x, float *y, int64_t n) {
    const int64_t whole = n / CRL_LANES * CRL_LANES, rest = n - whole;
    if (type == CRL_DTYPE_F32) {
        memcpy(y, x, (size_t)n * sizeof *y);
        return;
    }
    widen_whole(type, x, y, whole);
    if (rest > 0) {
        uint16_t from[CRL_LANES] = {0};
        float to[CRL_LANES];
        memcpy(from, (const uint16_t *)x + whole, (size_t)rest * sizeof *from);
        widen_whole(type, from, to, CRL_LANES);
        memcpy(y + whole, to, (size_t)rest * sizeof *to);
    }
}

void crl_narrow(crl_dtype type, const float *x, void *y, int64_t n) {
    const int64_t whole = n / CRL_LANES * CRL_LANES, rest = n - whole;
    if (type == CRL_DTYPE_F32) {
        memcpy(y, x, (size_t)n * sizeof *x);
        return;
    }
    narrow_whole(type, x, y, whole);
    if (rest > 0) {
        float from[CRL_LANES] = {0};
        uint16_t to[CRL_LANES];
        memcpy(from, x + whole, (size_t)rest * sizeof *from);
        narrow_whole(type, from, to, CRL_LANES);
        memcpy((uint16_t *)y + whole, to, (size_t)rest * sizeof *to);
    }
}

const void *crl_at(crl_dtype type, const void *x, int64_t first) {
    return (const char *)x + first * (type == CRL_DTYPE_F32 ? 4 : 2);
}

void *crl_at_mutable(crl_dtype type, void *x, int64_t first) {
    return (char *)x + first * (type == CRL_DTYPE_F32 ? 4 : 2);
}

float crl_widen_one(crl_dtype type, const void *x, int64_t i) {
    float y;
    crl_widen(type, crl_at(type, x, i), &y, 1);
    return y;
}

void crl_reader_init(crl_reader *reader, crl_dtype type, const void *x) {
    reader->type = type;
    reader->x = x;
    reader->held = NULL;
}

const float *crl_read(crl_reader *reader, int64_t first, int64_t n) {
    const void *piece = crl_at(reader->type, reader->x, first);
    if (reader->type == CRL_DTYPE_F32)
        return piece;
    if (reader->held != piece || reader->held_elements != n)
        crl_widen(reader->type, piece, reader->buffer, n);
    reader->held = piece;
    reader->held_elements = n;
    return reader->buffer;
}

void crl_writer_init(crl_writer *writer, crl_dtype type, void *y) {
    writer->type = type;
    writer->y = y;
}

float *crl_write_begin(crl_writer *writer, int64_t first, int64_t n, bool keep) {
    void *piece = crl_at_mutable(writer->type, writer->y, first);
    if (writer->type == CRL_DTYPE_F32)
        return piece;
    if (keep)
        crl_widen(writer->type, piece, writer->buffer, n);
    return writer->buffer;
}

void crl_write_end(crl_writer *writer, int64_t first, int64_t n) {
    if (writer->type != CRL_DTYPE_F32)
        crl_narrow(writer->type, writer->buffer, crl_at_mutable(writer->type, writer->y, first), n);
}
