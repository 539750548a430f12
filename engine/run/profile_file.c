/* SPDX-License-Identifier: Apache-2.0 */
/* Reading profile files. Stops at the first problem, which it gives the place of. */
#include "engine/run/profile_file.h"

#include <stdlib.h>
#include <string.h>

#include "engine/base/alloc.h"
#include "engine/base/option.h"
#include "engine/base/yaml.h"
#include "engine/run/profile_internal.h"

enum { MOST_NUMBERS = 24 };

void crl_profile_list_fini(crl_profile_list *list) {
    for (int i = 0; i < list->count; i++) {
        crl_profile_destroy(list->item[i]);
    }
    crl_free(list->item);
    *list = (crl_profile_list){0};
}

/* The tree, the arena of the profile that is read, and where messages begin. */
typedef struct source {
    const crl_yaml *yaml;
    crl_arena *arena;
    char at[CRL_YAML_PLACE_BYTES];
} source;

static const char *where(source *s, const crl_yaml_node *node) {
    return crl_yaml_where(s->yaml, node, s->at);
}

static crl_status wrong_kind(source *s, const crl_yaml_node *node, const char *expected) {
    return CRL_FAIL(INVALID, "%s: %s%sis %s, expected %s", where(s, node),
                    node->key ? node->key : "", node->key ? " " : "", crl_yaml_kind_name(node),
                    expected);
}

/* Refuses keys that are not in `keys` (count of them). */
static crl_status check_keys(source *s, const crl_yaml_node *map, const char *const *keys,
                             int count) {
    for (const crl_yaml_node *child = map->child; child; child = child->next) {
        bool known = false;
        for (int i = 0; i < count && !known; i++) {
            known = strcmp(keys[i], child->key) == 0;
        }
        if (!known) {
            const char *nearest = crl_nearest_name(child->key, keys, (size_t)count, sizeof keys[0]);
            return CRL_FAIL(INVALID, "%s: unknown key '%.80s'%s%s%s",
                            crl_yaml_where_key(s->yaml, child, s->at), child->key,
                            nearest ? ", did you mean '" : "", nearest ? nearest : "",
                            nearest ? "'?" : "");
        }
    }
    return CRL_STATUS_OK;
}

/* Reads the text `key` of `map` as `type` (an option type); one that is missing stays as it is. */
static crl_status take(source *s, const crl_yaml_node *map, const char *key, bool needed,
                       const crl_option *row, void *field) {
    const crl_yaml_node *node = crl_yaml_member(map, key);
    if (!node) {
        return needed ? CRL_FAIL(INVALID, "%s: '%s' is missing", where(s, map), key)
                      : CRL_STATUS_OK;
    }
    if (node->kind != CRL_YAML_TEXT) {
        return wrong_kind(s, node, "a single value");
    }
    const crl_status status = row->type->parse(row, node->text, s->arena, field);
    if (status == CRL_STATUS_INVALID) {
        char message[512];
        snprintf(message, sizeof message, "%.400s", crl_error_message());
        return CRL_FAIL(INVALID, "%s: %s %s", where(s, node), key, message);
    }
    return status;
}

static crl_status take_numbers(source *s, const crl_yaml_node *map, crl_profile_unit *unit) {
    unsigned given = 0;
    for (int i = 0; crl_profile_numbers[i].name; i++) {
        const crl_profile_number *number = &crl_profile_numbers[i];
        const crl_yaml_node *node = crl_yaml_member(map, number->name);
        if (!node) {
            continue;
        }
        if (node->kind != CRL_YAML_TEXT) {
            return wrong_kind(s, node, "a single value");
        }
        given |= 1u << i;
        if (crl_profile_parse_number(profile_number(unit, number), node->text, number->seconds)) {
            char message[512];
            snprintf(message, sizeof message, "%.400s", crl_error_message());
            return CRL_FAIL(INVALID, "%s: %s of unit '%.80s' %s", where(s, node), number->name,
                            unit->name, message);
        }
    }
    if (!(given & 1u)) {
        return CRL_FAIL(INVALID, "%s: '%s' of unit '%.80s' is missing", where(s, map),
                        crl_profile_numbers[0].name, unit->name);
    }
    crl_profile_fill(unit, given);
    return CRL_STATUS_OK;
}

static int ascending(const void *left, const void *right) {
    const int a = *(const int *)left, b = *(const int *)right;
    return (a > b) - (a < b);
}

