/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The walk of the schema over what was given. Refuses to stop at the first problem: each value is
 * checked on its own, and all that is wrong is reported together.
 */
#include "engine/base/config.h"

#include "engine/base/alloc.h"
#include "engine/base/config_internal.h"
#include "engine/base/file.h"
#include "engine/base/text_internal.h"

#include <limits.h>
#include <string.h>

/* The two tables a section's keys may come from. */
typedef struct section_tables {
    const crl_config_section *section;
    const crl_option *selected; /* NULL: none */
    void *options;              /* of `selected` */
    bool skip;                  /* the selector's value is wrong: nothing else can be checked */
} section_tables;

static const crl_config_section *find_section(const crl_config_section *sections,
                                              const char *name) {
    for (; sections->name; ++sections) {
        if (strcmp(sections->name, name) == 0) {
            return sections;
        }
    }
    return NULL;
}

static size_t row_count(const crl_option *table) {
    size_t count = 0;
    while (table && table[count].name) {
        ++count;
    }
    return count;
}

/* Appends the names of `count` items, as "a, b", and returns the new length. */
static size_t list_names(char *text, size_t text_bytes, size_t used, const void *items,
                         size_t count, size_t stride_bytes) {
    for (size_t i = 0; i < count && used < text_bytes; ++i) {
        const char *name;
        memcpy(&name, (const char *)items + i * stride_bytes, sizeof name);
        used += (size_t)snprintf(text + used, text_bytes - used, "%s%s", used ? ", " : "", name);
    }
    return used;
}

static crl_status unknown_section(crl_config_input *input, const crl_config_section *sections,
                                  const crl_config_place *at, const char *name) {
    size_t count = 0;
    while (sections[count].name) {
        ++count;
    }
    char names[1024] = "", quoted[CRL_QUOTE_BYTES];
    crl_text_quote(quoted, sizeof quoted, name);
    const char *near = crl_nearest_name(name, sections, count, sizeof *sections);
    if (near) {
        CRL_TRY(crl_config_add_problem(input, at, "unknown section '%s', did you mean '%s'?",
                                       quoted, near));
        return CRL_STATUS_OK;
    }
    list_names(names, sizeof names, 0, sections, count, sizeof *sections);
    CRL_TRY(
        crl_config_add_problem(input, at, "unknown section '%s' (sections: %s)", quoted, names));
    return CRL_STATUS_OK;
}

static crl_status unknown_key(crl_config_input *input, const section_tables *tables,
                              const crl_config_entry *entry) {
    if (!crl_config_wants_problems(input)) { /* only to be counted */
        return crl_config_add_problem(input, &entry->at, "unknown key");
    }
    const crl_option *own = tables->section->table, *selected = tables->selected;
    const size_t own_count = row_count(own), selected_count = row_count(selected);
    char names[1024] = "", quoted[CRL_QUOTE_BYTES];
    crl_text_quote(quoted, sizeof quoted, entry->key);
    const char *near = crl_nearest_name(entry->key, own, own_count, sizeof *own);
    const char *other = crl_nearest_name(entry->key, selected, selected_count, sizeof *own);
    if (!near ||
        (other && crl_name_distance(entry->key, other) < crl_name_distance(entry->key, near))) {
        near = other;
    }
    if (near) {
        CRL_TRY(crl_config_add_problem(input, &entry->at,
                                       "unknown key '%s' in '%s', did you mean '%s'?", quoted,
                                       entry->section, near));
        return CRL_STATUS_OK;
    }
    const size_t used = list_names(names, sizeof names, 0, own, own_count, sizeof *own);
    list_names(names, sizeof names, used, selected, selected_count, sizeof *own);
    CRL_TRY(crl_config_add_problem(input, &entry->at, "unknown key '%s' in '%s' (keys: %s)", quoted,
                                   entry->section, names));
    return CRL_STATUS_OK;
}

