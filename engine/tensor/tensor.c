/* SPDX-License-Identifier: Apache-2.0 */
/* Element types and shapes as text and as numbers. Refuses sizes whose bytes do not fit size_t. */
#include "engine/tensor/tensor.h"

#include <stdio.h>

#include "engine/base/alloc.h"

typedef struct dtype_row {
    const char *name;
    const char *safetensors_name;
    size_t bytes;
} dtype_row;

static const dtype_row dtype_rows[CRL_DTYPE_COUNT] = {
    [CRL_DTYPE_F32] = {"f32", "F32", 4},    [CRL_DTYPE_I32] = {"i32", "I32", 4},
    [CRL_DTYPE_F64] = {"f64", "F64", 8},    [CRL_DTYPE_U8] = {"u8", "U8", 1},
    [CRL_DTYPE_U16] = {"u16", "U16", 2},    [CRL_DTYPE_I64] = {"i64", "I64", 8},
    [CRL_DTYPE_BF16] = {"bf16", "BF16", 2}, [CRL_DTYPE_F16] = {"f16", "F16", 2},
};

static const dtype_row *row_of(crl_dtype dtype) {
    static const dtype_row unknown = {"?", "?", 0};
    const int index = (int)dtype;
    return index >= 0 && index < CRL_DTYPE_COUNT ? &dtype_rows[index] : &unknown;
}

size_t crl_dtype_bytes(crl_dtype dtype) {
    return row_of(dtype)->bytes;
}

const char *crl_dtype_name(crl_dtype dtype) {
    return row_of(dtype)->name;
}

const char *crl_dtype_safetensors_name(crl_dtype dtype) {
    return row_of(dtype)->safetensors_name;
}

crl_shape crl_shape_make(int dimensions, const int64_t *size) {
    CRL_ASSERT(dimensions >= 0 && dimensions <= CRL_MAX_DIMENSIONS);
    crl_shape shape = {.dimensions = dimensions};
    for (int i = 0; i < dimensions; i++)
        shape.size[i] = size[i];
    return shape;
}

bool crl_shape_equal(const crl_shape *a, const crl_shape *b) {
    if (a->dimensions != b->dimensions)
        return false;
    for (int i = 0; i < a->dimensions; i++) {
        if (a->size[i] != b->size[i])
            return false;
    }
    return true;
}

int64_t crl_shape_product(const crl_shape *shape, int first, int last) {
    int64_t product = 1;
    for (int i = first; i < last; i++)
        product *= shape->size[i];
    return product;
}

int64_t crl_shape_elements(const crl_shape *shape) {
    return crl_shape_product(shape, 0, shape->dimensions);
}

/* The product without zero sizes must fit too: later products of a part of the shape rely on it. */
crl_status crl_tensor_bytes(size_t *out, const crl_tensor_spec *spec, const char *what) {
    const crl_shape *shape = &spec->shape;
    if (shape->dimensions < 0 || shape->dimensions > CRL_MAX_DIMENSIONS)
        return CRL_FAIL(INVALID, "%s: %d dimensions, expected 0 to %d", what, shape->dimensions,
                        (int)CRL_MAX_DIMENSIONS);
    if (crl_dtype_bytes(spec->dtype) == 0)
        return CRL_FAIL(INVALID, "%s: element type is %d, expected 0 to %d", what, (int)spec->dtype,
                        CRL_DTYPE_COUNT - 1);
    size_t bytes = crl_dtype_bytes(spec->dtype);
    bool empty = false;
    for (int i = 0; i < shape->dimensions; i++) {
        if (shape->size[i] < 0)
            return CRL_FAIL(INVALID, "%s: size of dimension %d is %lld, expected 0 or more", what,
                            i, (long long)shape->size[i]);
        if (shape->size[i] == 0)
            empty = true;
        else
            CRL_TRY(crl_size_mul(&bytes, bytes, (size_t)shape->size[i], what));
    }
    if (bytes > (size_t)INT64_MAX)
        return CRL_FAIL(INVALID, "%s: size overflows", what);
    *out = empty ? 0 : bytes;
    return CRL_STATUS_OK;
}

char *crl_tensor_text(const crl_tensor_spec *spec, char *text, size_t text_bytes) {
    if (text_bytes == 0)
        return text;
    size_t used = (size_t)snprintf(text, text_bytes, "%s(", crl_dtype_name(spec->dtype));
    for (int i = 0; i < spec->shape.dimensions && used < text_bytes; i++)
        used += (size_t)snprintf(text + used, text_bytes - used, "%s%lld", i > 0 ? "," : "",
                                 (long long)spec->shape.size[i]);
    if (used < text_bytes)
        snprintf(text + used, text_bytes - used, ")");
    return text;
}