/* The unit that `node` names as an input of unit `reader`. */
static crl_status find_input(source *s, const crl_profile *profile, int reader,
                             const crl_yaml_node *node, const char *reader_name, int *out) {
    if (node->kind != CRL_YAML_TEXT) {
        return wrong_kind(s, node, "the name of a unit");
    }
    *out = crl_profile_find(profile, node->text); /* units after the reader have no names yet */
    if (*out >= 0) {
        return CRL_STATUS_OK;
    }
    return CRL_FAIL(INVALID, "%s: unit '%.80s' reads '%.80s', which is %s", where(s, node),
                    reader_name, node->text,
                    strcmp(node->text, reader_name) == 0 ? "itself"
                    : reader == 0                        ? "not there: it is the first"
                                                         : "no unit before it");
}

/* Names the unit and what it reads: `inputs`, by default the unit before. */
static crl_status take_inputs(source *s, const crl_yaml_node *map, const char *name, int index,
                              crl_profile *profile) {
    crl_status status = CRL_STATUS_OK;
    const crl_yaml_node *node = crl_yaml_member(map, "inputs");
    const int before = index - 1;
    if (!node) {
        return crl_profile_name_unit(profile, index, name, index > 0, &before);
    }
    if (node->kind == CRL_YAML_MAP) {
        return wrong_kind(s, node, "a list of names");
    }
    const bool one = node->kind == CRL_YAML_TEXT;
    const int inputs = one ? 1 : node->children;
    int *input = NULL;
    CRL_TRY_OUT(crl_alloc(&input, (size_t)inputs, sizeof *input));
    const crl_yaml_node *item = one ? node : node->child;
    for (int i = 0; i < inputs; i++, item = item->next) {
        CRL_TRY_OUT(find_input(s, profile, index, item, name, &input[i]));
        for (int j = 0; j < i; j++) {
            if (input[j] == input[i]) {
                status = CRL_FAIL(INVALID, "%s: unit '%.80s' reads '%.80s' twice", where(s, item),
                                  name, item->text);
                goto out;
            }
        }
    }
    qsort(input, (size_t)inputs, sizeof *input, ascending);
    CRL_TRY_OUT(crl_profile_name_unit(profile, index, name, inputs, input));
out:
    crl_free(input);
    return status;
}

static crl_status take_unit(source *s, const crl_yaml_node *map, int index, crl_profile *profile) {
    const char *keys[MOST_NUMBERS] = {"name", "inputs", "gradient"};
    int count = 3;
    for (int i = 0; crl_profile_numbers[i].name; i++) {
        CRL_ASSERT(count < MOST_NUMBERS);
        keys[count++] = crl_profile_numbers[i].name;
    }
    if (map->kind != CRL_YAML_MAP) {
        return wrong_kind(s, map, "a unit: a mapping");
    }
    CRL_TRY(check_keys(s, map, keys, count));
    const char *name = NULL;
    bool gradient = true;
    const crl_option text = {.type = &crl_option_text}, yes = {.type = &crl_option_bool};
    CRL_TRY(take(s, map, "name", true, &text, &name));
    if (name[0] == '\0') {
        return CRL_FAIL(INVALID, "%s: name is empty", where(s, crl_yaml_member(map, "name")));
    }
    if (crl_profile_find(profile, name) >= 0) {
        return CRL_FAIL(INVALID, "%s: a unit '%.80s' stands before it already",
                        where(s, crl_yaml_member(map, "name")), name);
    }
    CRL_TRY(take(s, map, "gradient", false, &yes, &gradient));
    CRL_TRY(take_inputs(s, map, name, index, profile));
    profile->unit[index].no_gradient = !gradient;
    return take_numbers(s, map, &profile->unit[index]);
}

static crl_status take_head(source *s, const crl_yaml_node *map, crl_profile *profile) {
    const crl_option count = {.type = &crl_option_int, .min = 1, .max = 1e9};
    const crl_option positive = {.type = &crl_option_double, .min = 1e-9, .max = 1e12};
    const crl_option text = {.type = &crl_option_text};
    int64_t format = 0;
    CRL_TRY(take(s, map, "format", true, &count, &format));
    if (format != CRL_PROFILE_FORMAT) {
        return CRL_FAIL(INVALID, "%s: format is %lld, expected %d",
                        where(s, crl_yaml_member(map, "format")), (long long)format,
                        CRL_PROFILE_FORMAT);
    }
    CRL_TRY(take(s, map, "source", false, &text, &profile->source));
    CRL_TRY(take(s, map, "micro_batch", true, &count, &profile->micro_batch));
    return take(s, map, "tokens_per_sample", false, &positive, &profile->tokens_per_sample);
}

