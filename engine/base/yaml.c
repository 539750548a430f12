/* SPDX-License-Identifier: Apache-2.0 */
/* Trees from libyaml's events; see yaml.h for what is refused. Stops at the first problem. */
#include "engine/base/yaml.h"

#include <stdio.h>
#include <string.h>
#include <yaml.h>

#include "engine/base/alloc.h"
#include "engine/base/file.h"
#include "engine/base/text_internal.h"

enum { YAML_LIMIT_BYTES = 256 << 20, MOST_KEYS = 1000 /* each is compared with all before */ };

typedef struct reader {
    crl_yaml *yaml;
    yaml_parser_t parser;
    yaml_event_t event; /* the one under way; owned */
} reader;

static crl_status parser_failed(const reader *r) {
    const yaml_parser_t *p = &r->parser;
    char quoted[CRL_QUOTE_BYTES];
    if (p->error == YAML_MEMORY_ERROR) {
        return CRL_FAIL(NOMEM, "%s: no memory to read it", r->yaml->name);
    }
    crl_text_quote(quoted, sizeof quoted, p->problem ? p->problem : "cannot be read");
    if (p->error == YAML_READER_ERROR) {
        return CRL_FAIL(INVALID, "%s: byte %zu: %s", r->yaml->name, p->problem_offset + 1, quoted);
    }
    return CRL_FAIL(INVALID, "%s:%zu:%zu: %s", r->yaml->name, p->problem_mark.line + 1,
                    p->problem_mark.column + 1, quoted);
}

static crl_status refused(const reader *r, const char *what) {
    const yaml_mark_t at = r->event.start_mark;
    return CRL_FAIL(INVALID, "%s:%zu:%zu: %s", r->yaml->name, at.line + 1, at.column + 1, what);
}

/* Takes the next event; anchors, aliases and tags end here. */
static crl_status advance(reader *r) {
    const yaml_char_t *anchor = NULL, *tag = NULL;
    yaml_event_delete(&r->event);
    if (!yaml_parser_parse(&r->parser, &r->event)) {
        return parser_failed(r);
    }
    const yaml_event_t *e = &r->event;
    switch (e->type) {
    case YAML_ALIAS_EVENT:
        return refused(r, "an alias is not accepted");
    case YAML_SCALAR_EVENT:
        anchor = e->data.scalar.anchor;
        tag = e->data.scalar.tag;
        break;
    case YAML_SEQUENCE_START_EVENT:
        anchor = e->data.sequence_start.anchor;
        tag = e->data.sequence_start.tag;
        break;
    case YAML_MAPPING_START_EVENT:
        anchor = e->data.mapping_start.anchor;
        tag = e->data.mapping_start.tag;
        break;
    default:
        break;
    }
    return anchor ? refused(r, "an anchor is not accepted")
           : tag  ? refused(r, "a tag is not accepted")
                  : CRL_STATUS_OK;
}

/* The text of the scalar under way. */
static crl_status take_text(reader *r, const char **out) {
    const char *text = (const char *)r->event.data.scalar.value;
    if (strlen(text) != r->event.data.scalar.length) {
        return refused(r, "text has a zero character");
    }
    return crl_arena_text(&r->yaml->arena, out, text);
}

/* The key under way, into `node`; then its value's first event. */
static crl_status take_key(reader *r, crl_yaml_node *node, const crl_yaml_node *map) {
    char line[CRL_QUOTE_BYTES + 64], quoted[CRL_QUOTE_BYTES];
    if (r->event.type != YAML_SCALAR_EVENT) {
        return refused(r, "a key that is no text is not accepted");
    }
    if (map->children >= MOST_KEYS) {
        return refused(r, "is one of more than 1000 keys of a mapping");
    }
    const char *key = NULL;
    CRL_TRY(take_text(r, &key));
    const crl_yaml_node *before = crl_yaml_member(map, key);
    if (before) {
        snprintf(line, sizeof line, "'%s' was given on line %d already",
                 crl_text_quote(quoted, sizeof quoted, key), before->key_line);
        return refused(r, line);
    }
    node->key = key;
    node->key_line = (int)r->event.start_mark.line + 1;
    node->key_column = (int)r->event.start_mark.column + 1;
    return advance(r);
}

static crl_status take_value(reader *r, crl_yaml_node *node, int depth);

