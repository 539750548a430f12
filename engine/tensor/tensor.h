/* SPDX-License-Identifier: Apache-2.0 */
/* Element types, shapes and views. Views never own; all tensors are dense and row-major. */
#pragma once

#include <stdint.h>

#include "engine/base/status.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef enum crl_dtype {
    CRL_DTYPE_F32 = 0,
    CRL_DTYPE_I32,
    CRL_DTYPE_F64,
    CRL_DTYPE_U8,
    CRL_DTYPE_U16,
    CRL_DTYPE_I64,
    CRL_DTYPE_BF16,
    CRL_DTYPE_F16,
    CRL_DTYPE_COUNT
} crl_dtype;

enum { CRL_MAX_DIMENSIONS = 6 };

/* Row-major; dimension 0 is the slowest. Zero dimensions: a scalar, one element. */
typedef struct crl_shape {
    int dimensions;
    int64_t size[CRL_MAX_DIMENSIONS];
} crl_shape;

/* What a value is, without its memory. */
typedef struct crl_tensor_spec {
    crl_dtype dtype;
    crl_shape shape;
} crl_tensor_spec;

/* Bytes of one element; 0 for what is no element type. */
size_t crl_dtype_bytes(crl_dtype dtype);
/* "f32", "i32", ... and the safetensors spelling "F32", "I32"; "?" for what is none. */
const char *crl_dtype_name(crl_dtype dtype);
/* "F32", "I32", ... */
const char *crl_dtype_safetensors_name(crl_dtype dtype);

/* `size`: (dimensions), at most CRL_MAX_DIMENSIONS. */
crl_shape crl_shape_make(int dimensions, const int64_t *size);
/* CRL_SHAPE(B, T, C) */
#define CRL_SHAPE(...)                                                                             \
    crl_shape_make((int)(sizeof((int64_t[]){__VA_ARGS__}) / sizeof(int64_t)),                      \
                   (const int64_t[]){__VA_ARGS__})
/* The same dimensions with the same sizes. */
bool crl_shape_equal(const crl_shape *a, const crl_shape *b);
/* Product of the sizes from dimension `first` up to, not including, `last`. Cannot overflow once
 * crl_tensor_bytes has accepted the shape. */
int64_t crl_shape_product(const crl_shape *shape, int first, int last);
/* Product of all sizes; 1 for a scalar. */
int64_t crl_shape_elements(const crl_shape *shape);
/* INVALID when a size is negative or the byte count overflows; `what` begins the message. */
CRL_NODISCARD crl_status crl_tensor_bytes(size_t *out, const crl_tensor_spec *spec,
                                          const char *what);
/* "f32(4,64,768)" into `text`; returns text. */
char *crl_tensor_text(const crl_tensor_spec *spec, char *text, size_t text_bytes);

#ifdef __cplusplus
}
#endif
