/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A registry is a NULL-terminated array of pointers to plug-in tables that all begin with
 * `const char *name; const char *help;`. Adding a plug-in is one line in a .def file.
 */
#pragma once

#include "engine/base/status.h"

#ifdef __cplusplus
extern "C" {
#endif

/* The common beginning of every plug-in table. */
typedef struct crl_plugin {
    const char *name;
    const char *help;
} crl_plugin;

/* Finds `name`; NOT_FOUND: "unknown <kind> 'x', did you mean 'y'? (choices: a, b, c)". Lends. */
CRL_NODISCARD crl_status crl_registry_find(const void **out, const void *const *registry,
                                           const char *kind, const char *name);
/* "a, b, c" into `text`. */
void crl_registry_names(const void *const *registry, char *text, size_t text_bytes);

#ifdef __cplusplus
}
#endif