static crl_status take_profile(source *s, const crl_yaml_node *map, crl_profile **out) {
    static const char *const keys[] = {"format", "source", "micro_batch", "tokens_per_sample",
                                       "units"};
    crl_status status = CRL_STATUS_OK;
    crl_profile *profile = NULL;
    if (map->kind != CRL_YAML_MAP) {
        return wrong_kind(s, map, "a profile: a mapping");
    }
    CRL_TRY(check_keys(s, map, keys, (int)(sizeof keys / sizeof keys[0])));
    const crl_yaml_node *units = crl_yaml_member(map, "units");
    if (!units) {
        return CRL_FAIL(INVALID, "%s: 'units' is missing", where(s, map));
    }
    if (units->kind != CRL_YAML_LIST) {
        return wrong_kind(s, units, "a list of units");
    }
    if (units->children < 1 || units->children > CRL_PROFILE_MOST_UNITS) {
        return CRL_FAIL(INVALID, "%s: units are %d, expected 1 to %d", where(s, units),
                        units->children, CRL_PROFILE_MOST_UNITS);
    }
    CRL_TRY(crl_profile_create(&profile, units->children));
    s->arena = &profile->arena;
    CRL_TRY_OUT(take_head(s, map, profile));
    const crl_yaml_node *unit = units->child;
    for (int u = 0; u < units->children; u++, unit = unit->next) {
        CRL_TRY_OUT(take_unit(s, unit, u, profile));
    }
    CRL_TRY_OUT(crl_profile_check(profile));
    *out = profile;
    profile = NULL;
out:
    crl_profile_destroy(profile);
    return status;
}

/* Profiles of one file are of one model. */
static crl_status check_same(source *s, const crl_yaml_node *node, const crl_profile *before,
                             const crl_profile *now) {
    if (now->micro_batch <= before->micro_batch) {
        return CRL_FAIL(INVALID, "%s: micro_batch is %lld after %lld, expected ascending",
                        where(s, node), (long long)now->micro_batch,
                        (long long)before->micro_batch);
    }
    if (now->units != before->units) {
        return CRL_FAIL(INVALID, "%s: has %d units, the profile before it %d", where(s, node),
                        now->units, before->units);
    }
    for (int u = 0; u < now->units; u++) {
        if (strcmp(now->unit[u].name, before->unit[u].name) != 0) {
            return CRL_FAIL(INVALID, "%s: unit %d is '%.80s', in the profile before it '%.80s'",
                            where(s, node), u, now->unit[u].name, before->unit[u].name);
        }
    }
    return CRL_STATUS_OK;
}

static crl_status take_all(const crl_yaml *yaml, crl_profile_list *list) {
    source s = {.yaml = yaml};
    const bool many = yaml->root->kind == CRL_YAML_LIST;
    const int count = many ? yaml->root->children : 1;
    if (count < 1) {
        return wrong_kind(&s, yaml->root, "one with profiles");
    }
    CRL_TRY(crl_alloc(&list->item, (size_t)count, sizeof list->item[0]));
    const crl_yaml_node *node = many ? yaml->root->child : yaml->root;
    for (; list->count < count; node = node->next) {
        CRL_TRY(take_profile(&s, node, &list->item[list->count]));
        list->count++;
        if (list->count > 1) {
            CRL_TRY(check_same(&s, node, list->item[list->count - 2], list->item[list->count - 1]));
        }
    }
    return CRL_STATUS_OK;
}

/* Names and texts of a file may hold anything; a message is one line. */
static void make_one_line(void) {
    crl_error error = *crl_error_get();
    for (char *c = error.message; *c; c++) {
        *c = (unsigned char)*c < 0x20 || *c == 0x7f ? '?' : *c;
    }
    crl_error_set(&error);
}

static crl_status finish(crl_profile_list *out, crl_yaml *yaml, crl_status status) {
    crl_profile_list list = {0};
    if (status == CRL_STATUS_OK) {
        status = take_all(yaml, &list);
    }
    crl_yaml_fini(yaml);
    if (status) {
        make_one_line();
        crl_profile_list_fini(&list);
    } else {
        *out = list;
    }
    return status;
}

crl_status crl_profile_file_read(crl_profile_list *out, const char *path) {
    crl_yaml yaml;
    const crl_status status = crl_yaml_load(&yaml, path);
    return finish(out, &yaml, status);
}

crl_status crl_profile_file_parse(crl_profile_list *out, const char *name, const char *text,
                                  size_t bytes) {
    crl_yaml yaml;
    const crl_status status = crl_yaml_parse(&yaml, name, text, bytes);
    return finish(out, &yaml, status);
}
