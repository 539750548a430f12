/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Reading safetensors files.
 *
 *      u64 N | JSON of N bytes: {"a.w": {"dtype", "shape", "data_offsets"}, ...} | data
 *            8                                                                  8+N
 *
 * Refuses, before any data is read: a size field that lies, JSON that is not exactly of this form,
 * element types it does not know, shapes whose bytes overflow or differ from their offsets, and
 * data with holes, overlaps or a tail. Members of a tensor it does not know are ignored, as the
 * format lets them be.
 */
#include "engine/run/safetensors.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "engine/run/safetensors_internal.h"
#include "engine/base/alloc.h"
#include "engine/base/file.h"
#include "engine/base/json.h"

struct crl_safetensors {
    char *path;
    int descriptor;             /* -1: parsed from memory */
    json_t *header;             /* owns all names and metadata */
    crl_safetensors_item *item; /* in file order */
    const crl_safetensors_item **by_name;
    int items;
};

crl_safetensors_label crl_safetensors_label_of(const char *name) {
    crl_safetensors_label label = {0};
    size_t i = 0;
    for (; name[i] && i < sizeof label.text - 4; ++i) {
        const unsigned char c = (unsigned char)name[i];
        label.text[i] = c < 0x20 || c == 0x7f ? '?' : name[i];
    }
    if (name[i]) {
        memcpy(label.text + i, "...", 3);
    }
    return label;
}

#define LABEL(name) crl_safetensors_label_of(name).text

/* -- one tensor of the header ------------------------------------------------------------------ */

static crl_status parse_shape(crl_shape *out, const json_t *shape, const char *path,
                              const char *name) {
    if (!json_is_array(shape)) {
        return CRL_FAIL(INVALID, "%s: tensor '%s' has no list 'shape'", path, LABEL(name));
    }
    const size_t dimensions = json_array_size(shape);
    if (dimensions > CRL_MAX_DIMENSIONS) {
        return CRL_FAIL(INVALID, "%s: tensor '%s' has %zu dimensions, expected at most %d", path,
                        LABEL(name), dimensions, CRL_MAX_DIMENSIONS);
    }
    *out = (crl_shape){.dimensions = (int)dimensions};
    for (size_t i = 0; i < dimensions; ++i) {
        const json_t *size = json_array_get(shape, i);
        if (!json_is_integer(size) || json_integer_value(size) < 0) {
            return CRL_FAIL(INVALID,
                            "%s: tensor '%s': size of dimension %zu is no integer from 0 up", path,
                            LABEL(name), i);
        }
        out->size[i] = json_integer_value(size);
    }
    return CRL_STATUS_OK;
}

static crl_status parse_offsets(int64_t out[2], const json_t *offsets, const char *path,
                                const char *name) {
    if (!json_is_array(offsets) || json_array_size(offsets) != 2) {
        return CRL_FAIL(INVALID, "%s: tensor '%s' has no two 'data_offsets'", path, LABEL(name));
    }
    for (size_t i = 0; i < 2; ++i) {
        const json_t *offset = json_array_get(offsets, i);
        if (!json_is_integer(offset) || json_integer_value(offset) < 0) {
            return CRL_FAIL(INVALID, "%s: tensor '%s': data_offsets[%zu] is no integer from 0 up",
                            path, LABEL(name), i);
        }
        out[i] = json_integer_value(offset);
    }
    return CRL_STATUS_OK;
}

