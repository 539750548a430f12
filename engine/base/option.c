/* SPDX-License-Identifier: Apache-2.0 */
/* Option tables: defaults, look-up, setting and printing. What a value means is option_types.c. */
#include "engine/base/option.h"

#include "engine/base/option_internal.h"
#include "engine/base/text_internal.h"

#include <string.h>

crl_status crl_option_defaults(const crl_option *table, crl_arena *arena, void *options) {
    for (const crl_option *option = table; option->name; ++option) {
        if (option->value) {
            CRL_TRY(crl_option_set(table, option->name, option->value, arena, options));
        }
    }
    return CRL_STATUS_OK;
}

const crl_option *crl_option_find(const crl_option *table, const char *name) {
    for (const crl_option *option = table; option->name; ++option) {
        if (strcmp(option->name, name) == 0) {
            return option;
        }
    }
    return NULL;
}

static crl_status unknown_option(const crl_option *table, const char *name) {
    size_t count = 0;
    while (table[count].name) {
        ++count;
    }
    char quoted[CRL_QUOTE_BYTES];
    crl_text_quote(quoted, sizeof quoted, name);
    const char *near = crl_nearest_name(name, table, count, sizeof *table);
    return near ? CRL_FAIL(NOT_FOUND, "unknown option '%s', did you mean '%s'?", quoted, near)
                : CRL_FAIL(NOT_FOUND, "unknown option '%s'", quoted);
}

crl_status crl_option_set(const crl_option *table, const char *name, const char *text,
                          crl_arena *arena, void *options) {
    const crl_option *option = crl_option_find(table, name);
    if (!option) {
        return unknown_option(table, name);
    }
    const crl_status status =
        option->type->parse(option, text, arena, (char *)options + option->offset);
    if (status == CRL_STATUS_INVALID) {
        return CRL_FAIL(INVALID, "%s %s", name, crl_error_message());
    }
    CRL_TRY(status);
    return CRL_STATUS_OK;
}

void crl_option_print(const crl_option *table, const char *prefix, FILE *out) {
    for (const crl_option *option = table; option->name; ++option) {
        fprintf(out, "%s%-20s %s (%s", prefix, option->name, option->help, option->type->name);
        for (const char *const *choice = option->choices; choice && *choice; ++choice) {
            fprintf(out, "%s%s", choice == option->choices ? ": " : " | ", *choice);
        }
        char limits[96];
        if (*crl_option_limits(option, limits, sizeof limits)) {
            fprintf(out, ", %s", limits);
        }
        if (option->value) {
            fprintf(out, ", default %s)\n", *option->value ? option->value : "none");
        } else {
            fprintf(out, ", required)\n");
        }
    }
}

const char *crl_nearest_name(const char *name, const void *names, size_t count,
                             size_t stride_bytes) {
    const char *nearest = NULL;
    int least = -1;
    for (size_t i = 0; i < count; ++i) {
        const char *candidate;
        memcpy(&candidate, (const char *)names + i * stride_bytes, sizeof candidate);
        const int distance = crl_name_distance(name, candidate);
        if (distance >= 0 && (least < 0 || distance < least)) {
            nearest = candidate;
            least = distance;
        }
    }
    return nearest;
}
