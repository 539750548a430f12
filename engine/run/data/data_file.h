/* SPDX-License-Identifier: Apache-2.0 */
/* Opening data files that come from a user: regular files only, with messages that name the path.
 */
#pragma once

#include <stdint.h>
#include <sys/stat.h>

#include "engine/base/status.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Opens a regular file for reading; the caller closes *out_fd. NOT_FOUND, INVALID (not a regular
 * file), IO. Never blocks, whatever the path names. */
CRL_NODISCARD crl_status crl_data_file_open(int *out_fd, struct stat *out_facts, const char *path);
/* Reads exactly `bytes` at `offset_bytes`. IO when the file ends before. */
CRL_NODISCARD crl_status crl_data_file_read_at(int fd, const char *path, void *out, size_t bytes,
                                               int64_t offset_bytes);
/* Does `path` end in `ending` (".bin")? */
bool crl_data_file_ends(const char *path, const char *ending);

#ifdef __cplusplus
}
#endif
