/* SPDX-License-Identifier: Apache-2.0 */
/* The defaults of a transformer, filled in. */
#pragma once

#include "partition/transformer.h"

typedef struct transformer_sizes {
    double layers, hidden, heads, sequence, vocabulary, feed_forward, batch;
    double tensor; /* t */
    double norm;   /* by what norms and dropouts are divided: t or 1 */
    double element_bytes, gradient_bytes, state_bytes, shards;
    double rows;     /* B · T */
    double activity; /* B · T · C: elements of what flows between layers */
    double scores;   /* B · H/t · T²: elements of a device's attention scores */
} transformer_sizes;

transformer_sizes crl_transformer_sizes(const crl_transformer *model);
