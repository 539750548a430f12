/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A multi-layer perceptron that classifies: images, then linear, activation and dropout per hidden
 * size, then a linear layer with one logit per class.
 */
#include "engine/carole.h"

typedef struct mlp_options {
    crl_text_list inputs, hidden;
    int64_t classes;
    int activation; /* index into activation_names */
    double dropout;
} mlp_options;

/* Names of layer types. */
static const char *const activation_names[] = {"relu", "gelu", NULL};

static const crl_option options[] = {{.name = "inputs",
                                      .value = "28,28",
                                      .help = "shape of one image",
                                      .type = &crl_option_list,
                                      .offset = offsetof(mlp_options, inputs)},
                                     {.name = "hidden",
                                      .value = "256,128",
                                      .help = "sizes of the hidden layers; empty: none",
                                      .type = &crl_option_list,
                                      .offset = offsetof(mlp_options, hidden)},
                                     {.name = "classes",
                                      .value = "10",
                                      .help = "number of classes",
                                      .type = &crl_option_int,
                                      .offset = offsetof(mlp_options, classes),
                                      .min = 1,
                                      .max = INT32_MAX},
                                     {.name = "activation",
                                      .value = "relu",
                                      .help = "after every hidden layer",
                                      .type = &crl_option_choice,
                                      .offset = offsetof(mlp_options, activation),
                                      .choices = activation_names},
                                     {.name = "dropout",
                                      .value = "0",
                                      .help = "probability of a hidden unit to be dropped",
                                      .type = &crl_option_double,
                                      .offset = offsetof(mlp_options, dropout),
                                      .min = 0,
                                      .max = 1},
                                     {0}};

/* The list as one text again; crl_model_add reports a text that could not be made. */
static const char *joined(crl_model *model, const crl_text_list *list) {
    const char *text = "";
    for (int i = 0; i < list->count && text != NULL; ++i) {
        text = crl_model_text(model, i == 0 ? "%s%s" : "%s,%s", text, list->item[i]);
    }
    return text;
}

static crl_status add_hidden(crl_model *model, const mlp_options *option, int i) {
    CRL_TRY(
        crl_model_add(model, &(crl_layer_desc){.type = "linear",
                                               .name = crl_model_text(model, "fc%d", i + 1),
                                               .options = {{"out", 0, option->hidden.item[i]}}}));
    CRL_TRY(crl_model_add(model, &(crl_layer_desc){.type = activation_names[option->activation],
                                                   .name = crl_model_text(model, "act%d", i + 1)}));
    if (option->dropout > 0) {
        CRL_TRY(
            crl_model_add(model, &(crl_layer_desc){.type = "dropout",
                                                   .name = crl_model_text(model, "drop%d", i + 1),
                                                   .options = {{"p", option->dropout, NULL}}}));
    }
    return CRL_STATUS_OK;
}

static crl_status build(crl_model *model, const void *given) {
    const mlp_options *option = given;
    const char *dims = joined(model, &option->inputs);
    CRL_TRY(crl_model_add(
        model,
        &(crl_layer_desc){.type = "input", .name = "images", .options = {{"dims", 0, dims}}}));
    CRL_TRY(crl_model_add(model, &(crl_layer_desc){.type = "flatten", .name = "flat"}));
    for (int i = 0; i < option->hidden.count; ++i) {
        CRL_TRY(add_hidden(model, option, i));
    }
    CRL_TRY(crl_model_add(model,
                          &(crl_layer_desc){.type = "linear",
                                            .name = "head",
                                            .options = {{"out", (double)option->classes, NULL}}}));
    CRL_TRY(crl_model_add(
        model,
        &(crl_layer_desc){.type = "input", .name = "labels", .options = {{"dtype", 0, "i32"}}}));
    return crl_model_add(model, &(crl_layer_desc){.type = "softmax_cross_entropy",
                                                  .name = "loss",
                                                  .input = {"head", "labels"}});
}

const crl_model_def crl_model_mlp = {
    .name = "mlp",
    .help = "multi-layer perceptron for classification",
    .options = options,
    .options_bytes = sizeof(mlp_options),
    .build = build,
};
