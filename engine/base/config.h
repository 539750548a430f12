/* SPDX-License-Identifier: Apache-2.0 */
/*
 * YAML files through libyaml, against option tables. A schema is a list of sections, each an option
 * table and the struct it fills:
 *
 *     parallel:            section "parallel"
 *       pipeline: 4        row "pipeline" of its table
 *
 * Every problem of a file is found in one pass and reported together, each as `file:line:col: ...`:
 * unknown section or key (with the nearest known one), bad value, duplicate, missing.
 * Refuses anchors, tags, and more than one document. Reading never changes what was loaded before.
 */
#pragma once

#include "engine/base/option.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct crl_config_section {
    const char *name;
    const char *help;
    const crl_option *table;
    void *options; /* the struct the rows' offsets refer to */
    /* A section whose table depends on one of its own values (e.g. `model`, by `model.type`):
     * called with that value before the other keys are read; returns the table and struct to
     * use for the remaining keys. NULL: `table` serves all. */
    const char *selector; /* key whose value chooses: a row of `table` */
    crl_status (*select)(void *context, const char *value, crl_arena *arena,
                         const crl_option **out_table, void **out_options);
    void *context;
    /* Key that a single word in place of the section stands for: `parallel: auto` is then the same
     * as `parallel: {layout: auto}`. NULL: a section has keys. */
    const char *word;
} crl_config_section;

/* Where a value came from. */
typedef struct crl_config_origin {
    const char *key;  /* "parallel.pipeline" */
    const char *text; /* as given, lists as "a,b" */
    const char *file; /* the file, or "--set" */
    int line, column; /* from 1 */
} crl_config_origin;

/* Zero-initialise. Everything in it lives in `arena`. */
typedef struct crl_config_source {
    crl_arena arena;
    crl_config_origin *origin; /* of every value given, later ones overriding earlier ones */
    int origins;
} crl_config_source;

/* Sets every default, then the file's values (path NULL: none), then each "section.key=value" of
 * `sets`. INVALID: all problems, a line each. On failure no section's struct is to be used. */
CRL_NODISCARD crl_status crl_config_load(crl_config_source *source,
                                         const crl_config_section *sections, /* ends: name NULL */
                                         const char *path, const char *const *sets, int set_count);
/* The same from memory; `name` stands for the file in messages. */
CRL_NODISCARD crl_status crl_config_parse(crl_config_source *source,
                                          const crl_config_section *sections, const char *name,
                                          const char *text, size_t bytes, const char *const *sets,
                                          int set_count);
/* "file:line:col: key" of where `key` was given, or "key (default)": to begin a message found
 * later, when values are checked against each other. */
const char *crl_config_where(const crl_config_source *source, const char *key, char *text,
                             size_t text_bytes);
/* Frees what `source` holds, and with it the texts in the sections' structs. */
void crl_config_fini(crl_config_source *source);

/* The reference of all sections as Markdown (docs/config.md is made from it). */
void crl_config_reference(const crl_config_section *sections, FILE *out);

#ifdef __cplusplus
}
#endif
