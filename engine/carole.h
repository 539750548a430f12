/* SPDX-License-Identifier: Apache-2.0 */
/*
 * carole: the public face. Describe a model as a graph of layers, hand it to crl_main, and get the
 * whole command line for it: train, eval, generate, plan, in any parallel layout.
 *
 *     static crl_status build(crl_model *model, const void *options) {
 *         CRL_TRY(crl_model_add(model, &(crl_layer_desc){.type = "input", .name = "images"}));
 *         CRL_TRY(crl_model_add(model, &(crl_layer_desc){.type = "linear", .name = "fc",
 *                                                        .options = {{"out", 10}}}));
 *         ...
 *     }
 *     int main(int argc, char **argv) {
 *         return crl_main(argc, argv, &(crl_model_def){.name = "mine", .build = build});
 *     }
 */
#pragma once

#include <stdint.h>

#include "engine/base/option.h"
#include "engine/base/status.h"

#ifdef __cplusplus
extern "C" {
#endif

#define CRL_API __attribute__((visibility("default")))

enum {
    CRL_LAYER_MAX_INPUTS = 4,
    CRL_LAYER_MAX_OUTPUTS = 4,
    CRL_LAYER_MAX_PARAMS = 4,
    CRL_LAYER_MAX_SAVED = 4,
    CRL_LAYER_MAX_OPTIONS = 12
};

/* One option of a layer: a number, or a text when `text` is set. Which there are: `carole info
 * --layer linear`. */
typedef struct crl_layer_option {
    const char *key;
    double number;
    const char *text;
} crl_layer_option;

/* Uses the parameter `with` ("<node>.<param>") of an earlier node instead of an own `param`. */
typedef struct crl_layer_tie {
    const char *param;
    const char *with;
} crl_layer_tie;

/*
 * One node of the graph. Texts and options are copied. `name` must be unique. An input names an
 * earlier node, or "<node>:<k>" for its k-th output; with no inputs given, the node takes the first
 * output of the node before it.
 */
typedef struct crl_layer_desc {
    const char *type; /* "linear" */
    const char *name; /* "h3.mlp.fc"; parameters are "<name>.<param>" */
    const char *input[CRL_LAYER_MAX_INPUTS];
    crl_layer_option options[CRL_LAYER_MAX_OPTIONS];
    crl_layer_tie tie[CRL_LAYER_MAX_PARAMS];
} crl_layer_desc;

typedef struct crl_model crl_model; /* a list of descriptors */

/* Appends a node. Types, options and shapes are checked when the graph is built. INVALID, NOMEM. */
CRL_API CRL_NODISCARD crl_status crl_model_add(crl_model *model, const crl_layer_desc *layer);

/* A printf-formatted text that lives as long as the model: node names in loops. NULL when memory is
 * exhausted; the next crl_model_add then reports it. */
CRL_API const char *crl_model_text(crl_model *model, const char *format, ...) CRL_PRINTF(2, 3);

/* A model: a function from options to layers. */
typedef struct crl_model_def {
    const char *name;
    const char *help;
    const crl_option *options; /* keys of the config's `model` section; NULL: none */
    size_t options_bytes;      /* size of the struct they fill */
    crl_status (*build)(crl_model *model, const void *options);
} crl_model_def;

/* The command line (`carole --help`) with `model` as its default model, beside the built-in ones.
 * model NULL: only those. Returns the exit code of the process. */
CRL_API int crl_main(int argc, char **argv, const crl_model_def *model);

#ifdef __cplusplus
}
#endif
