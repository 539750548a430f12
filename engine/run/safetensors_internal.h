/* SPDX-License-Identifier: Apache-2.0 */
/* What the reader lends to checkpoints, and what reader and writer have to agree on. */
#pragma once

#include "engine/run/safetensors.h"

#ifdef __cplusplus
extern "C" {
#endif

enum {
    CRL_SAFETENSORS_PREFIX_BYTES = 8,
    CRL_SAFETENSORS_HEADER_LIMIT_BYTES = 100000000, /* the format's own limit */
    CRL_SAFETENSORS_LABEL_BYTES = 128
};

/* "<path>: tensor 'a.b'" for messages: control characters shown as '?', long texts cut. */
typedef struct crl_safetensors_label {
    char text[CRL_SAFETENSORS_LABEL_BYTES];
} crl_safetensors_label;
crl_safetensors_label crl_safetensors_label_of(const char *name);

/* Bytes [first, first + bytes) of a tensor. Blocking; any thread. IO. */
CRL_NODISCARD crl_status crl_safetensors_read_part(const crl_safetensors *file,
                                                   const crl_safetensors_item *item,
                                                   size_t first_bytes, void *data, size_t bytes);

#ifdef __cplusplus
}
#endif
