/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Writing safetensors files, in one pass and with bounded memory: the header follows from the
 * declared tensors alone. Refuses to be finished before exactly the declared bytes were given;
 * until then nothing is at the path.
 */
#include "engine/run/safetensors.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "engine/run/safetensors_internal.h"
#include "engine/base/alloc.h"
#include "engine/base/file.h"
#include "engine/base/json.h"

struct crl_safetensors_writer {
    char *path, *temporary;
    int descriptor; /* -1: no file */
    size_t declared_bytes, written_bytes;
};

#define LABEL(name) crl_safetensors_label_of(name).text

/* -- header ------------------------------------------------------------------------------------ */

static crl_status no_json(const char *path, const char *what) {
    return CRL_FAIL(INVALID, "%s: '%s' cannot be written as JSON, expected UTF-8 text", path,
                    LABEL(what));
}

/* Takes `value` over, also when it fails. */
static crl_status add_member(json_t *header, const char *key, json_t *value, const char *path) {
    if (json_object_get(header, key)) {
        json_decref(value);
        return CRL_FAIL(INVALID, "%s: '%s' is declared twice", path, LABEL(key));
    }
    return json_object_set_new(header, key, value) == 0 ? CRL_STATUS_OK : no_json(path, key);
}

static crl_status add_metadata(json_t *header, const char *const *metadata, const char *path) {
    if (!metadata || !metadata[0]) {
        return CRL_STATUS_OK;
    }
    json_t *object = json_object();
    for (int i = 0; metadata[i]; i += 2) {
        const crl_status status =
            add_member(object, metadata[i], json_string(metadata[i + 1]), path);
        if (status != CRL_STATUS_OK) {
            json_decref(object);
            return status;
        }
    }
    return add_member(header, "__metadata__", object, path);
}

static crl_status add_item(json_t *header, const crl_safetensors_item *item, size_t *end_bytes,
                           const char *path) {
    size_t bytes, end;
    char what[3 * CRL_SAFETENSORS_LABEL_BYTES];
    if (strcmp(item->name, "__metadata__") == 0) {
        return CRL_FAIL(INVALID, "%s: a tensor is called '__metadata__', expected another name",
                        path);
    }
    snprintf(what, sizeof what, "%s: tensor '%s'", LABEL(path), LABEL(item->name));
    CRL_TRY(crl_tensor_bytes(&bytes, &item->spec, what));
    CRL_TRY(crl_size_add(&end, *end_bytes, bytes, what));
    if (end > INT64_MAX) {
        return CRL_FAIL(INVALID, "%s: size overflows", what);
    }
    json_t *shape = json_array();
    for (int i = 0; i < item->spec.shape.dimensions; ++i) {
        json_array_append_new(shape, json_integer(item->spec.shape.size[i]));
    }
    json_t *entry =
        json_pack("{s:s, s:o, s:[I,I]}", "dtype", crl_dtype_safetensors_name(item->spec.dtype),
                  "shape", shape, "data_offsets", (json_int_t)*end_bytes, (json_int_t)end);
    *end_bytes = end;
    return add_member(header, item->name, entry, path);
}

static crl_status write_all(crl_safetensors_writer *writer, const void *data, size_t bytes) {
    for (size_t done = 0; done < bytes;) {
        const ssize_t put = write(writer->descriptor, (const char *)data + done, bytes - done);
        if (put >= 0) {
            done += (size_t)put;
        } else if (errno != EINTR) {
            return CRL_FAIL(IO, "%s: cannot be written: %s", writer->path, strerror(errno));
        }
    }
    return CRL_STATUS_OK;
}

