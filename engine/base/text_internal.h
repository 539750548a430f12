/* SPDX-License-Identifier: Apache-2.0 */
/* Small text helpers of this folder: what a message may quote, and how far two names are apart. */
#pragma once

#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif

enum { CRL_QUOTE_BYTES = 96 };

/* What a user gave, fit for a one-line message: control characters become '?', and what does not
 * fit in `out_bytes` ends in "...". Returns `out`. */
const char *crl_text_quote(char *out, size_t out_bytes, const char *text);

/* Edits (insert, delete, replace, swap of neighbours) from `a` to `b`, case and '-'/'_' aside;
 * -1: too many to take one for a slip of the other. */
int crl_name_distance(const char *a, const char *b);

#ifdef __cplusplus
}
#endif
