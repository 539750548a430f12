/* SPDX-License-Identifier: Apache-2.0 */
/*
 * YAML through libyaml's events: a mapping of sections, each a mapping of plain values or of flat
 * sequences of them. Refuses anchors, aliases, tags, a second document, empty (null) values and
 * deeper structure; goes on after each of them, and stops at what libyaml itself cannot read.
 */
#include "engine/base/config_internal.h"

#include "engine/base/text_internal.h"

#include <string.h>
#include <yaml.h>

/* What the schema needs is 3; deeper input is skipped up to here and then given up. */
enum { DEEPEST = 32 };

typedef struct reader {
    crl_config_input *input;
    const char *file, *source;
    size_t source_bytes;
    yaml_parser_t parser;
} reader;

/* An event without its memory. */
typedef struct node {
    yaml_event_type_t type;
    const char *text; /* of a scalar */
    bool plain;       /* a scalar without quotes */
    crl_config_place at;
} node;

static crl_config_place place_of(const reader *reader, yaml_mark_t mark) {
    return (crl_config_place){
        .file = reader->file, .line = (int)mark.line + 1, .column = (int)mark.column + 1};
}

/* The reader of characters knows only an offset. */
static yaml_mark_t mark_of_offset(const reader *reader, size_t offset) {
    yaml_mark_t mark = {0};
    for (size_t i = 0; i < offset && i < reader->source_bytes; ++i) {
        const bool new_line = reader->source[i] == '\n';
        mark.line += new_line;
        mark.column = new_line ? 0 : mark.column + 1;
    }
    return mark;
}

static crl_status yaml_failed(reader *reader) {
    const yaml_parser_t *parser = &reader->parser;
    reader->input->cut = true;
    if (parser->error == YAML_MEMORY_ERROR) {
        return CRL_FAIL(NOMEM, "%s: no memory to read it", reader->file);
    }
    const yaml_mark_t mark = parser->error == YAML_READER_ERROR
                                 ? mark_of_offset(reader, parser->problem_offset)
                                 : parser->problem_mark;
    const crl_config_place at = place_of(reader, mark);
    const char *problem = parser->problem ? parser->problem : "cannot be read";
    CRL_TRY(crl_config_add_problem(reader->input, &at, "%s%s%s", problem,
                                   parser->context ? ", " : "",
                                   parser->context ? parser->context : ""));
    return CRL_STATUS_OK;
}

static crl_status check_properties(reader *reader, const node *node, const yaml_char_t *anchor,
                                   const yaml_char_t *tag) {
    if (anchor) {
        CRL_TRY(crl_config_add_problem(reader->input, &node->at, "anchor '&%s' is not accepted",
                                       (const char *)anchor));
    }
    if (tag) {
        CRL_TRY(crl_config_add_problem(reader->input, &node->at, "tag '%s' is not accepted",
                                       (const char *)tag));
    }
    return CRL_STATUS_OK;
}

static crl_status take_scalar(reader *reader, node *out, const yaml_event_t *event) {
    const char *text = (const char *)event->data.scalar.value;
    out->plain = event->data.scalar.style == YAML_PLAIN_SCALAR_STYLE;
    CRL_TRY(check_properties(reader, out, event->data.scalar.anchor, event->data.scalar.tag));
    if (strlen(text) != event->data.scalar.length) {
        CRL_TRY(crl_config_add_problem(reader->input, &out->at, "text has a zero character"));
    }
    CRL_TRY(crl_arena_text(&reader->input->arena, &out->text, text));
    return CRL_STATUS_OK;
}

/* The next event, or YAML_NO_EVENT after an error; refused properties are reported here. */
static crl_status next_node(reader *reader, node *out) {
    *out = (node){.type = YAML_NO_EVENT};
    if (reader->input->cut) {
        return CRL_STATUS_OK;
    }
    yaml_event_t event;
    if (!yaml_parser_parse(&reader->parser, &event)) {
        return yaml_failed(reader);
    }
    crl_status status = CRL_STATUS_OK;
    out->type = event.type;
    out->at = place_of(reader, event.start_mark);
    switch (event.type) {
    case YAML_SCALAR_EVENT:
        CRL_TRY_OUT(take_scalar(reader, out, &event));
        break;
    case YAML_ALIAS_EVENT:
        CRL_TRY_OUT(crl_config_add_problem(reader->input, &out->at, "alias '*%s' is not accepted",
                                           (const char *)event.data.alias.anchor));
        break;
    case YAML_SEQUENCE_START_EVENT:
        CRL_TRY_OUT(check_properties(reader, out, event.data.sequence_start.anchor,
                                     event.data.sequence_start.tag));
        break;
    case YAML_MAPPING_START_EVENT:
        CRL_TRY_OUT(check_properties(reader, out, event.data.mapping_start.anchor,
                                     event.data.mapping_start.tag));
        break;
    default:
        break;
    }
out:
    yaml_event_delete(&event);
    return status;
}

