/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Conversion between f32 and the 16-bit types, on the bits and without branches, so that the loops
 * vectorise and round alike on every machine. Refuses every type but f32, bf16 and f16.
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
    F16_MANTISSA = 13,           /* bits of f32's mantissa that f16 lacks */
    F16_INFINITY = 0x7c00,       /* and the smallest magnitude above all numbers */
    F16_SMALLEST_NORMAL = 0x400, /* 2^-14 */
    EXPONENTS = 112 << 23        /* what f32's exponent is above f16's */
};

CRL_VECTORISED static void widen_bf16(const uint16_t *x, float *y, int64_t n) {
#pragma omp simd
    for (int64_t i = 0; i < n; i++)
        y[i] = crl_from_bits((uint32_t)x[i] << 16);
}

CRL_VECTORISED static void narrow_bf16(const float *x, uint16_t *y, int64_t n) {
#pragma omp simd
    for (int64_t i = 0; i < n; i++) {
        const uint32_t bits = crl_bits(x[i]);
        const uint32_t rounded = (bits + 0x7fffu + (bits >> 16 & 1)) >> 16;
        const uint32_t nan = bits >> 16 | 0x40u;
        y[i] = (uint16_t)((bits & 0x7fffffffu) > 0x7f800000u ? nan : rounded);
    }
}

CRL_VECTORISED static void widen_f16(const uint16_t *x, float *y, int64_t n) {
#pragma omp simd
    for (int64_t i = 0; i < n; i++) {
        const uint32_t magnitude = x[i] & 0x7fffu;
        const uint32_t normal = (magnitude << F16_MANTISSA) + EXPONENTS;
        const uint32_t special = magnitude >= F16_INFINITY ? normal + EXPONENTS : normal;
        const uint32_t subnormal = crl_bits((float)(int32_t)magnitude * 0x1p-24f);
        const uint32_t bits = magnitude < F16_SMALLEST_NORMAL ? subnormal : special;
        y[i] = crl_from_bits(bits | (uint32_t)(x[i] & 0x8000u) << 16);
    }
}

/* The bits of 0.5 count 2^-24, f16's smallest number: adding it rounds to a multiple of that. */
CRL_VECTORISED static void narrow_f16(const float *x, uint16_t *y, int64_t n) {
    const uint32_t normal_bits = EXPONENTS + (1 << 23), overflow_bits = 0x477ff000u; /* 65520 */
#pragma omp simd
    for (int64_t i = 0; i < n; i++) {
        const uint32_t magnitude = crl_bits(x[i]) & 0x7fffffffu;
        const uint32_t half_unit = 0xfffu + (magnitude >> F16_MANTISSA & 1);
        const uint32_t normal = (magnitude - EXPONENTS + half_unit) >> F16_MANTISSA;
        const uint32_t small = crl_bits(crl_from_bits(magnitude) + 0.5f) - 0x3f000000u;
        const uint32_t number = magnitude < normal_bits ? small : normal;
        const uint32_t finite = magnitude >= overflow_bits ? F16_INFINITY : number;
        const uint32_t nan = 0x7e00u | (magnitude >> F16_MANTISSA & 0x3ffu);
        const uint32_t result = magnitude > 0x7f800000u ? nan : finite;
        y[i] = (uint16_t)(result | (crl_bits(x[i]) >> 16 & 0x8000u));
    }
}

void crl_widen(crl_dtype type, const void *x, float *y, int64_t n) {
    if (type == CRL_DTYPE_BF16)
        widen_bf16(x, y, n);
    else if (type == CRL_DTYPE_F16)
        widen_f16(x, y, n);
    else if (n > 0)
        memcpy(y, x, (size_t)n * sizeof *y);
}

void crl_narrow(crl_dtype type, const float *x, void *y, int64_t n) {
    if (type == CRL_DTYPE_BF16)
        narrow_bf16(x, y, n);
    else if (type == CRL_DTYPE_F16)
        narrow_f16(x, y, n);
    else if (n > 0)
        memcpy(y, x, (size_t)n * sizeof *x);
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
