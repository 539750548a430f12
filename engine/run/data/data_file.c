/* SPDX-License-Identifier: Apache-2.0 */
/* Opening and reading data files. Refuses anything but regular files. */
#include "engine/run/data/data_file.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <string.h>
#include <unistd.h>

static const char *kind_name(mode_t mode) {
    return S_ISDIR(mode)    ? "a directory"
           : S_ISFIFO(mode) ? "a pipe"
           : S_ISCHR(mode)  ? "a character device"
           : S_ISBLK(mode)  ? "a block device"
           : S_ISSOCK(mode) ? "a socket"
                            : "a special file";
}

crl_status crl_data_file_open(int *out_fd, struct stat *out_facts, const char *path) {
    /* O_NONBLOCK: opening a pipe nobody writes to would wait for ever. */
    const int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (fd < 0) {
        const int code = errno;
        return code == ENOENT || code == ENOTDIR
                   ? CRL_FAIL(NOT_FOUND, "%s: no such file", path)
                   : CRL_FAIL(IO, "%s: cannot be opened: %s", path, strerror(code));
    }
    struct stat facts;
    if (fstat(fd, &facts) != 0) {
        const int code = errno;
        close(fd);
        return CRL_FAIL(IO, "%s: cannot be examined: %s", path, strerror(code));
    }
    if (!S_ISREG(facts.st_mode)) {
        close(fd);
        return CRL_FAIL(INVALID, "%s: is %s, expected a regular file", path,
                        kind_name(facts.st_mode));
    }
    *out_fd = fd;
    *out_facts = facts;
    return CRL_STATUS_OK;
}

crl_status crl_data_file_read_at(int fd, const char *path, void *out, size_t bytes,
                                 int64_t offset_bytes) {
    size_t done = 0;
    while (done < bytes) {
        const ssize_t got =
            pread(fd, (char *)out + done, bytes - done, offset_bytes + (int64_t)done);
        if (got > 0) {
            done += (size_t)got;
        } else if (got == 0) {
            return CRL_FAIL(IO, "%s: ends at byte %" PRId64 ", expected %" PRId64 " bytes or more",
                            path, offset_bytes + (int64_t)done, offset_bytes + (int64_t)bytes);
        } else if (errno != EINTR) {
            return CRL_FAIL(IO, "%s: cannot be read at byte %" PRId64 ": %s", path,
                            offset_bytes + (int64_t)done, strerror(errno));
        }
    }
    return CRL_STATUS_OK;
}

bool crl_data_file_ends(const char *path, const char *ending) {
    const size_t length = strlen(path), tail = strlen(ending);
    return length >= tail && strcmp(path + length - tail, ending) == 0;
}