/* Padded with spaces, so that the data begins at a multiple of 8. */
static crl_status write_header(crl_safetensors_writer *writer, const json_t *header) {
    crl_status status = CRL_STATUS_OK;
    char *padded = NULL;
    char *text = json_dumps(header, JSON_COMPACT);
    if (!text) {
        return CRL_FAIL(NOMEM, "%s: no memory for the header", writer->path);
    }
    const size_t length = strlen(text), size = (length + 7) / 8 * 8;
    if (size > CRL_SAFETENSORS_HEADER_LIMIT_BYTES) {
        status = CRL_FAIL(INVALID, "%s: header is %zu bytes long, expected at most %d",
                          writer->path, size, CRL_SAFETENSORS_HEADER_LIMIT_BYTES);
        goto out;
    }
    CRL_TRY_OUT(crl_alloc(&padded, size + CRL_SAFETENSORS_PREFIX_BYTES, 1));
    for (int i = 0; i < CRL_SAFETENSORS_PREFIX_BYTES; ++i) {
        padded[i] = (char)(unsigned char)(size >> (8 * i) & 0xff);
    }
    memset(padded + CRL_SAFETENSORS_PREFIX_BYTES, ' ', size);
    memcpy(padded + CRL_SAFETENSORS_PREFIX_BYTES, text, length);
    CRL_TRY_OUT(write_all(writer, padded, size + CRL_SAFETENSORS_PREFIX_BYTES));
out:
    crl_free(padded);
    free(text);
    return status;
}

/* -- the writer -------------------------------------------------------------------------------- */

static crl_status begin(crl_safetensors_writer *writer, json_t *header,
                        const crl_safetensors_item *item, int items, const char *const *metadata) {
    CRL_TRY(add_metadata(header, metadata, writer->path));
    for (int i = 0; i < items; ++i) {
        CRL_TRY(add_item(header, &item[i], &writer->declared_bytes, writer->path));
    }
    writer->descriptor = open(writer->temporary, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
    if (writer->descriptor < 0) {
        return CRL_FAIL(IO, "%s: cannot be created: %s", writer->path, strerror(errno));
    }
    CRL_TRY(write_header(writer, header));
    return CRL_STATUS_OK;
}

crl_status crl_safetensors_writer_create(crl_safetensors_writer **out, const char *path,
                                         const crl_safetensors_item *item, int items,
                                         const char *const *metadata) {
    crl_status status = CRL_STATUS_OK;
    crl_safetensors_writer *writer = NULL;
    json_t *header = NULL;
    CRL_TRY_OUT(crl_alloc(&writer, 1, sizeof *writer));
    writer->descriptor = -1;
    CRL_TRY_OUT(crl_alloc_text(&writer->path, path));
    CRL_TRY_OUT(crl_alloc_format(&writer->temporary, "%s.tmp", path));
    header = json_object();
    CRL_TRY_OUT(begin(writer, header, item, items, metadata));
    *out = writer;
    writer = NULL;
out:
    json_decref(header);
    crl_safetensors_writer_destroy(writer);
    return status;
}

crl_status crl_safetensors_writer_append(crl_safetensors_writer *writer, const void *data,
                                         size_t bytes) {
    if (bytes > writer->declared_bytes - writer->written_bytes) {
        return CRL_FAIL(INVALID, "%s: data is longer than the %zu bytes declared", writer->path,
                        writer->declared_bytes);
    }
    CRL_TRY(write_all(writer, data, bytes));
    writer->written_bytes += bytes;
    return CRL_STATUS_OK;
}

crl_status crl_safetensors_writer_finish(crl_safetensors_writer *writer) {
    if (writer->written_bytes != writer->declared_bytes) {
        return CRL_FAIL(INVALID, "%s: data is %zu bytes long, declared are %zu", writer->path,
                        writer->written_bytes, writer->declared_bytes);
    }
    const int synced = fsync(writer->descriptor) == 0 ? 0 : errno;
    const int closed = close(writer->descriptor) == 0 ? 0 : errno;
    writer->descriptor = -1;
    crl_status status;
    if (synced != 0 || closed != 0) {
        status = CRL_FAIL(IO, "%s: cannot be written: %s", writer->path,
                          strerror(synced != 0 ? synced : closed));
    } else {
        status = crl_file_rename(writer->temporary, writer->path);
    }
    if (status != CRL_STATUS_OK) {
        unlink(writer->temporary);
    }
    return status;
}

void crl_safetensors_writer_destroy(crl_safetensors_writer *writer) {
    if (!writer) {
        return;
    }
    if (writer->descriptor >= 0) { /* not finished */
        close(writer->descriptor);
        unlink(writer->temporary);
    }
    crl_free(writer->temporary);
    crl_free(writer->path);
    crl_free(writer);
}