/* item->offset_bytes is left relative to the data. */
static crl_status parse_item(crl_safetensors_item *item, const char *name, const json_t *entry,
                             const char *path) {
    if (!json_is_object(entry)) {
        return CRL_FAIL(INVALID, "%s: tensor '%s' is no JSON object", path, LABEL(name));
    }
    const char *dtype = json_string_value(json_object_get(entry, "dtype"));
    if (!dtype) {
        return CRL_FAIL(INVALID, "%s: tensor '%s' has no text 'dtype'", path, LABEL(name));
    }
    item->name = name;
    item->spec.dtype = CRL_DTYPE_COUNT;
    for (int i = 0; i < CRL_DTYPE_COUNT; ++i) {
        if (strcmp(dtype, crl_dtype_safetensors_name((crl_dtype)i)) == 0) {
            item->spec.dtype = (crl_dtype)i;
        }
    }
    if (item->spec.dtype == CRL_DTYPE_COUNT) {
        return CRL_FAIL(INVALID, "%s: tensor '%s' has the unknown element type '%s'", path,
                        LABEL(name), LABEL(dtype));
    }
    int64_t offset[2];
    size_t bytes;
    char what[3 * CRL_SAFETENSORS_LABEL_BYTES];
    CRL_TRY(parse_shape(&item->spec.shape, json_object_get(entry, "shape"), path, name));
    CRL_TRY(parse_offsets(offset, json_object_get(entry, "data_offsets"), path, name));
    snprintf(what, sizeof what, "%s: tensor '%s'", LABEL(path), LABEL(name));
    CRL_TRY(crl_tensor_bytes(&bytes, &item->spec, what));
    if (offset[1] < offset[0] || (uint64_t)(offset[1] - offset[0]) != bytes) {
        char text[CRL_SAFETENSORS_LABEL_BYTES];
        return CRL_FAIL(INVALID,
                        "%s: tensor '%s': data_offsets are %" PRId64 " to %" PRId64
                        ", expected %zu bytes for %s",
                        path, LABEL(name), offset[0], offset[1], bytes,
                        crl_tensor_text(&item->spec, text, sizeof text));
    }
    item->offset_bytes = offset[0];
    item->bytes = bytes;
    return CRL_STATUS_OK;
}

static crl_status check_metadata(const json_t *metadata, const char *path) {
    const char *key;
    json_t *value;
    if (!json_is_object(metadata)) {
        return CRL_FAIL(INVALID, "%s: __metadata__ is no JSON object", path);
    }
    json_object_foreach((json_t *)metadata, key, value) {
        if (!json_is_string(value)) {
            return CRL_FAIL(INVALID, "%s: __metadata__ '%s' is no text", path, LABEL(key));
        }
    }
    return CRL_STATUS_OK;
}

/* -- the whole header -------------------------------------------------------------------------- */

static int compare_place(const void *left, const void *right) {
    const crl_safetensors_item *a = left, *b = right;
    if (a->offset_bytes != b->offset_bytes) {
        return a->offset_bytes < b->offset_bytes ? -1 : 1;
    }
    if (a->bytes != b->bytes) { /* empty tensors share an offset with what follows them */
        return a->bytes < b->bytes ? -1 : 1;
    }
    return strcmp(a->name, b->name);
}

static int compare_name(const void *left, const void *right) {
    const crl_safetensors_item *const *a = left, *const *b = right;
    return strcmp((*a)->name, (*b)->name);
}

static crl_status parse_items(crl_safetensors *file) {
    const char *key;
    json_t *entry;
    json_object_foreach(file->header, key, entry) {
        if (strcmp(key, "__metadata__") == 0) {
            CRL_TRY(check_metadata(entry, file->path));
            continue;
        }
        CRL_TRY(parse_item(&file->item[file->items], key, entry, file->path));
        ++file->items;
    }
    return CRL_STATUS_OK;
}