/* A key or section given twice in the file; --set may repeat and override. */
static crl_status check_duplicate(crl_config_input *input, const crl_config_entry *entry) {
    const crl_config_entry *first = crl_config_first(input, entry->section, entry->key);
    if (entry->at.set || first == entry) {
        return CRL_STATUS_OK;
    }
    char quoted[CRL_QUOTE_BYTES];
    crl_text_quote(quoted, sizeof quoted, entry->key ? entry->key : entry->section);
    if (entry->key) {
        CRL_TRY(crl_config_add_problem(
            input, &entry->at, "duplicate key '%s' in '%s', first given at %s:%d:%d", quoted,
            entry->section, first->at.file, first->at.line, first->at.column));
    } else {
        CRL_TRY(crl_config_add_problem(input, &entry->at,
                                       "duplicate section '%s', first given at %s:%d:%d", quoted,
                                       first->at.file, first->at.line, first->at.column));
    }
    return CRL_STATUS_OK;
}

/* Parses one value into its field; a wrong one becomes a problem and *ok false. */
static crl_status set_value(bool *ok, crl_config_input *input, const crl_option *option,
                            void *options, const crl_config_entry *entry) {
    *ok = false;
    if (!entry->text) {
        return CRL_STATUS_OK;
    }
    if (entry->list && strncmp(option->type->name, "list", 4) != 0) {
        CRL_TRY(crl_config_add_problem(input, &entry->value_at,
                                       "%s.%s is a list, expected a single value", entry->section,
                                       option->name));
        return CRL_STATUS_OK;
    }
    const crl_status status =
        option->type->parse(option, entry->text, &input->arena, (char *)options + option->offset);
    if (status == CRL_STATUS_INVALID) {
        CRL_TRY(crl_config_add_problem(input, &entry->value_at, "%s.%s %s", entry->section,
                                       option->name, crl_error_message()));
        return CRL_STATUS_OK;
    }
    CRL_TRY(status);
    *ok = true;
    return CRL_STATUS_OK;
}

static crl_status apply_entry(crl_config_input *input, const section_tables *tables,
                              const crl_config_entry *entry) {
    const crl_option *option =
        tables->selected ? crl_option_find(tables->selected, entry->key) : NULL;
    void *options = tables->options;
    bool ok;
    if (!option) {
        option = crl_option_find(tables->section->table, entry->key);
        options = tables->section->options;
    }
    const char *selector = tables->section->selector;
    const bool selects = selector && strcmp(selector, entry->key) == 0;
    if (selects || (!option && tables->skip)) {
        return CRL_STATUS_OK; /* the selector has been read by select_tables */
    }
    if (!option) {
        CRL_TRY(unknown_key(input, tables, entry));
        return CRL_STATUS_OK;
    }
    CRL_TRY(set_value(&ok, input, option, options, entry));
    return CRL_STATUS_OK;
}

/* Reads every value given for the selector; the last one chooses. */
static crl_status select_tables(crl_config_input *input, section_tables *tables) {
    const crl_config_section *section = tables->section;
    const crl_option *row = crl_option_find(section->table, section->selector);
    CRL_ASSERT(row);
    const char *value = row->value;
    crl_config_place at = {.file = "default", .line = INT_MAX};
    for (int i = 0; i < input->entries; ++i) {
        const crl_config_entry *entry = &input->entry[i];
        if (!entry->key || strcmp(entry->section, section->name) != 0 ||
            strcmp(entry->key, section->selector) != 0) {
            continue;
        }
        bool ok;
        CRL_TRY(set_value(&ok, input, row, section->options, entry));
        value = ok ? entry->text : NULL;
        at = entry->value_at;
    }
    if (!value) {
        tables->skip = true; /* wrong or missing: reported as such */
        return CRL_STATUS_OK;
    }
    const crl_status status = section->select(section->context, value, &input->arena,
                                              &tables->selected, &tables->options);
    if (status == CRL_STATUS_INVALID || status == CRL_STATUS_NOT_FOUND ||
        status == CRL_STATUS_UNSUPPORTED) {
        tables->skip = true;
        CRL_TRY(crl_config_add_problem(input, &at, "%s.%s: %s", section->name, section->selector,
                                       crl_error_message()));
        return CRL_STATUS_OK;
    }
    CRL_TRY(status);
    if (tables->selected) {
        CRL_TRY(crl_option_defaults(tables->selected, &input->arena, tables->options));
    }
    return CRL_STATUS_OK;
}

