/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The IDX dataset: [images, labels], plain or gzip, kept in memory as the file's u8. Images are
 * given as f32 in [0,1] in the file's own sample shape, labels as i32. Refuses images and labels
 * that do not belong together.
 */
#include "engine/run/data/idx.h"

#include <inttypes.h>
#include <stdio.h>

#include "engine/base/alloc.h"
#include "engine/base/file.h"
#include "engine/run/data/gzip.h"
#include "engine/run/dataset.h"

enum { IMAGES, LABELS, FIELDS };

/* Kept in memory, so more than this is a mistake rather than a data set of small images. */
static const size_t limit_bytes = (size_t)1 << 36;
static const float white = 255.0f;

typedef struct part {
    char *path;
    char *content; /* as read; given back once unpacked */
    unsigned char *unpacked;
    crl_idx idx;
} part;

struct crl_dataset {
    part part[FIELDS];
    int64_t samples, image_elements;
    crl_field field[FIELDS];
};

static bool recognise(const char *path, const unsigned char *head, size_t head_bytes) {
    if (crl_gzip_recognise(head, head_bytes)) {
        return crl_file_name_ends(path, ".gz"); /* no other format comes packed */
    }
    return head_bytes >= 4 && head[0] == 0 && head[1] == 0 && head[2] >= 0x08 && head[2] <= 0x0e &&
           head[3] >= 1 && !crl_file_name_ends(path, ".bin");
}

static crl_status load_part(part *part, const char *path) {
    size_t bytes;
    CRL_TRY(crl_alloc_text(&part->path, path));
    CRL_TRY(crl_file_read(&part->content, &bytes, path, limit_bytes));
    if (bytes == 0) {
        return CRL_FAIL(INVALID, "%s: is empty, expected an IDX file", path);
    }
    const void *content = part->content;
    if (crl_gzip_recognise(content, bytes)) {
        CRL_TRY(crl_gzip_expand(&part->unpacked, &bytes, path, content, bytes));
        crl_free(part->content);
        part->content = NULL;
        content = part->unpacked;
    }
    return crl_idx_parse(&part->idx, path, content, bytes);
}

static crl_status match_parts(const crl_dataset *dataset) {
    const part *images = &dataset->part[IMAGES], *labels = &dataset->part[LABELS];
    const int image_dimensions = images->idx.shape.dimensions;
    /* One dimension is left for the batch: its place is that of the sample count. */
    if (image_dimensions < 2) {
        return CRL_FAIL(INVALID, "%s: 1 dimension, expected 2 to %d of images (labels come second)",
                        images->path, CRL_MAX_DIMENSIONS);
    }
    if (labels->idx.shape.dimensions != 1) {
        return CRL_FAIL(INVALID, "%s: %d dimensions, expected 1 of labels", labels->path,
                        labels->idx.shape.dimensions);
    }
    if (labels->idx.shape.size[0] != images->idx.shape.size[0]) {
        return CRL_FAIL(
            INVALID, "%s: %" PRId64 " labels, expected %" PRId64 ", one per image of %s",
            labels->path, labels->idx.shape.size[0], images->idx.shape.size[0], images->path);
    }
    return CRL_STATUS_OK;
}

static void describe(crl_dataset *dataset) {
    const crl_shape *shape = &dataset->part[IMAGES].idx.shape;
    const crl_shape sample = crl_shape_make(shape->dimensions - 1, shape->size + 1);
    dataset->samples = shape->size[0];
    dataset->image_elements = crl_shape_elements(&sample);
    dataset->field[IMAGES] = (crl_field){"images", {CRL_DTYPE_F32, sample}};
    dataset->field[LABELS] = (crl_field){"labels", {CRL_DTYPE_I32, {0}}};
}

static void close_idx(crl_dataset *dataset) {
    if (!dataset) {
        return;
    }
    for (int i = 0; i < FIELDS; ++i) {
        crl_free(dataset->part[i].path);
        crl_free(dataset->part[i].content);
        crl_free(dataset->part[i].unpacked);
    }
    crl_free(dataset);
}

static crl_status open_idx(crl_dataset **out, const crl_dataset_config *config) {
    crl_status status;
    crl_dataset *dataset = NULL;
    if (config->path.count != FIELDS) {
        return CRL_FAIL(INVALID, "dataset: %d idx files given, expected 2: images, labels",
                        config->path.count);
    }
    CRL_TRY(crl_alloc(&dataset, 1, sizeof *dataset));
    for (int i = 0; i < FIELDS; ++i) {
        CRL_TRY_OUT(load_part(&dataset->part[i], config->path.item[i]));
    }
    CRL_TRY_OUT(match_parts(dataset));
    describe(dataset);
    *out = dataset;
    dataset = NULL;
out:
    close_idx(dataset);
    return status;
}

static int64_t count(const crl_dataset *dataset) {
    return dataset->samples;
}

static int fields(const crl_dataset *dataset, const crl_field **out) {
    *out = dataset->field;
    return FIELDS;
}

static void read_image(const crl_dataset *dataset, int64_t sample, float *out) {
    const int64_t elements = dataset->image_elements;
    const unsigned char *pixel = dataset->part[IMAGES].idx.data + sample * elements;
    for (int64_t i = 0; i < elements; ++i) {
        out[i] = (float)pixel[i] / white;
    }
}

static crl_status read_idx(const crl_dataset *dataset, int field, const int64_t *sample, int64_t n,
                           void *out) {
    CRL_ASSERT(field == IMAGES || field == LABELS);
    float *image = out;   /* (n, sample shape) */
    int32_t *label = out; /* (n) */
    for (int64_t i = 0; i < n; ++i) {
        if (sample[i] < 0 || sample[i] >= dataset->samples) {
            return CRL_FAIL(INVALID, "%s: sample %" PRId64 " asked for, expected 0 to %" PRId64,
                            dataset->part[field].path, sample[i], dataset->samples - 1);
        }
        if (field == IMAGES) {
            read_image(dataset, sample[i], image + i * dataset->image_elements);
        } else {
            label[i] = dataset->part[LABELS].idx.data[sample[i]];
        }
    }
    return CRL_STATUS_OK;
}

static crl_status check(const crl_dataset *dataset, int64_t vocabulary, char *report,
                        size_t report_bytes) {
    const part *labels = &dataset->part[LABELS];
    int largest = 0;
    for (int64_t i = 0; i < dataset->samples; ++i) {
        const int label = labels->idx.data[i];
        largest = label > largest ? label : largest;
        if (vocabulary > 0 && label >= vocabulary) {
            return CRL_FAIL(INVALID, "%s: label %" PRId64 " is %d, expected below %" PRId64,
                            labels->path, i, label, vocabulary);
        }
    }
    char text[128];
    snprintf(report, report_bytes, "%" PRId64 " images %s, largest label %d", dataset->samples,
             crl_tensor_text(&dataset->field[IMAGES].spec, text, sizeof text), largest);
    return CRL_STATUS_OK;
}

const crl_dataset_format crl_dataset_idx = {
    .name = "idx",
    .help = "IDX images and labels (MNIST family), plain or .gz",
    .recognise = recognise,
    .open = open_idx,
    .close = close_idx,
    .count = count,
    .fields = fields,
    .read = read_idx,
    .check = check,
};