/* The children of the list or mapping whose start is under way. */
static crl_status take_children(reader *r, crl_yaml_node *node, int depth) {
    const yaml_event_type_t end =
        node->kind == CRL_YAML_MAP ? YAML_MAPPING_END_EVENT : YAML_SEQUENCE_END_EVENT;
    const crl_yaml_node **tail = &node->child;
    if (depth >= CRL_YAML_DEEPEST) {
        return refused(r, "is nested deeper than 32 levels");
    }
    CRL_TRY(advance(r));
    while (r->event.type != end) {
        crl_yaml_node *child = NULL;
        CRL_TRY(crl_arena_alloc(&r->yaml->arena, &child, 1, sizeof *child));
        if (node->kind == CRL_YAML_MAP) {
            CRL_TRY(take_key(r, child, node));
        }
        CRL_TRY(take_value(r, child, depth + 1));
        *tail = child;
        tail = &child->next;
        node->children++;
        CRL_TRY(advance(r));
    }
    return CRL_STATUS_OK;
}

/* The value whose first event is under way; leaves its last one there. */
static crl_status take_value(reader *r, crl_yaml_node *node, int depth) {
    node->line = (int)r->event.start_mark.line + 1;
    node->column = (int)r->event.start_mark.column + 1;
    node->text = "";
    switch (r->event.type) {
    case YAML_SCALAR_EVENT:
        node->kind = CRL_YAML_TEXT;
        node->quoted = r->event.data.scalar.style != YAML_PLAIN_SCALAR_STYLE;
        return take_text(r, &node->text);
    case YAML_SEQUENCE_START_EVENT:
        node->kind = CRL_YAML_LIST;
        return take_children(r, node, depth);
    case YAML_MAPPING_START_EVENT:
        node->kind = CRL_YAML_MAP;
        return take_children(r, node, depth);
    default:
        return refused(r, "is no value");
    }
}

static crl_status take_document(reader *r) {
    crl_yaml_node *root = NULL;
    CRL_TRY(advance(r)); /* the stream's start */
    CRL_TRY(advance(r));
    if (r->event.type == YAML_STREAM_END_EVENT) {
        return CRL_FAIL(INVALID, "%s: is empty", r->yaml->name);
    }
    CRL_TRY(advance(r)); /* after the document's start */
    CRL_TRY(crl_arena_alloc(&r->yaml->arena, &root, 1, sizeof *root));
    CRL_TRY(take_value(r, root, 0));
    CRL_TRY(advance(r));
    CRL_TRY(advance(r)); /* after the document's end */
    if (r->event.type != YAML_STREAM_END_EVENT) {
        return refused(r, "a second document is not accepted");
    }
    r->yaml->root = root;
    return CRL_STATUS_OK;
}

crl_status crl_yaml_parse(crl_yaml *out, const char *name, const char *text, size_t bytes) {
    reader r = {.yaml = out};
    *out = (crl_yaml){0};
    CRL_TRY(crl_arena_text(&out->arena, &out->name, name));
    if (!yaml_parser_initialize(&r.parser)) {
        return CRL_FAIL(NOMEM, "%s: no memory to read it", name);
    }
    yaml_parser_set_encoding(&r.parser, YAML_UTF8_ENCODING);
    yaml_parser_set_input_string(&r.parser, (const unsigned char *)text, bytes);
    const crl_status status = take_document(&r);
    yaml_event_delete(&r.event);
    yaml_parser_delete(&r.parser);
    return status;
}

crl_status crl_yaml_load(crl_yaml *out, const char *path) {
    char *text = NULL;
    size_t bytes = 0;
    *out = (crl_yaml){0};
    CRL_TRY(crl_file_read(&text, &bytes, path, YAML_LIMIT_BYTES));
    const crl_status status = crl_yaml_parse(out, path, text, bytes);
    crl_free(text);
    return status;
}

void crl_yaml_fini(crl_yaml *yaml) {
    crl_arena_fini(&yaml->arena);
    *yaml = (crl_yaml){0};
}

const crl_yaml_node *crl_yaml_member(const crl_yaml_node *map, const char *key) {
    for (const crl_yaml_node *child = map->child; child; child = child->next) {
        if (child->key && strcmp(child->key, key) == 0) {
            return child;
        }
    }
    return NULL;
}

const char *crl_yaml_kind_name(const crl_yaml_node *node) {
    return node->kind == CRL_YAML_MAP    ? "a mapping"
           : node->kind == CRL_YAML_LIST ? "a list"
                                         : "a text";
}

const char *crl_yaml_where(const crl_yaml *yaml, const crl_yaml_node *node,
                           char out[CRL_YAML_PLACE_BYTES]) {
    if (node) {
        snprintf(out, CRL_YAML_PLACE_BYTES, "%s:%d:%d", yaml->name, node->line, node->column);
    } else {
        snprintf(out, CRL_YAML_PLACE_BYTES, "%s", yaml->name);
    }
    return out;
}

const char *crl_yaml_where_key(const crl_yaml *yaml, const crl_yaml_node *node,
                               char out[CRL_YAML_PLACE_BYTES]) {
    snprintf(out, CRL_YAML_PLACE_BYTES, "%s:%d:%d", yaml->name, node->key_line, node->key_column);
    return out;
}
