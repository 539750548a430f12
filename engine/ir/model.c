/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The list of layer descriptors a model function fills. Refuses to judge types, options or shapes:
 * building the graph does.
 */
#include "engine/ir/graph.h"
#include "engine/ir/model_internal.h"

#include <stdarg.h>

#include "engine/base/alloc.h"

enum { MAX_LAYERS = 1 << 20, FIRST_CAPACITY = 32 };

crl_status crl_model_create(crl_model **out) {
    crl_model *model;
    CRL_TRY(crl_alloc(&model, 1, sizeof *model));
    *out = model;
    return CRL_STATUS_OK;
}

void crl_model_destroy(crl_model *model) {
    if (!model) {
        return;
    }
    crl_arena_fini(&model->arena);
    crl_free(model->layer);
    crl_free(model);
}

const char *crl_model_text(crl_model *model, const char *format, ...) {
    const char *text = NULL;
    va_list arguments;
    va_start(arguments, format);
    if (crl_arena_vformat(&model->arena, &text, format, arguments) != CRL_STATUS_OK) {
        model->exhausted = true;
    }
    va_end(arguments);
    return text;
}

static crl_status copy_text(crl_model *model, const char **text) {
    if (!*text) {
        return CRL_STATUS_OK;
    }
    return crl_arena_text(&model->arena, text, *text);
}

/* Turns the texts of `layer`, so far the caller's, into the model's own. */
static crl_status copy_texts(crl_model *model, crl_layer_desc *layer) {
    CRL_TRY(copy_text(model, &layer->type));
    CRL_TRY(copy_text(model, &layer->name));
    for (int i = 0; i < CRL_LAYER_MAX_INPUTS; i++) {
        CRL_TRY(copy_text(model, &layer->input[i]));
    }
    for (int i = 0; i < CRL_LAYER_MAX_OPTIONS; i++) {
        CRL_TRY(copy_text(model, &layer->options[i].key));
        CRL_TRY(copy_text(model, &layer->options[i].text));
    }
    for (int i = 0; i < CRL_LAYER_MAX_PARAMS; i++) {
        CRL_TRY(copy_text(model, &layer->tie[i].param));
        CRL_TRY(copy_text(model, &layer->tie[i].with));
    }
    return CRL_STATUS_OK;
}

static crl_status check_descriptor(const crl_model *model, const crl_layer_desc *layer) {
    if (!layer || !layer->name || !layer->name[0]) {
        return CRL_FAIL(INVALID, "model: layer %d has no name", model->layers);
    }
    if (!layer->type || !layer->type[0]) {
        return CRL_FAIL(INVALID, "node %s: has no type", layer->name);
    }
    for (int i = 0; i < CRL_LAYER_MAX_PARAMS; i++) {
        if (!layer->tie[i].param != !layer->tie[i].with) {
            return CRL_FAIL(INVALID, "node %s: tie %d names only one parameter, expected two",
                            layer->name, i);
        }
    }
    return CRL_STATUS_OK;
}

crl_status crl_model_add(crl_model *model, const crl_layer_desc *layer) {
    if (model->exhausted) {
        return CRL_FAIL(NOMEM, "model: no room for the text of a node's name");
    }
    CRL_TRY(check_descriptor(model, layer));
    if (model->layers == MAX_LAYERS) {
        return CRL_FAIL(INVALID, "model: more than %d layers", MAX_LAYERS);
    }
    if (model->layers == model->capacity) {
        const int capacity = model->capacity ? 2 * model->capacity : FIRST_CAPACITY;
        CRL_TRY(crl_realloc(&model->layer, (size_t)model->capacity, (size_t)capacity,
                            sizeof *model->layer));
        model->capacity = capacity;
    }
    crl_layer_desc copy = *layer;
    CRL_TRY(copy_texts(model, &copy));
    model->layer[model->layers++] = copy;
    return CRL_STATUS_OK;
}
