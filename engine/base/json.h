/* SPDX-License-Identifier: Apache-2.0 */
/* The little JSON the engine needs around jansson (which callers include themselves). */
#pragma once

#include <jansson.h>
#include <stdint.h>

#include "engine/base/status.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Parses `bytes` of text; duplicate keys are an error. `what` names the source in the message:
 * "<what>:line:col: ...". *out is owned by the caller (json_decref). */
CRL_NODISCARD crl_status crl_json_parse(json_t **out, const char *text, size_t bytes,
                                        const char *what);
/* The same of a file. NOT_FOUND, IO, INVALID, NOMEM. */
CRL_NODISCARD crl_status crl_json_load(json_t **out, const char *path);
/* Typed members: INVALID "<what>: 'key' is a string, expected an integer". Texts are lent. */
CRL_NODISCARD crl_status crl_json_get_int(int64_t *out, const json_t *object, const char *key,
                                          const char *what);
/* A text member; lent while the object lives. INVALID: missing or of another type. */
CRL_NODISCARD crl_status crl_json_get_text(const char **out, const json_t *object, const char *key,
                                           const char *what);

#ifdef __cplusplus
}
#endif
