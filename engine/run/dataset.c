/* SPDX-License-Identifier: Apache-2.0 */
/* Choosing a dataset format by name or by the file itself. Refuses to guess when nothing fits. */
#include "engine/run/dataset.h"

#include <string.h>
#include <unistd.h>

#include "engine/base/file.h"
#include "engine/base/registry.h"

enum { HEAD_BYTES = 64, NAMES_BYTES = 512 };

static crl_status read_head(unsigned char head[HEAD_BYTES], size_t *out_bytes, const char *path) {
    struct stat facts;
    int fd;
    CRL_TRY(crl_file_open(&fd, &facts, path));
    const size_t bytes = facts.st_size < HEAD_BYTES ? (size_t)facts.st_size : HEAD_BYTES;
    crl_status status = bytes == 0 ? CRL_FAIL(INVALID, "%s: is empty, expected a data set", path)
                                   : crl_file_read_at(fd, path, head, bytes, 0);
    close(fd);
    *out_bytes = bytes;
    return status;
}

static crl_status recognise(const crl_dataset_format **out, const void *const *formats,
                            const crl_dataset_config *config) {
    unsigned char head[HEAD_BYTES];
    size_t bytes;
    if (config->path.count < 1) {
        return CRL_FAIL(INVALID, "dataset: no files given, expected at least 1");
    }
    const char *path = config->path.item[0];
    CRL_TRY(read_head(head, &bytes, path));
    for (; *formats; ++formats) {
        const crl_dataset_format *format = *formats;
        if (format->recognise && format->recognise(path, head, bytes)) {
            *out = format;
            return CRL_STATUS_OK;
        }
    }
    return CRL_STATUS_OK;
}

crl_status crl_dataset_format_find(const crl_dataset_format **out, const void *const *formats,
                                   const char *name, const crl_dataset_config *config) {
    const void *found = NULL;
    const crl_dataset_format *format = NULL;
    if (strcmp(name, "auto") != 0) {
        CRL_TRY(crl_registry_find(&found, formats, "dataset format", name));
        *out = found;
        return CRL_STATUS_OK;
    }
    CRL_TRY(recognise(&format, formats, config));
    if (!format) {
        char names[NAMES_BYTES];
        crl_registry_names(formats, names, sizeof names);
        return CRL_FAIL(INVALID, "%s: not recognised as a data set, expected one of: %s",
                        config->path.item[0], names);
    }
    *out = format;
    return CRL_STATUS_OK;
}