/* Sorts by place, checks that the data is covered exactly once, and makes offsets absolute. */
static crl_status place_items(crl_safetensors *file, int64_t data_start, int64_t file_bytes) {
    int64_t end = 0;
    qsort(file->item, (size_t)file->items, sizeof *file->item, compare_place);
    for (int i = 0; i < file->items; ++i) {
        crl_safetensors_item *item = &file->item[i];
        if (item->offset_bytes != end) {
            return CRL_FAIL(INVALID,
                            "%s: tensor '%s' begins at data byte %" PRId64 ", expected %" PRId64,
                            file->path, LABEL(item->name), item->offset_bytes, end);
        }
        if (item->bytes > (uint64_t)(file_bytes - data_start - end)) {
            return CRL_FAIL(INVALID,
                            "%s: tensor '%s' ends at data byte %" PRIu64 ", the file has %" PRId64,
                            file->path, LABEL(item->name), (uint64_t)end + item->bytes,
                            file_bytes - data_start);
        }
        end += (int64_t)item->bytes;
        item->offset_bytes += data_start;
        file->by_name[i] = item;
    }
    if (end != file_bytes - data_start) {
        return CRL_FAIL(INVALID, "%s: has %" PRId64 " bytes of data, expected %" PRId64, file->path,
                        file_bytes - data_start, end);
    }
    qsort(file->by_name, (size_t)file->items, sizeof *file->by_name, compare_name);
    return CRL_STATUS_OK;
}

static uint64_t read_size(const unsigned char *bytes) {
    uint64_t size = 0;
    for (int i = 0; i < CRL_SAFETENSORS_PREFIX_BYTES; ++i) {
        size |= (uint64_t)bytes[i] << (8 * i);
    }
    return size;
}

/* N of a file that begins with `prefix`. */
static crl_status check_size(size_t *out, const char *path, const unsigned char *prefix,
                             size_t prefix_bytes, int64_t file_bytes) {
    if (prefix_bytes < CRL_SAFETENSORS_PREFIX_BYTES || file_bytes < CRL_SAFETENSORS_PREFIX_BYTES) {
        return CRL_FAIL(INVALID, "%s: is %" PRId64 " bytes long, expected at least %d", path,
                        file_bytes, CRL_SAFETENSORS_PREFIX_BYTES);
    }
    const uint64_t size = read_size(prefix);
    if (size > CRL_SAFETENSORS_HEADER_LIMIT_BYTES) {
        return CRL_FAIL(INVALID, "%s: header size is %" PRIu64 ", expected at most %d", path, size,
                        CRL_SAFETENSORS_HEADER_LIMIT_BYTES);
    }
    if (size > (uint64_t)file_bytes - CRL_SAFETENSORS_PREFIX_BYTES) {
        return CRL_FAIL(INVALID,
                        "%s: header size is %" PRIu64 ", the file is %" PRId64 " bytes long", path,
                        size, file_bytes);
    }
    *out = (size_t)size;
    return CRL_STATUS_OK;
}

static crl_status parse_header(crl_safetensors *file, const unsigned char *bytes,
                               size_t header_bytes, int64_t file_bytes) {
    size_t size;
    CRL_TRY(check_size(&size, file->path, bytes, header_bytes, file_bytes));
    if (size > header_bytes - CRL_SAFETENSORS_PREFIX_BYTES) {
        return CRL_FAIL(INVALID, "%s: header size is %zu, %zu bytes of it are there", file->path,
                        size, header_bytes - CRL_SAFETENSORS_PREFIX_BYTES);
    }
    const char *text = (const char *)bytes + CRL_SAFETENSORS_PREFIX_BYTES;
    if (size == 0 || text[0] != '{') {
        return CRL_FAIL(INVALID, "%s: header does not begin with '{'", file->path);
    }
    char what[CRL_SAFETENSORS_LABEL_BYTES + 16];
    snprintf(what, sizeof what, "%s: header", LABEL(file->path));
    CRL_TRY(crl_json_parse(&file->header, text, size, what));
    const size_t entries = json_object_size(file->header);
    CRL_TRY(crl_alloc(&file->item, entries, sizeof *file->item));
    CRL_TRY(crl_alloc(&file->by_name, entries, sizeof *file->by_name));
    CRL_TRY(parse_items(file));
    return place_items(file, (int64_t)size + CRL_SAFETENSORS_PREFIX_BYTES, file_bytes);
}

