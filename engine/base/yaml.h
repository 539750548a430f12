/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A YAML file as a tree of mappings, lists and plain texts, each with its place for messages. For
 * files whose structure no option table describes (config.h is for those it does); JSON is a subset
 * of what is read. Refuses anchors, aliases, tags, duplicate keys, a second document, mappings
 * of more than 1000 keys, and more than CRL_YAML_DEEPEST levels.
 */
#pragma once

#include "engine/base/arena.h"

#ifdef __cplusplus
extern "C" {
#endif

enum { CRL_YAML_DEEPEST = 32, CRL_YAML_PLACE_BYTES = 512 };

typedef enum crl_yaml_kind { CRL_YAML_TEXT = 0, CRL_YAML_LIST, CRL_YAML_MAP } crl_yaml_kind;

typedef struct crl_yaml_node crl_yaml_node;
struct crl_yaml_node {
    crl_yaml_kind kind;
    const char *key;  /* in a mapping; NULL elsewhere */
    const char *text; /* of a text; "" for one left out */
    bool quoted;      /* a text that stood in quotes */
    int line, column; /* of the value, from 1 */
    int key_line, key_column;
    int children;
    const crl_yaml_node *child; /* the first; the others by `next`, in the file's order */
    const crl_yaml_node *next;
};

/* Zero-initialise. Everything in it lives in `arena`. */
typedef struct crl_yaml {
    crl_arena arena;
    const char *name; /* of the file, for messages */
    const crl_yaml_node *root;
} crl_yaml;

/* Reads `bytes` of text; `name` stands for the file in messages. INVALID "name:line:col: ...",
 * NOMEM. crl_yaml_fini is due either way. */
CRL_NODISCARD crl_status crl_yaml_parse(crl_yaml *out, const char *name, const char *text,
                                        size_t bytes);
/* The same of a file of at most 256 MiB. Besides: NOT_FOUND, IO. */
CRL_NODISCARD crl_status crl_yaml_load(crl_yaml *out, const char *path);
/* Frees the tree; one that is all zero is fine. */
void crl_yaml_fini(crl_yaml *yaml);

/* The member `key` of a mapping, or NULL; lends. */
const crl_yaml_node *crl_yaml_member(const crl_yaml_node *map, const char *key);
/* "a text", "a list", "a mapping" */
const char *crl_yaml_kind_name(const crl_yaml_node *node);
/* "file:line:col" of a value (NULL: of the file alone), to begin a message with. Returns `out`. */
const char *crl_yaml_where(const crl_yaml *yaml, const crl_yaml_node *node,
                           char out[CRL_YAML_PLACE_BYTES]);
/* The same of its key. */
const char *crl_yaml_where_key(const crl_yaml *yaml, const crl_yaml_node *node,
                               char out[CRL_YAML_PLACE_BYTES]);

#ifdef __cplusplus
}
#endif