static crl_status check_missing(crl_config_input *input, const crl_config_section *section,
                                const crl_option *table, const crl_config_place *whole) {
    const crl_config_entry *given = crl_config_first(input, section->name, NULL);
    const crl_config_place *at = given ? &given->at : whole;
    for (const crl_option *option = input->cut ? NULL : table; option && option->name; ++option) {
        if (!option->value && !crl_config_first(input, section->name, option->name)) {
            CRL_TRY(crl_config_add_problem(input, at, "missing key '%s.%s'", section->name,
                                           option->name));
        }
    }
    return CRL_STATUS_OK;
}

/* A single word where the section has keys only. */
static crl_status refuse_word(crl_config_input *input, const crl_config_entry *entry) {
    char quoted[CRL_QUOTE_BYTES], word[CRL_QUOTE_BYTES];
    crl_text_quote(quoted, sizeof quoted, entry->section);
    if (entry->at.set) {
        return crl_config_add_problem(input, &entry->at,
                                      "'%s=%s' is not of the form section.key=value", quoted,
                                      crl_text_quote(word, sizeof word, entry->text));
    }
    return crl_config_add_problem(input, &entry->value_at,
                                  "'%s' is a single value, expected a section of keys", quoted);
}

/* Single words in place of sections become the keys they stand for; unknown sections that a file
 * has are reported later, as such. */
static crl_status take_words(crl_config_input *input, const crl_config_section *sections) {
    int kept = 0;
    for (int i = 0; i < input->entries; ++i) {
        crl_config_entry *entry = &input->entry[i];
        const crl_config_section *section = find_section(sections, entry->section);
        const bool word = !entry->key && entry->text && (section || entry->at.set);
        if (word && section && section->word) {
            entry->key = section->word;
        } else if (word) {
            CRL_TRY(refuse_word(input, entry));
        }
        if (entry->key || !entry->at.set) { /* nothing else can be said of a word of --set */
            input->entry[kept++] = *entry;
        }
    }
    input->entries = kept;
    return CRL_STATUS_OK;
}

static crl_status walk_section(crl_config_input *input, const crl_config_section *section,
                               const crl_config_place *whole) {
    section_tables tables = {.section = section};
    CRL_TRY(crl_option_defaults(section->table, &input->arena, section->options));
    if (section->selector) {
        CRL_TRY(select_tables(input, &tables));
    }
    for (int i = 0; i < input->entries; ++i) {
        const crl_config_entry *entry = &input->entry[i];
        if (entry->key && strcmp(entry->section, section->name) == 0) {
            CRL_TRY(apply_entry(input, &tables, entry));
        }
    }
    CRL_TRY(check_missing(input, section, section->table, whole));
    CRL_TRY(check_missing(input, section, tables.selected, whole));
    return CRL_STATUS_OK;
}

/* `whole` stands for the file where no place in it can be named. */
static crl_status walk(crl_config_input *input, const crl_config_section *sections,
                       const crl_config_place *whole) {
    CRL_TRY(take_words(input, sections));
    for (int i = 0; i < input->entries; ++i) {
        const crl_config_entry *entry = &input->entry[i];
        CRL_TRY(check_duplicate(input, entry));
        if ((!entry->key || entry->at.set) && !find_section(sections, entry->section)) {
            CRL_TRY(unknown_section(input, sections, &entry->at, entry->section));
        }
    }
    for (const crl_config_section *section = sections; section->name; ++section) {
        CRL_TRY(walk_section(input, section, whole));
    }
    return CRL_STATUS_OK;
}

