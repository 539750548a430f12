/* SPDX-License-Identifier: Apache-2.0 */
/* What this folder says about an option row beyond the public contract. */
#pragma once

#include "engine/base/option.h"

#ifdef __cplusplus
extern "C" {
#endif

/* "1 to 8", "at least 1", "at most 8", or "" when the row has no limits. Returns `out`. */
const char *crl_option_limits(const crl_option *option, char *out, size_t out_bytes);

#ifdef __cplusplus
}
#endif
