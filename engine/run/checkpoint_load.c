/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Loading, in two passes: the first checks every name, shape and value through a bounded buffer,
 * the second copies. So a checkpoint that does not fit changes nothing. Refuses other element types
 * than f32: a conversion would not be the same numbers.
 */
#include "engine/run/checkpoint.h"

#include <math.h>
#include <string.h>

#include "engine/run/checkpoint_internal.h"
#include "engine/run/safetensors_internal.h"
#include "engine/base/alloc.h"

enum { BUFFER_BYTES = 4 << 20 };

#define LABEL(name) crl_safetensors_label_of(name).text

typedef struct source {
    char path[CRL_CHECKPOINT_PATH_BYTES];
    crl_safetensors *file;
    const crl_checkpoint_tensor *tensor;
    int tensors;
} source;

/* "(4,64)" */
static const char *shape_text(const crl_shape *shape, char text[160]) {
    const crl_tensor_spec spec = {.dtype = CRL_DTYPE_F32, .shape = *shape};
    crl_tensor_text(&spec, text, 160);
    const char *open = strchr(text, '(');
    return open ? open : text;
}

static crl_status check_item(const source *from, const crl_checkpoint_tensor *tensor) {
    const crl_safetensors_item *item = crl_safetensors_find(from->file, tensor->name);
    if (!item) {
        return CRL_FAIL(INVALID, "%s: tensor '%s' is missing", from->path, LABEL(tensor->name));
    }
    if (item->spec.dtype != CRL_DTYPE_F32) {
        return CRL_FAIL(INVALID, "%s: tensor '%s' has type %s, expected f32", from->path,
                        LABEL(tensor->name), crl_dtype_name(item->spec.dtype));
    }
    if (!crl_shape_equal(&item->spec.shape, &tensor->shape)) {
        char actual[160], expected[160];
        return CRL_FAIL(INVALID, "%s: tensor '%s' has shape %s, expected %s", from->path,
                        LABEL(tensor->name), shape_text(&item->spec.shape, actual),
                        shape_text(&tensor->shape, expected));
    }
    return CRL_STATUS_OK;
}

/* Only called when there is one more in the file than in the model. */
static crl_status report_extra(const source *from) {
    for (int i = 0; i < crl_safetensors_count(from->file); ++i) {
        const char *name = crl_safetensors_item_at(from->file, i)->name;
        bool known = false;
        for (int j = 0; j < from->tensors && !known; ++j) {
            known = strcmp(from->tensor[j].name, name) == 0;
        }
        if (!known) {
            return CRL_FAIL(INVALID, "%s: tensor '%s' is not part of the model", from->path,
                            LABEL(name));
        }
    }
    return CRL_FAIL(INVALID, "%s: has %d tensors, expected %d", from->path,
                    crl_safetensors_count(from->file), from->tensors);
}

static crl_status check_names(const source *from) {
    for (int i = 0; i < from->tensors; ++i) {
        CRL_TRY(check_item(from, &from->tensor[i]));
    }
    return crl_safetensors_count(from->file) == from->tensors ? CRL_STATUS_OK : report_extra(from);
}

static crl_status check_values(const source *from, const crl_checkpoint_tensor *tensor,
                               float *buffer) {
    const crl_safetensors_item *item = crl_safetensors_find(from->file, tensor->name);
    for (size_t done = 0; done < item->bytes; done += BUFFER_BYTES) {
        const size_t part = item->bytes - done < BUFFER_BYTES ? item->bytes - done : BUFFER_BYTES;
        CRL_TRY(crl_safetensors_read_part(from->file, item, done, buffer, part));
        for (size_t i = 0; i < part / sizeof *buffer; ++i) {
            if (!isfinite(buffer[i])) {
                return CRL_FAIL(INVALID, "%s: tensor '%s', element %zu is %s", from->path,
                                LABEL(tensor->name), done / sizeof *buffer + i,
                                isnan(buffer[i]) ? "nan"
                                : buffer[i] > 0  ? "inf"
                                                 : "-inf");
            }
        }
    }
    return CRL_STATUS_OK;
}

static crl_status check_source(source *from, const char *path, const char *name, float *buffer) {
    CRL_TRY(crl_checkpoint_join(from->path, path, name));
    CRL_TRY(crl_safetensors_open(&from->file, from->path));
    CRL_TRY(check_names(from));
    for (int i = 0; i < from->tensors; ++i) {
        if (from->tensor[i].data) {
            CRL_TRY(check_values(from, &from->tensor[i], buffer));
        }
    }
    return CRL_STATUS_OK;
}

/* Through the buffer, to a device. */
static crl_status copy_over(const source *from, const crl_safetensors_item *item, char *to,
                            const crl_checkpoint_content *content, float *buffer) {
    for (size_t done = 0; done < item->bytes; done += BUFFER_BYTES) {
        const size_t part = item->bytes - done < BUFFER_BYTES ? item->bytes - done : BUFFER_BYTES;
        CRL_TRY(crl_safetensors_read_part(from->file, item, done, buffer, part));
        CRL_TRY(crl_device_copy_wait(content->device, content->stream, to + done, buffer, part));
    }
    return CRL_STATUS_OK;
}

static crl_status copy_source(const source *from, const crl_checkpoint_content *content,
                              float *buffer) {
    for (int i = 0; i < from->tensors; ++i) {
        float *to = from->tensor[i].data;
        const crl_safetensors_item *item = crl_safetensors_find(from->file, from->tensor[i].name);
        if (to && crl_checkpoint_on_host(content)) {
            CRL_TRY(crl_safetensors_read(from->file, item, to));
        } else if (to) {
            CRL_TRY(copy_over(from, item, (char *)to, content, buffer));
        }
    }
    return CRL_STATUS_OK;
}

crl_status crl_checkpoint_load(const char *path, const crl_checkpoint_content *content,
                               bool with_state) {
    crl_status status = CRL_STATUS_OK;
    float *buffer = NULL;
    source model = {.tensor = content->param, .tensors = content->params};
    source state = {.tensor = content->state, .tensors = content->states};
    CRL_TRY_OUT(crl_alloc(&buffer, BUFFER_BYTES, 1));
    CRL_TRY_OUT(check_source(&model, path, "model.safetensors", buffer));
    if (with_state) {
        CRL_TRY_OUT(check_source(&state, path, "optimizer.safetensors", buffer));
        CRL_TRY_OUT(copy_source(&state, content, buffer));
    }
    CRL_TRY_OUT(copy_source(&model, content, buffer));
out:
    crl_safetensors_close(state.file);
    crl_safetensors_close(model.file);
    crl_free(buffer);
    return status;
}
