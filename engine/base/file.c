/* SPDX-License-Identifier: Apache-2.0 */
/* Files by path. Refuses devices and pipes where a whole file is wanted. */
#include "engine/base/file.h"

#include "engine/base/alloc.h"
#include "engine/base/thread.h"

#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <unistd.h>

static crl_status fail_errno(const char *path, const char *verb, int code) {
    return code == ENOENT || code == ENOTDIR
               ? CRL_FAIL(NOT_FOUND, "%s: cannot be %s: %s", path, verb, strerror(code))
           : code == ENOMEM ? CRL_FAIL(NOMEM, "%s: cannot be %s: %s", path, verb, strerror(code))
                            : CRL_FAIL(IO, "%s: cannot be %s: %s", path, verb, strerror(code));
}

static const char *kind_name(mode_t mode) {
    return S_ISDIR(mode)    ? "a directory"
           : S_ISFIFO(mode) ? "a pipe"
           : S_ISCHR(mode)  ? "a character device"
           : S_ISBLK(mode)  ? "a block device"
           : S_ISSOCK(mode) ? "a socket"
                            : "a special file";
}

/* Non-blocking, so that a pipe without a writer is refused instead of waited for. */
static crl_status open_for_reading(int *out_fd, const char *path) {
    const int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (fd < 0) {
        const int code = errno;
        return code == ENOENT || code == ENOTDIR ? CRL_FAIL(NOT_FOUND, "%s: no such file", path)
                                                 : fail_errno(path, "opened", code);
    }
    *out_fd = fd;
    return CRL_STATUS_OK;
}

crl_status crl_file_open(int *out_fd, struct stat *out_facts, const char *path) {
    struct stat facts;
    int fd = -1;
    CRL_TRY(open_for_reading(&fd, path));
    const int code = fstat(fd, &facts) == 0 ? 0 : errno;
    if (code == 0 && S_ISREG(facts.st_mode)) {
        *out_fd = fd;
        *out_facts = facts;
        return CRL_STATUS_OK;
    }
    close(fd);
    return code != 0 ? fail_errno(path, "examined", code)
                     : CRL_FAIL(INVALID, "%s: is %s, expected a regular file", path,
                                kind_name(facts.st_mode));
}

/* Up to `bytes` from `offset_bytes` on: fewer when the file ends there. */
static crl_status read_some(size_t *out_bytes, int fd, const char *path, char *out, size_t bytes,
                            int64_t offset_bytes) {
    size_t done = 0;
    while (done < bytes) {
        const ssize_t got = pread(fd, out + done, bytes - done, offset_bytes + (int64_t)done);
        if (got == 0) {
            break;
        }
        if (got > 0) {
            done += (size_t)got;
        } else if (errno != EINTR) {
            return CRL_FAIL(IO, "%s: cannot be read at byte %" PRId64 ": %s", path,
                            offset_bytes + (int64_t)done, strerror(errno));
        }
    }
    *out_bytes = done;
    return CRL_STATUS_OK;
}

crl_status crl_file_read_at(int fd, const char *path, void *out, size_t bytes,
                            int64_t offset_bytes) {
    size_t done;
    CRL_TRY(read_some(&done, fd, path, out, bytes, offset_bytes));
    if (done < bytes) {
        return CRL_FAIL(IO, "%s: ends at byte %" PRId64 ", expected %" PRId64 " bytes or more",
                        path, offset_bytes + (int64_t)done, offset_bytes + (int64_t)bytes);
    }
    return CRL_STATUS_OK;
}

crl_status crl_file_read(char **out, size_t *out_bytes, const char *path, size_t limit_bytes) {
    crl_status status;
    int fd = -1;
    struct stat facts;
    char *text = NULL;
    size_t bytes;
    CRL_TRY(crl_file_open(&fd, &facts, path));
    if ((uint64_t)facts.st_size > limit_bytes) {
        CRL_TRY_OUT(CRL_FAIL(INVALID, "%s: is %" PRId64 " bytes long, expected at most %zu", path,
                             (int64_t)facts.st_size, limit_bytes));
    }
    CRL_TRY_OUT(crl_alloc(&text, (size_t)facts.st_size + 1, 1));
    /* A file that is cut while it is read gives what there is of it. */
    CRL_TRY_OUT(read_some(&bytes, fd, path, text, (size_t)facts.st_size, 0));
    text[bytes] = '\0';
    *out = text;
    *out_bytes = bytes;
    text = NULL;
out:
    crl_free(text);
    close(fd);
    return status;
}

bool crl_file_name_ends(const char *path, const char *ending) {
    const size_t length = strlen(path), tail = strlen(ending);
    return length >= tail && strcmp(path + length - tail, ending) == 0;
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

crl_status crl_file_lock(int *out_fd, const char *path) {
    const int fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0666);
    if (fd < 0) {
        return CRL_FAIL(IO, "%s: cannot be opened: %s", path, strerror(errno));
    }
    /* Some network file systems have no locks: better a run without one than none. */
    if (flock(fd, LOCK_EX | LOCK_NB) != 0 && errno != ENOLCK && errno != EOPNOTSUPP) {
        const int code = errno;
        close(fd);
        if (code == EWOULDBLOCK) {
            return CRL_FAIL(INVALID, "%s: held by another process", path);
        }
        return CRL_FAIL(IO, "%s: cannot be locked: %s", path, strerror(code));
    }
    *out_fd = fd;
    return CRL_STATUS_OK;
}