static bool is_start(const node *node) {
    return node->type == YAML_SEQUENCE_START_EVENT || node->type == YAML_MAPPING_START_EVENT;
}

static bool is_end(const node *node) {
    return node->type == YAML_SEQUENCE_END_EVENT || node->type == YAML_MAPPING_END_EVENT ||
           node->type == YAML_NO_EVENT;
}

static const char *kind_of(const node *node) {
    return node->type == YAML_SEQUENCE_START_EVENT  ? "a list"
           : node->type == YAML_MAPPING_START_EVENT ? "a mapping"
                                                    : "a single value";
}

/* Passes over the rest of what `start` began. */
static crl_status skip(reader *reader, const node *start) {
    int depth = is_start(start);
    while (depth > 0 && !reader->input->cut) {
        node inner;
        CRL_TRY(next_node(reader, &inner));
        depth += is_start(&inner) - is_end(&inner);
        if (depth > DEEPEST) {
            CRL_TRY(crl_config_add_problem(reader->input, &inner.at,
                                           "is nested deeper than %d levels", DEEPEST));
            reader->input->cut = true;
        }
    }
    return CRL_STATUS_OK;
}

/* What YAML 1.1 and 1.2 take as "nothing". */
static bool is_null(const node *node) {
    static const char *const words[] = {"", "~", "null", "Null", "NULL"};
    for (size_t i = 0;
         node->type == YAML_SCALAR_EVENT && node->plain && i < sizeof words / sizeof words[0];
         ++i) {
        if (strcmp(node->text, words[i]) == 0) {
            return true;
        }
    }
    return false;
}

/* Whether `item` can stand in a list that is joined by commas; otherwise reports it. */
static crl_status check_item(bool *usable, reader *reader, const node *item,
                             const crl_config_entry *entry) {
    const char *wrong = NULL;
    if (item->type == YAML_SCALAR_EVENT) {
        const size_t length = strlen(item->text);
        if (is_null(item) || length == 0) {
            wrong = "is empty";
        } else if (strchr(item->text, ',')) {
            wrong = "has a comma";
        } else if (item->text[0] == ' ' || item->text[length - 1] == ' ') {
            wrong = "has outer spaces";
        }
    } else if (is_start(item)) {
        wrong = "is not a single value";
    }
    if (wrong) {
        CRL_TRY(crl_config_add_problem(reader->input, &item->at, "list item of '%s.%s' %s",
                                       entry->section, entry->key, wrong));
    }
    *usable = !wrong && item->type == YAML_SCALAR_EVENT;
    return CRL_STATUS_OK;
}

typedef struct item {
    const char *text;
    struct item *next;
} item;

static crl_status join_items(crl_arena *arena, const char **out, const item *first) {
    size_t bytes = 1;
    for (const item *i = first; i; i = i->next) {
        bytes += strlen(i->text) + 1;
    }
    char *joined;
    CRL_TRY(crl_arena_alloc(arena, &joined, bytes, 1));
    char *at = joined;
    for (const item *i = first; i; i = i->next) {
        at = stpcpy(at, i->text);
        at = stpcpy(at, i->next ? "," : "");
    }
    *out = joined;
    return CRL_STATUS_OK;
}

static crl_status read_list(reader *reader, crl_config_entry *entry) {
    item *first = NULL, **link = &first;
    bool all_usable = true;
    for (;;) {
        node given;
        bool usable;
        CRL_TRY(next_node(reader, &given));
        if (is_end(&given)) {
            break;
        }
        CRL_TRY(check_item(&usable, reader, &given, entry));
        CRL_TRY(skip(reader, &given));
        all_usable = all_usable && usable;
        if (usable) {
            CRL_TRY(crl_arena_alloc(&reader->input->arena, link, 1, sizeof **link));
            (*link)->text = given.text;
            link = &(*link)->next;
        }
    }
    entry->list = true;
    if (all_usable && !reader->input->cut) {
        CRL_TRY(join_items(&reader->input->arena, &entry->text, first));
    }
    return CRL_STATUS_OK;
}

static crl_status read_value(reader *reader, crl_config_entry *entry) {
    node value;
    CRL_TRY(next_node(reader, &value));
    entry->value_at = value.at;
    if (is_null(&value)) {
        CRL_TRY(crl_config_add_problem(reader->input, &entry->at, "key '%s.%s' has no value",
                                       entry->section, entry->key));
    } else if (value.type == YAML_SCALAR_EVENT) {
        entry->text = value.text;
    } else if (value.type == YAML_SEQUENCE_START_EVENT) {
        CRL_TRY(read_list(reader, entry));
    } else if (value.type == YAML_MAPPING_START_EVENT) {
        CRL_TRY(crl_config_add_problem(reader->input, &value.at,
                                       "'%s.%s' is a mapping, expected a value or a list",
                                       entry->section, entry->key));
        CRL_TRY(skip(reader, &value));
    }
    return CRL_STATUS_OK;
}

