/* SPDX-License-Identifier: Apache-2.0 */
/* Between the reader of YAML (config_yaml.c) and the walk of the schema (config.c): a flat list of
 * what was given, and the list of everything that is wrong with it. */
#pragma once

#include "engine/base/config.h"

#ifdef __cplusplus
extern "C" {
#endif

enum { CRL_CONFIG_LIMIT_BYTES = 1 << 20, CRL_CONFIG_LIMIT_ENTRIES = 4096 };

typedef struct crl_config_place {
    const char *file;
    int set;          /* 0: the file, else 1: order after it */
    int line, column; /* from 1; line INT_MAX: the file as a whole */
} crl_config_place;

/* One key that was given, or one section (key NULL; its text is the single word that stands in its
 * place, if one does). */
typedef struct crl_config_entry {
    const char *section, *key;
    const char *text; /* NULL: the value is unusable, which has been reported */
    bool list;        /* a YAML sequence, joined by ',' */
    crl_config_place at, value_at;
} crl_config_entry;

typedef struct crl_config_problem {
    crl_config_place at;
    int order; /* as found: keeps the sort stable */
    const char *text;
} crl_config_problem;

/* Zero-initialise; texts live in `arena`. */
typedef struct crl_config_input {
    crl_arena arena;
    crl_config_entry *entry;
    int entries;
    crl_config_problem *problem;
    bool cut;     /* the file could not be read to its end: what is missing is not known */
    int problems; /* found; those beyond the first CRL_CONFIG_LIMIT_PROBLEMS have no text kept */
} crl_config_input;

enum { CRL_CONFIG_LIMIT_PROBLEMS = 64 };

/* Appends. NOMEM only. */
CRL_NODISCARD crl_status crl_config_add_entry(crl_config_input *input,
                                              const crl_config_entry *entry);
CRL_NODISCARD crl_status crl_config_add_problem(crl_config_input *input, const crl_config_place *at,
                                                const char *format, ...) CRL_PRINTF(3, 4);
/* Whether another problem would still be kept: composing its text may be costly. */
bool crl_config_wants_problems(const crl_config_input *input);
/* The first entry of that section and key (key NULL: of the section) in the file, or NULL. */
const crl_config_entry *crl_config_first(const crl_config_input *input, const char *section,
                                         const char *key);
/* INVALID with all problems, a line each, by place; OK when there are none. */
CRL_NODISCARD crl_status crl_config_report(crl_config_input *input);
void crl_config_input_fini(crl_config_input *input);

/* Reads the document `text` into `input`; what is wrong with it becomes problems. NOMEM only. */
CRL_NODISCARD crl_status crl_config_read_yaml(crl_config_input *input, const char *file,
                                              const char *text, size_t bytes);
/* Reads "section.key=value" number `index` (from 0) of --set. */
CRL_NODISCARD crl_status crl_config_read_set(crl_config_input *input, const char *set, int index);

#ifdef __cplusplus
}
#endif
