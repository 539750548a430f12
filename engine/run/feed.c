/* SPDX-License-Identifier: Apache-2.0 */
/* Matching a dataset with a graph. */
#include "engine/run/feed.h"

#include <stdio.h>
#include <string.h>

_Static_assert((int)CRL_EXECUTOR_MAX_FIELDS <= (int)CRL_DATASET_MAX_FIELDS,
               "a loader reads all inputs of a rank");

/* T of the model: the second size of its first integer input. */
static int64_t context_of(const crl_graph *graph) {
    for (int v = 0; v < graph->values; v++) {
        const crl_value *value = &graph->value[v];
        if (value->from_input && value->spec.dtype == CRL_DTYPE_I32 &&
            value->spec.shape.dimensions == 2) {
            return value->spec.shape.size[1];
        }
    }
    return 0;
}

static void list_fields(const crl_field *field, int fields, char *text, size_t text_bytes) {
    char spec[96];
    size_t used = 0;
    text[0] = '\0';
    for (int f = 0; f < fields && used < text_bytes; f++) {
        used += (size_t)snprintf(text + used, text_bytes - used, "%s%s %s", f ? ", " : "",
                                 field[f].name, crl_tensor_text(&field[f].spec, spec, sizeof spec));
    }
}

/* A sample's elements must agree; the shape may be another view of them. */
static bool fits(const crl_value *value, const crl_field *field) {
    return value->spec.dtype == field->spec.dtype &&
           crl_shape_product(&value->spec.shape, 1, value->spec.shape.dimensions) ==
               crl_shape_elements(&field->spec.shape);
}

static crl_status match_field(int *out, const crl_value *value, const crl_field *field, int fields,
                              const char *path) {
    char text[512], spec[96];
    for (int f = 0; f < fields; f++) {
        if (strcmp(value->name, field[f].name) == 0) {
            if (!fits(value, &field[f])) {
                char expected[96];
                return CRL_FAIL(INVALID, "%s: samples have %s %s, model input %s expects %s", path,
                                field[f].name, crl_tensor_text(&field[f].spec, spec, sizeof spec),
                                value->name, crl_tensor_text(&value->spec, expected, 96));
            }
            *out = f;
            return CRL_STATUS_OK;
        }
    }
    list_fields(field, fields, text, sizeof text);
    return CRL_FAIL(INVALID, "%s: no field '%s' for the model's input of that name, there are: %s",
                    path, value->name, text);
}

crl_status crl_feed_open(crl_feed *feed, const crl_settings *settings,
                         const crl_registries *registries, const crl_text_list *files,
                         const crl_graph *graph, const crl_executor *executor) {
    const crl_dataset_config config = {*files, context_of(graph)};
    const crl_field *field = NULL;
    const int *value = NULL;
    CRL_TRY(crl_dataset_format_find(&feed->format, registries->datasets, settings->data.format,
                                    &config));
    CRL_TRY(feed->format->open(&feed->dataset, &config));
    feed->samples = feed->format->count(feed->dataset);
    if (feed->samples < 1) {
        return CRL_FAIL(INVALID, "%s: no complete sample, expected at least 1", files->item[0]);
    }
    const int fields = feed->format->fields(feed->dataset, &field);
    feed->fields = crl_executor_fields(executor, &value);
    for (int f = 0; f < feed->fields; f++) {
        CRL_TRY(
            match_field(&feed->field[f], &graph->value[value[f]], field, fields, files->item[0]));
    }
    return CRL_STATUS_OK;
}

void crl_feed_close(crl_feed *feed) {
    if (feed->dataset) {
        feed->format->close(feed->dataset);
        feed->dataset = NULL;
    }
}

crl_status crl_feed_loader(crl_loader **out, const crl_feed *feed, const crl_rank *rank,
                           const crl_feed_range *range) {
    crl_loader_config config = {
        .format = feed->format,
        .dataset = feed->dataset,
        .device = rank->backend->device,
        .sampler = {feed->samples, range->global_batch, range->seed, range->shuffle},
        .micro_batch = range->micro_batch,
        .first_micro_batch = rank->micro_batches.first,
        .last_micro_batch = rank->micro_batches.last,
        .fields = feed->fields,
        .first_step = range->first_step,
        .last_step = range->last_step};
    memcpy(config.field, feed->field, sizeof config.field);
    return crl_loader_create(out, &config);
}
