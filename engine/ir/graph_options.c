/* SPDX-License-Identifier: Apache-2.0 */
/* Options of a layer descriptor: numbers become text and go through the layer's option table. */
#include "engine/ir/graph_internal.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

enum { NUMBER_BYTES = 40 };

static crl_status unknown_option(const crl_layer *layer, const crl_layer_desc *desc,
                                 const char *key) {
    size_t count = 0;
    while (layer->options && layer->options[count].name) {
        count++;
    }
    if (count == 0) {
        return CRL_FAIL(INVALID, "node %s: option '%s' given, but %s has no options", desc->name,
                        key, layer->name);
    }
    const char *near = crl_nearest_name(key, layer->options, count, sizeof *layer->options);
    if (near) {
        return CRL_FAIL(INVALID, "node %s: %s has no option '%s', did you mean '%s'?", desc->name,
                        layer->name, key, near);
    }
    return CRL_FAIL(INVALID, "node %s: %s has no option '%s'", desc->name, layer->name, key);
}

/* The text the table's parser reads; `number` is room for it. */
static const char *option_text(const crl_option *row, const crl_layer_option *option,
                               char *number) {
    if (option->text) {
        return option->text;
    }
    if (row->type == &crl_option_bool && (option->number == 0 || option->number == 1)) {
        return option->number != 0 ? "true" : "false";
    }
    const double largest_exact = 0x1p53;
    if (fabs(option->number) <= largest_exact && floor(option->number) == option->number) {
        snprintf(number, NUMBER_BYTES, "%" PRId64, (int64_t)option->number);
    } else {
        /* printf would take the decimal point of the user's locale. */
        crl_option_double.show(row, &option->number, number, NUMBER_BYTES);
    }
    return number;
}

static bool is_given(const crl_layer_desc *desc, int before, const char *key) {
    for (int i = 0; i < before && desc->options[i].key; i++) {
        if (strcmp(desc->options[i].key, key) == 0) {
            return true;
        }
    }
    return false;
}

static crl_status set_options(void *options, crl_arena *arena, const crl_layer *layer,
                              const crl_layer_desc *desc) {
    for (int i = 0; i < CRL_LAYER_MAX_OPTIONS && desc->options[i].key; i++) {
        const crl_layer_option *option = &desc->options[i];
        char number[NUMBER_BYTES];
        const crl_option *row =
            layer->options ? crl_option_find(layer->options, option->key) : NULL;
        if (!row) {
            return unknown_option(layer, desc, option->key);
        }
        if (is_given(desc, i, option->key)) {
            return CRL_FAIL(INVALID, "node %s: option '%s' is given twice", desc->name,
                            option->key);
        }
        const char *text = option_text(row, option, number);
        const crl_status status = crl_option_set(layer->options, option->key, text, arena, options);
        if (status == CRL_STATUS_INVALID) {
            return CRL_FAIL(INVALID, "node %s: %s", desc->name, crl_error_message());
        }
        CRL_TRY(status);
    }
    return CRL_STATUS_OK;
}

crl_status crl_graph_parse_options(const void **out, crl_arena *arena, const crl_layer *layer,
                                   const crl_layer_desc *desc) {
    void *options = NULL;
    if (layer->options) {
        CRL_TRY(crl_arena_alloc(arena, &options, 1, layer->options_bytes));
        CRL_TRY(crl_option_defaults(layer->options, arena, options));
    }
    CRL_TRY(set_options(options, arena, layer, desc));
    for (const crl_option *row = layer->options; row && row->name; row++) {
        if (!row->value && !is_given(desc, CRL_LAYER_MAX_OPTIONS, row->name)) {
            return CRL_FAIL(INVALID, "node %s: option '%s' of %s is missing (%s)", desc->name,
                            row->name, layer->name, row->help ? row->help : row->type->name);
        }
    }
    *out = options;
    return CRL_STATUS_OK;
}
