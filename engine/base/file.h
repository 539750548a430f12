/* SPDX-License-Identifier: Apache-2.0 */
/* Files and directories by path, and writing that never leaves a half-written file behind. */
#pragma once

#include <stdint.h>
#include <sys/stat.h>

#include "engine/base/status.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Everything here blocks and is local. Failures of the file system: NOT_FOUND, NOMEM or IO. */

/* Opens a regular file for reading, to be closed by the caller; INVALID for anything else. Never
 * waits, whatever the path names. */
CRL_NODISCARD crl_status crl_file_open(int *out_fd, struct stat *out_facts, const char *path);
/* Reads exactly `bytes` from `offset_bytes` on; IO when the file ends before. */
CRL_NODISCARD crl_status crl_file_read_at(int fd, const char *path, void *out, size_t bytes,
                                          int64_t offset_bytes);
/* Reads a whole regular file; a zero byte follows the content. Owned by the caller (crl_free).
 * INVALID when larger than `limit_bytes`. */
CRL_NODISCARD crl_status crl_file_read(char **out, size_t *out_bytes, const char *path,
                                       size_t limit_bytes);
/* Does `path` end in `ending` (".bin")? */
bool crl_file_name_ends(const char *path, const char *ending);
/* mkdir -p. INVALID when a file stands there. */
CRL_NODISCARD crl_status crl_file_make_directory(const char *path);
/* Removes a file or a directory with everything in it; a missing one is fine. */
CRL_NODISCARD crl_status crl_file_remove(const char *path);
/* Makes the file if it is not there and locks it (flock) until `*out_fd` is closed. INVALID when
 * another process holds it. */
CRL_NODISCARD crl_status crl_file_lock(int *out_fd, const char *path);
/* fsync of a file or directory by path. */
CRL_NODISCARD crl_status crl_file_sync(const char *path);
/* rename(2) and fsync of the directory it stands in. */
CRL_NODISCARD crl_status crl_file_rename(const char *from, const char *to);
/* The whole content under a temporary name, synced, renamed: all of it or nothing. */
CRL_NODISCARD crl_status crl_file_write_atomic(const char *path, const void *content, size_t bytes);

#ifdef __cplusplus
}
#endif
