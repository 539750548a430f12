/* SPDX-License-Identifier: Apache-2.0 */
/* An IDX file in memory (the MNIST family): u8 arrays with a big-endian header. */
#pragma once

#include "engine/tensor/tensor.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct crl_idx {
    crl_shape shape;           /* as in the file; dimension 0 counts the samples */
    const unsigned char *data; /* shape's elements; lent from `content` */
} crl_idx;

/* Checks an unpacked IDX file and finds its parts; also the fuzz target. `name` begins the
 * messages. INVALID. */
CRL_NODISCARD crl_status crl_idx_parse(crl_idx *out, const char *name, const void *content,
                                       size_t bytes);

#ifdef __cplusplus
}
#endif
