/* SPDX-License-Identifier: Apache-2.0 */
/* Whole files and directories, and writing that never leaves a half-written file behind. */
#pragma once

#include <stdint.h>
#include <stdio.h>

#include "engine/base/status.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Reads a whole regular file; a zero byte follows the content. Owned by the caller (crl_free).
 * NOT_FOUND, IO, INVALID when larger than `limit_bytes`. */
CRL_NODISCARD crl_status crl_file_read(char **out, size_t *out_bytes, const char *path,
                                       size_t limit_bytes);
CRL_NODISCARD crl_status crl_file_size(int64_t *out_bytes, const char *path);
/* mkdir -p */
CRL_NODISCARD crl_status crl_file_make_directory(const char *path);
/* Removes a file or a directory with everything in it; a missing one is fine. */
CRL_NODISCARD crl_status crl_file_remove(const char *path);
/* fsync of a file or directory by path. */
CRL_NODISCARD crl_status crl_file_sync(const char *path);
/* rename(2) and fsync of the directory it stands in. */
CRL_NODISCARD crl_status crl_file_rename(const char *from, const char *to);
/* The whole content under a temporary name, synced, renamed: all of it or nothing. */
CRL_NODISCARD crl_status crl_file_write_atomic(const char *path, const void *content, size_t bytes);

#ifdef __cplusplus
}
#endif
