/* SPDX-License-Identifier: Apache-2.0 */
/* Unpacking a gzip file that lies in memory. */
#pragma once

#include "engine/base/status.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Does it begin like a gzip stream? */
bool crl_gzip_recognise(const void *content, size_t bytes);
/* Unpacks all members of the stream into *out (owned by the caller, crl_free). `name` begins the
 * messages. INVALID when it is damaged or ends early, NOMEM. */
CRL_NODISCARD crl_status crl_gzip_expand(unsigned char **out, size_t *out_bytes, const char *name,
                                         const void *content, size_t bytes);

#ifdef __cplusplus
}
#endif
