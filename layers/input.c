/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A field of the dataset as a node: (B, dims...). It computes nothing; whoever runs the graph reads
 * the field into its output. Refuses to know any dataset.
 */
#include <errno.h>
#include <stdlib.h>

#include "layers/infer_internal.h"

typedef struct input_options {
    crl_text_list dims;
    int dtype; /* index into dtype_names */
    const char *field;
} input_options;

static const char *const dtype_names[] = {"f32", "i32", NULL};
static const crl_dtype dtypes[] = {CRL_DTYPE_F32, CRL_DTYPE_I32};

static const crl_option options[] = {{.name = "dims",
                                      .value = "",
                                      .help = "shape of one sample, e.g. 28,28; empty: one number",
                                      .type = &crl_option_list,
                                      .offset = offsetof(input_options, dims)},
                                     {.name = "dtype",
                                      .value = "f32",
                                      .help = "type of the elements",
                                      .type = &crl_option_choice,
                                      .offset = offsetof(input_options, dtype),
                                      .choices = dtype_names},
                                     {.name = "field",
                                      .value = "",
                                      .help = "field of the dataset; empty: the name of the node",
                                      .type = &crl_option_text,
                                      .offset = offsetof(input_options, field)},
                                     {0}};

static crl_status parse_size(int64_t *out, const char *node, const char *text) {
    char *end;
    errno = 0;
    const long long size = strtoll(text, &end, 10);
    if (end == text || *end != '\0' || errno != 0 || size < 1) {
        return CRL_FAIL(INVALID, "input %s: size '%s' in dims, expected a whole number from 1",
                        node, text);
    }
    *out = size;
    return CRL_STATUS_OK;
}

static crl_status infer(crl_layer_spec *spec) {
    const input_options *option = spec->options;
    CRL_TRY(crl_infer_begin(spec, "input", 0, 0));
    crl_shape shape = {.dimensions = 1, .size = {spec->batch}};
    for (int i = 0; i < option->dims.count; ++i) {
        if (shape.dimensions == CRL_MAX_DIMENSIONS) {
            return CRL_FAIL(INVALID, "input %s: has %d sizes in dims, expected at most %d",
                            spec->node, option->dims.count, CRL_MAX_DIMENSIONS - 1);
        }
        CRL_TRY(parse_size(&shape.size[shape.dimensions++], spec->node, option->dims.item[i]));
    }
    return crl_infer_output(spec, "input", dtypes[option->dtype], shape);
}

static crl_status forward(const crl_layer_call *call) {
    return CRL_FAIL(INTERNAL, "input %s: forward was called, expected the dataset to fill it",
                    call->spec->node);
}

const crl_layer crl_layer_input = {
    .name = "input",
    .help = "a field of the dataset",
    .options = options,
    .options_bytes = sizeof(input_options),
    .is_input = true,
    .infer = infer,
    .forward = forward,
};