/* A key must be a text; reports what is not, and passes over its value too. */
static crl_status check_key(bool *usable, reader *reader, const node *key) {
    *usable = key->type == YAML_SCALAR_EVENT;
    if (*usable) {
        return CRL_STATUS_OK;
    }
    if (is_start(key)) {
        CRL_TRY(crl_config_add_problem(reader->input, &key->at, "key is %s, expected a name",
                                       kind_of(key)));
    }
    CRL_TRY(skip(reader, key));
    node value;
    CRL_TRY(next_node(reader, &value));
    CRL_TRY(skip(reader, &value));
    return CRL_STATUS_OK;
}

static crl_status add_entry(reader *reader, const crl_config_entry *entry) {
    if (reader->input->entries < CRL_CONFIG_LIMIT_ENTRIES) {
        CRL_TRY(crl_config_add_entry(reader->input, entry));
        return CRL_STATUS_OK;
    }
    CRL_TRY(crl_config_add_problem(reader->input, &entry->at, "is entry %d, expected at most %d",
                                   CRL_CONFIG_LIMIT_ENTRIES + 1, CRL_CONFIG_LIMIT_ENTRIES));
    reader->input->cut = true;
    return CRL_STATUS_OK;
}

static crl_status read_section(reader *reader, const node *name) {
    crl_config_entry section = {.section = name->text, .at = name->at};
    node value;
    CRL_TRY(next_node(reader, &value));
    section.value_at = value.at;
    section.text = value.type == YAML_SCALAR_EVENT && !is_null(&value) ? value.text : NULL;
    CRL_TRY(add_entry(reader, &section));
    if (is_null(&value)) {
        CRL_TRY(crl_config_add_problem(reader->input, &name->at, "section '%s' has no keys",
                                       name->text));
        return CRL_STATUS_OK;
    }
    if (value.type != YAML_MAPPING_START_EVENT) {
        if (value.type == YAML_SEQUENCE_START_EVENT) {
            CRL_TRY(crl_config_add_problem(reader->input, &value.at,
                                           "'%s' is %s, expected a section of keys", name->text,
                                           kind_of(&value)));
        }
        return skip(reader, &value); /* a single word is the schema's to judge */
    }
    for (;;) {
        node key;
        bool usable;
        CRL_TRY(next_node(reader, &key));
        if (is_end(&key)) {
            return CRL_STATUS_OK;
        }
        CRL_TRY(check_key(&usable, reader, &key));
        if (usable) {
            crl_config_entry entry = {.section = name->text, .key = key.text, .at = key.at};
            CRL_TRY(read_value(reader, &entry));
            CRL_TRY(add_entry(reader, &entry));
        }
    }
}

static crl_status read_document(reader *reader) {
    node root;
    CRL_TRY(next_node(reader, &root));
    if (is_null(&root)) {
        return CRL_STATUS_OK;
    }
    if (root.type != YAML_MAPPING_START_EVENT) {
        if (root.type == YAML_SCALAR_EVENT || root.type == YAML_SEQUENCE_START_EVENT) {
            CRL_TRY(crl_config_add_problem(reader->input, &root.at,
                                           "document is %s, expected sections", kind_of(&root)));
        }
        return skip(reader, &root);
    }
    for (;;) {
        node name;
        bool usable;
        CRL_TRY(next_node(reader, &name));
        if (is_end(&name)) {
            return CRL_STATUS_OK;
        }
        CRL_TRY(check_key(&usable, reader, &name));
        if (usable) {
            CRL_TRY(read_section(reader, &name));
        }
    }
}

static crl_status read_stream(reader *reader) {
    int documents = 0;
    while (!reader->input->cut) {
        node event;
        CRL_TRY(next_node(reader, &event));
        if (event.type == YAML_STREAM_END_EVENT) {
            break;
        }
        if (event.type == YAML_DOCUMENT_START_EVENT && ++documents > 1) {
            CRL_TRY(crl_config_add_problem(reader->input, &event.at,
                                           "a second document begins, expected one"));
            break;
        }
        if (event.type == YAML_DOCUMENT_START_EVENT) {
            CRL_TRY(read_document(reader));
        }
    }
    return CRL_STATUS_OK;
}

crl_status crl_config_read_yaml(crl_config_input *input, const char *file, const char *text,
                                size_t bytes) {
    reader reader = {.input = input, .file = file, .source = text, .source_bytes = bytes};
    if (!yaml_parser_initialize(&reader.parser)) {
        return CRL_FAIL(NOMEM, "%s: no memory to read it", file);
    }
    yaml_parser_set_input_string(&reader.parser, (const unsigned char *)text, bytes);
    const crl_status status = read_stream(&reader);
    yaml_parser_delete(&reader.parser);
    CRL_TRY(status);
    return CRL_STATUS_OK;
}
