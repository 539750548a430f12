/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Option tables: one row = name, default as text, help, parser. The same row feeds config files,
 * --set, --help, layer descriptors and docs/config.md, so that a fact has one place.
 */
#pragma once

#include <stdint.h>
#include <stdio.h>

#include "engine/base/arena.h"
#include "engine/base/status.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct crl_option crl_option;

/* How one kind of value is read and shown. A kind whose name begins with "list" also takes YAML
 * sequences of plain values; `parse` gets them as "a,b". */
typedef struct crl_option_type {
    const char *name; /* "integer", for messages and the reference */
    /* Reads `text` into `field`. INVALID, the message naming what was given and what is expected
     * but not the option (the caller knows where it stands). Texts are kept in `arena`. */
    crl_status (*parse)(const crl_option *option, const char *text, crl_arena *arena, void *field);
    /* Writes the value as text that `parse` reads back to the same value. */
    void (*show)(const crl_option *option, const void *field, char *text, size_t text_bytes);
} crl_option_type;

struct crl_option {
    const char *name;
    const char *value; /* default as text; NULL: must be given */
    const char *help;  /* one line, with the unit */
    const crl_option_type *type;
    size_t offset; /* of the field in the options struct */
    /* Numbers: inclusive limits. Both 0: none; max below min: only the lower one. */
    double min, max;
    const char *const *choices; /* crl_option_choice: NULL-terminated names */
};
/* A table ends with a row whose name is NULL. */

/* A list of texts, as `[a, b]` in YAML or `a,b` in text. */
typedef struct crl_text_list {
    int count;
    const char **item;
} crl_text_list;

extern const crl_option_type crl_option_int;    /* int64_t */
extern const crl_option_type crl_option_double; /* double, finite */
extern const crl_option_type crl_option_bool;   /* bool: true | false */
extern const crl_option_type crl_option_text;   /* const char *, never NULL */
extern const crl_option_type crl_option_choice; /* int: index into choices */
extern const crl_option_type crl_option_bytes;  /* int64_t: 4096, 64KiB, 1.5GiB, 10MB */
extern const crl_option_type crl_option_list;   /* crl_text_list */

/* Fills `options` with every default; rows without one are left alone. INVALID, NOMEM. */
CRL_NODISCARD crl_status crl_option_defaults(const crl_option *table, crl_arena *arena,
                                             void *options);
/* The row called `name`, or NULL. Lends. */
const crl_option *crl_option_find(const crl_option *table, const char *name);
/* Parses `text` into its field. INVALID: the message starts with the option's name; NOT_FOUND: with
 * the nearest one; NOMEM. */
CRL_NODISCARD crl_status crl_option_set(const crl_option *table, const char *name, const char *text,
                                        crl_arena *arena, void *options);
/* Prints the table: name, default, help, one per line, each prefixed. */
void crl_option_print(const crl_option *table, const char *prefix, FILE *out);

/* The name nearest to `name` by edit distance among `count` names at `stride_bytes` apart (a
 * pointer to text at the start of each item), or NULL when none is near enough to suggest. */
const char *crl_nearest_name(const char *name, const void *names, size_t count,
                             size_t stride_bytes);

#ifdef __cplusplus
}
#endif
