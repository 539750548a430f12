/* SPDX-License-Identifier: Apache-2.0 */
/* Files by path. Refuses devices and pipes where a whole file is wanted. */
#include "engine/base/file.h"

#include "engine/base/alloc.h"
#include "engine/base/thread.h"

#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <inttypes.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static crl_status fail_errno(const char *path, const char *verb, int code) {
    return code == ENOENT || code == ENOTDIR
               ? CRL_FAIL(NOT_FOUND, "%s: cannot be %s: %s", path, verb, strerror(code))
           : code == ENOMEM ? CRL_FAIL(NOMEM, "%s: cannot be %s: %s", path, verb, strerror(code))
                            : CRL_FAIL(IO, "%s: cannot be %s: %s", path, verb, strerror(code));
}

static crl_status regular_size(int64_t *out_bytes, int file, const char *path) {
    struct stat info;
    if (fstat(file, &info) != 0) {
        return fail_errno(path, "read", errno);
    }
    if (!S_ISREG(info.st_mode)) {
        return CRL_FAIL(INVALID, "%s: is %s, expected a regular file", path,
                        S_ISDIR(info.st_mode) ? "a directory" : "a device or pipe");
    }
    *out_bytes = info.st_size;
    return CRL_STATUS_OK;
}

/* Non-blocking, so that a pipe without a writer is refused instead of waited for. */
static crl_status open_for_reading(int *out, const char *path) {
    const int file = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (file < 0) {
        return fail_errno(path, "opened", errno);
    }
    *out = file;
    return CRL_STATUS_OK;
}

static crl_status read_all(size_t *out_bytes, int file, char *text, size_t bytes,
                           const char *path) {
    size_t done = 0;
    while (done < bytes) {
        const ssize_t got = read(file, text + done, bytes - done);
        if (got < 0 && errno == EINTR) {
            continue;
        }
        if (got < 0) {
            return fail_errno(path, "read", errno);
        }
        if (got == 0) {
            break; /* cut while it was read */
        }
        done += (size_t)got;
    }
    *out_bytes = done;
    return CRL_STATUS_OK;
}

crl_status crl_file_read(char **out, size_t *out_bytes, const char *path, size_t limit_bytes) {
    crl_status status = CRL_STATUS_OK;
    int file = -1;
    char *text = NULL;
    int64_t size_bytes = 0;
    size_t bytes = 0;
    CRL_TRY_OUT(open_for_reading(&file, path));
    CRL_TRY_OUT(regular_size(&size_bytes, file, path));
    if ((uint64_t)size_bytes > limit_bytes) {
        status = CRL_FAIL(INVALID, "%s: is %" PRId64 " bytes long, expected at most %zu", path,
                          size_bytes, limit_bytes);
        goto out;
    }
    CRL_TRY_OUT(crl_alloc(&text, (size_t)size_bytes + 1, 1));
    CRL_TRY_OUT(read_all(&bytes, file, text, (size_t)size_bytes, path));
    text[bytes] = '\0';
    *out = text;
    *out_bytes = bytes;
    text = NULL;
out:
    crl_free(text);
    if (file >= 0) {
        close(file);
    }
    return status;
}

crl_status crl_file_size(int64_t *out_bytes, const char *path) {
    int file = -1;
    CRL_TRY(open_for_reading(&file, path));
    const crl_status status = regular_size(out_bytes, file, path);
    close(file);
    CRL_TRY(status);
    return CRL_STATUS_OK;
}

crl_status crl_file_make_directory(const char *path) {
    char *part;
    CRL_TRY(crl_alloc_text(&part, path));
    crl_status status = CRL_STATUS_OK;
    struct stat info;
    for (char *at = part + (*part == '/');; ++at) {
        if (*at != '/' && *at != '\0') {
            continue;
        }
        const char end = *at;
        *at = '\0';
        if (*part && mkdir(part, 0777) != 0 && errno != EEXIST) {
            status = fail_errno(part, "made", errno);
            break;
        }
        if (end == '\0') {
            break;
        }
        *at = end;
    }
    if (status == CRL_STATUS_OK && stat(path, &info) != 0) {
        status = fail_errno(path, "made", errno);
    } else if (status == CRL_STATUS_OK && !S_ISDIR(info.st_mode)) {
        status = CRL_FAIL(INVALID, "%s: is a file, expected a directory", path);
    }
    crl_free(part);
    return status;
}

static int remove_one(const char *path, const struct stat *info, int kind, struct FTW *place) {
    (void)info;
    (void)kind;
    (void)place;
    return remove(path) != 0 && errno != ENOENT ? errno : 0;
}

crl_status crl_file_remove(const char *path) {
    const int open_directories = 16;
    errno = 0;
    const int code = nftw(path, remove_one, open_directories, FTW_DEPTH | FTW_PHYS);
    if (code > 0) {
        return fail_errno(path, "removed", code);
    }
    if (code < 0 && errno != ENOENT) {
        return fail_errno(path, "removed", errno);
    }
    return CRL_STATUS_OK;
}

crl_status crl_file_sync(const char *path) {
    int file = -1;
    CRL_TRY(open_for_reading(&file, path));
    const int code = fsync(file) == 0 ? 0 : errno;
    close(file);
    return code == 0 ? CRL_STATUS_OK : fail_errno(path, "synced", code);
}

static crl_status sync_parent(const char *path) {
    char *parent;
    CRL_TRY(crl_alloc_text(&parent, path));
    char *slash = strrchr(parent, '/');
    if (slash) {
        slash[slash == parent] = '\0';
    }
    const crl_status status = crl_file_sync(slash ? parent : ".");
    crl_free(parent);
    CRL_TRY(status);
    return CRL_STATUS_OK;
}

crl_status crl_file_rename(const char *from, const char *to) {
    if (rename(from, to) != 0) {
        const int code = errno;
        return code == ENOENT
                   ? CRL_FAIL(NOT_FOUND, "%s: cannot be renamed to %s: %s", from, to,
                              strerror(code))
                   : CRL_FAIL(IO, "%s: cannot be renamed to %s: %s", from, to, strerror(code));
    }
    CRL_TRY(sync_parent(to));
    return CRL_STATUS_OK;
}

/* Writes, syncs and closes; the file is closed in any case. */
static int write_all(int file, const char *content, size_t bytes) {
    int code = 0;
    for (size_t done = 0; done < bytes && code == 0;) {
        const ssize_t put = write(file, content + done, bytes - done);
        if (put >= 0) {
            done += (size_t)put;
        } else if (errno != EINTR) {
            code = errno;
        }
    }
    if (code == 0 && fsync(file) != 0) {
        code = errno;
    }
    if (close(file) != 0 && code == 0) {
        code = errno;
    }
    return code;
}

crl_status crl_file_write_atomic(const char *path, const void *content, size_t bytes) {
    char *temporary;
    CRL_TRY(crl_alloc_format(&temporary, "%s.%ld-%" PRId64 ".tmp", path, (long)getpid(),
                             crl_clock_ns()));
    crl_status status = CRL_STATUS_OK;
    const int file = open(temporary, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    const int code = file < 0 ? errno : write_all(file, content, bytes);
    if (code != 0) {
        status = fail_errno(path, "written", code);
    } else {
        status = crl_file_rename(temporary, path);
    }
    if (status != CRL_STATUS_OK && file >= 0) {
        unlink(temporary); /* fails when only the sync after the rename failed: then it is gone */
    }
    crl_free(temporary);
    CRL_TRY(status);
    return CRL_STATUS_OK;
}