crl_status crl_safetensors_parse(crl_safetensors **out, const char *name, const void *bytes,
                                 size_t header_bytes, int64_t file_bytes) {
    crl_status status = CRL_STATUS_OK;
    crl_safetensors *file = NULL;
    CRL_TRY(crl_alloc(&file, 1, sizeof *file));
    file->descriptor = -1;
    CRL_TRY_OUT(crl_alloc_text(&file->path, name));
    CRL_TRY_OUT(parse_header(file, bytes, header_bytes, file_bytes));
    *out = file;
    file = NULL;
out:
    crl_safetensors_close(file);
    return status;
}

/* -- files ------------------------------------------------------------------------------------- */

crl_status crl_safetensors_open(crl_safetensors **out, const char *path) {
    crl_status status = CRL_STATUS_OK;
    int descriptor;
    struct stat facts;
    size_t size = 0;
    unsigned char prefix[CRL_SAFETENSORS_PREFIX_BYTES];
    unsigned char *header = NULL;
    CRL_TRY(crl_file_open(&descriptor, &facts, path));
    const int64_t file_bytes = facts.st_size;
    if (file_bytes >= CRL_SAFETENSORS_PREFIX_BYTES) {
        CRL_TRY_OUT(crl_file_read_at(descriptor, path, prefix, sizeof prefix, 0));
    }
    CRL_TRY_OUT(check_size(&size, path, prefix, sizeof prefix, file_bytes));
    CRL_TRY_OUT(crl_alloc(&header, size + sizeof prefix, 1));
    CRL_TRY_OUT(crl_file_read_at(descriptor, path, header, size + sizeof prefix, 0));
    CRL_TRY_OUT(crl_safetensors_parse(out, path, header, size + sizeof prefix, file_bytes));
    (*out)->descriptor = descriptor;
    descriptor = -1;
out:
    crl_free(header);
    if (descriptor >= 0) {
        close(descriptor);
    }
    return status;
}

void crl_safetensors_close(crl_safetensors *file) {
    if (!file) {
        return;
    }
    if (file->descriptor >= 0) {
        close(file->descriptor);
    }
    json_decref(file->header);
    crl_free(file->item);
    crl_free(file->by_name);
    crl_free(file->path);
    crl_free(file);
}

int crl_safetensors_count(const crl_safetensors *file) {
    return file->items;
}

const crl_safetensors_item *crl_safetensors_item_at(const crl_safetensors *file, int index) {
    CRL_ASSERT(index >= 0 && index < file->items);
    return &file->item[index];
}

const crl_safetensors_item *crl_safetensors_find(const crl_safetensors *file, const char *name) {
    const crl_safetensors_item key = {.name = name}, *pointer = &key;
    const crl_safetensors_item *const *found =
        bsearch(&pointer, file->by_name, (size_t)file->items, sizeof *file->by_name, compare_name);
    return found ? *found : NULL;
}

const char *crl_safetensors_metadata(const crl_safetensors *file, const char *key) {
    return json_string_value(json_object_get(json_object_get(file->header, "__metadata__"), key));
}

crl_status crl_safetensors_read_part(const crl_safetensors *file, const crl_safetensors_item *item,
                                     size_t first_bytes, void *data, size_t bytes) {
    CRL_ASSERT(first_bytes <= item->bytes && bytes <= item->bytes - first_bytes);
    if (file->descriptor < 0) {
        return CRL_FAIL(INVALID, "%s: was parsed from memory, its data cannot be read", file->path);
    }
    CRL_TRY(crl_file_read_at(file->descriptor, file->path, data, bytes,
                             item->offset_bytes + (int64_t)first_bytes));
    return CRL_STATUS_OK;
}

crl_status crl_safetensors_read(const crl_safetensors *file, const crl_safetensors_item *item,
                                void *data) {
    CRL_TRY(crl_safetensors_read_part(file, item, 0, data, item->bytes));
    return CRL_STATUS_OK;
}
