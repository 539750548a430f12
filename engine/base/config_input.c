/* SPDX-License-Identifier: Apache-2.0 */
/* The flat list of what was given and of what is wrong; and the items of --set. */
#include "engine/base/config_internal.h"

#include "engine/base/alloc.h"
#include "engine/base/text_internal.h"

#include <limits.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

/* Room for one more: the arrays grow at powers of two. */
static crl_status grow(void *in_out, int count, size_t size_bytes) {
    const size_t old = (size_t)count;
    if ((old & (old - 1)) == 0) {
        CRL_TRY(crl_realloc(in_out, old, old == 0 ? 1 : 2 * old, size_bytes));
    }
    return CRL_STATUS_OK;
}

crl_status crl_config_add_entry(crl_config_input *input, const crl_config_entry *entry) {
    CRL_TRY(grow(&input->entry, input->entries, sizeof *entry));
    input->entry[input->entries++] = *entry;
    return CRL_STATUS_OK;
}

bool crl_config_wants_problems(const crl_config_input *input) {
    return input->problems < CRL_CONFIG_LIMIT_PROBLEMS;
}

crl_status crl_config_add_problem(crl_config_input *input, const crl_config_place *at,
                                  const char *format, ...) {
    if (!crl_config_wants_problems(input)) {
        ++input->problems;
        return CRL_STATUS_OK;
    }
    char text[2048], line[2048];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    crl_text_quote(line, sizeof line, text);
    crl_config_problem problem = {.at = *at, .order = input->problems};
    CRL_TRY(crl_arena_text(&input->arena, &problem.text, line));
    CRL_TRY(grow(&input->problem, input->problems, sizeof problem));
    input->problem[input->problems++] = problem;
    return CRL_STATUS_OK;
}

const crl_config_entry *crl_config_first(const crl_config_input *input, const char *section,
                                         const char *key) {
    for (int i = 0; i < input->entries; ++i) {
        const crl_config_entry *entry = &input->entry[i];
        const bool same_key = key ? entry->key && strcmp(entry->key, key) == 0 : !entry->key;
        if (same_key && strcmp(entry->section, section) == 0) {
            return entry;
        }
    }
    return NULL;
}

static int by_place(const void *left, const void *right) {
    const crl_config_problem *a = left, *b = right;
    const int key_a[] = {a->at.line == INT_MAX, a->at.set, a->at.line, a->at.column, a->order};
    const int key_b[] = {b->at.line == INT_MAX, b->at.set, b->at.line, b->at.column, b->order};
    for (size_t i = 0; i < sizeof key_a / sizeof key_a[0]; ++i) {
        if (key_a[i] != key_b[i]) {
            return key_a[i] < key_b[i] ? -1 : 1;
        }
    }
    return 0;
}

crl_status crl_config_report(crl_config_input *input) {
    if (input->problems == 0) {
        return CRL_STATUS_OK;
    }
    const int kept = crl_config_wants_problems(input) ? input->problems : CRL_CONFIG_LIMIT_PROBLEMS;
    qsort(input->problem, (size_t)kept, sizeof *input->problem, by_place);
    char text[CRL_ERROR_MESSAGE_BYTES], line[4096 + 2100];
    size_t used = 0;
    int shown = 0;
    for (; shown < kept; ++shown) {
        const crl_config_problem *problem = &input->problem[shown];
        const char *join = shown ? "\n" : "";
        const int length =
            problem->at.line == INT_MAX
                ? snprintf(line, sizeof line, "%s%s: %s", join, problem->at.file, problem->text)
                : snprintf(line, sizeof line, "%s%s:%d:%d: %s", join, problem->at.file,
                           problem->at.line, problem->at.column, problem->text);
        /* The last line, that there is more, has to fit as well. */
        const size_t reserve = 64;
        if ((size_t)length >= sizeof line || used + (size_t)length + reserve > sizeof text) {
            break;
        }
        memcpy(text + used, line, (size_t)length);
        used += (size_t)length;
    }
    text[used] = '\0';
    const int more = input->problems - shown;
    return more > 0 ? CRL_FAIL(INVALID, "%s%s(and %d more)", text, shown ? "\n" : "", more)
                    : CRL_FAIL(INVALID, "%s", text);
}

void crl_config_input_fini(crl_config_input *input) {
    crl_free(input->entry);
    crl_free(input->problem);
    crl_arena_fini(&input->arena);
}

crl_status crl_config_read_set(crl_config_input *input, const char *set, int index) {
    const crl_config_place at = {.file = "--set", .set = 1, .line = index + 1, .column = 1};
    const char *equals = strchr(set, '=');
    const char *dot = strchr(set, '.');
    if (!equals || equals == set || dot == set || (dot && dot + 1 == equals)) {
        char quoted[CRL_QUOTE_BYTES];
        CRL_TRY(crl_config_add_problem(input, &at, "'%s' is not of the form section.key=value",
                                       crl_text_quote(quoted, sizeof quoted, set)));
        return CRL_STATUS_OK;
    }
    crl_config_entry entry = {.at = at, .value_at = at};
    const char *end = dot && dot < equals ? dot : equals;
    CRL_TRY(crl_arena_format(&input->arena, &entry.section, "%.*s", (int)(end - set), set));
    if (end == dot) {
        CRL_TRY(
            crl_arena_format(&input->arena, &entry.key, "%.*s", (int)(equals - dot - 1), dot + 1));
    }
    CRL_TRY(crl_arena_text(&input->arena, &entry.text, equals + 1));
    CRL_TRY(crl_config_add_entry(input, &entry));
    return CRL_STATUS_OK;
}