/* The last place each key was given at. */
static crl_status collect_origins(crl_config_input *input, crl_config_source *source) {
    crl_config_origin *origin;
    int count = 0;
    CRL_TRY(crl_arena_alloc(&input->arena, &origin, (size_t)input->entries, sizeof *origin));
    for (int i = 0; i < input->entries; ++i) {
        const crl_config_entry *entry = &input->entry[i];
        if (!entry->key) {
            continue;
        }
        const char *key, *file;
        CRL_TRY(crl_arena_format(&input->arena, &key, "%s.%s", entry->section, entry->key));
        CRL_TRY(crl_arena_text(&input->arena, &file, entry->at.file));
        int at = 0;
        while (at < count && strcmp(origin[at].key, key) != 0) {
            ++at;
        }
        count += at == count;
        origin[at] = (crl_config_origin){.key = key,
                                         .text = entry->text,
                                         .file = file,
                                         .line = entry->value_at.line,
                                         .column = entry->value_at.column};
    }
    source->origin = origin;
    source->origins = count;
    return CRL_STATUS_OK;
}

crl_status crl_config_parse(crl_config_source *source, const crl_config_section *sections,
                            const char *name, const char *text, size_t bytes,
                            const char *const *sets, int set_count) {
    if (bytes > CRL_CONFIG_LIMIT_BYTES) {
        return CRL_FAIL(INVALID, "%s: is %zu bytes long, expected at most %d", name, bytes,
                        CRL_CONFIG_LIMIT_BYTES);
    }
    crl_status status = CRL_STATUS_OK;
    const crl_config_place whole = {.file = name, .line = bytes > 0 ? 1 : INT_MAX, .column = 1};
    crl_config_input input = {0};
    crl_config_source loaded = {0};
    CRL_TRY_OUT(crl_config_read_yaml(&input, name, text, bytes));
    for (int i = 0; i < set_count; ++i) {
        CRL_TRY_OUT(crl_config_read_set(&input, sets[i], i));
    }
    CRL_TRY_OUT(walk(&input, sections, &whole));
    CRL_TRY_OUT(crl_config_report(&input));
    CRL_TRY_OUT(collect_origins(&input, &loaded));
    loaded.arena = input.arena;
    input.arena = (crl_arena){0};
    *source = loaded;
out:
    crl_config_input_fini(&input);
    return status;
}

crl_status crl_config_load(crl_config_source *source, const crl_config_section *sections,
                           const char *path, const char *const *sets, int set_count) {
    if (!path) {
        CRL_TRY(crl_config_parse(source, sections, "config", "", 0, sets, set_count));
        return CRL_STATUS_OK;
    }
    char *text;
    size_t bytes;
    CRL_TRY(crl_file_read(&text, &bytes, path, CRL_CONFIG_LIMIT_BYTES));
    const crl_status status =
        crl_config_parse(source, sections, path, text, bytes, sets, set_count);
    crl_free(text);
    CRL_TRY(status);
    return CRL_STATUS_OK;
}

const char *crl_config_where(const crl_config_source *source, const char *key, char *text,
                             size_t text_bytes) {
    for (int i = 0; i < source->origins; ++i) {
        const crl_config_origin *origin = &source->origin[i];
        if (strcmp(origin->key, key) == 0) {
            snprintf(text, text_bytes, "%s:%d:%d: %s", origin->file, origin->line, origin->column,
                     key);
            return text;
        }
    }
    snprintf(text, text_bytes, "%s (default)", key);
    return text;
}

void crl_config_fini(crl_config_source *source) {
    crl_arena_fini(&source->arena);
    *source = (crl_config_source){0};
}
