/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Profiles as files: YAML that a person can write, docs/profile-format.md. What is written reads
 * back to the same numbers, bit by bit.
 */
#pragma once

#include <stdio.h>

#include "engine/ir/profile.h"

#ifdef __cplusplus
extern "C" {
#endif

enum { CRL_PROFILE_FORMAT = 1, CRL_PROFILE_MOST_UNITS = 20000 };

/* Profiles of one model for micro-batches of several sizes, ascending. Zero-initialise. */
typedef struct crl_profile_list {
    int count;
    crl_profile **item;
} crl_profile_list;

/* Destroys the profiles; one that is all zero is fine. */
void crl_profile_list_fini(crl_profile_list *list);
/* Reads a file: one profile, or a list of them. INVALID "file:line:col: ...": unknown or missing
 * keys, wrong numbers, names that are twice there or not there yet, profiles of one list whose
 * units differ or whose micro-batches do not ascend. NOT_FOUND, IO, NOMEM. */
CRL_NODISCARD crl_status crl_profile_file_read(crl_profile_list *out, const char *path);
/* The same of text; `name` stands for the file in messages. */
CRL_NODISCARD crl_status crl_profile_file_parse(crl_profile_list *out, const char *name,
                                                const char *text, size_t bytes);
/* Writes one profile, or a list of several. NOMEM; failures of `out` are the caller's to find. */
CRL_NODISCARD crl_status crl_profile_file_write(const crl_profile *const *profile, int count,
                                                FILE *out);

#ifdef __cplusplus
}
#endif
