/* SPDX-License-Identifier: Apache-2.0 */
/* The reference of all sections as Markdown, from the same rows the parser uses. */
#include "engine/base/config.h"

#include "engine/base/option_internal.h"

/* A cell of a table: '|' would end it. */
static void write_cell(const char *text, FILE *out) {
    for (; *text; ++text) {
        if (*text == '|') {
            fputc('\\', out);
        }
        fputc(*text, out);
    }
}

static void write_row(const crl_option *option, FILE *out) {
    fprintf(out, "| `%s` | ", option->name);
    if (option->choices) {
        for (const char *const *choice = option->choices; *choice; ++choice) {
            fprintf(out, "%s`%s`", choice == option->choices ? "" : ", ", *choice);
        }
    } else {
        write_cell(option->type->name, out);
    }
    char limits[96];
    if (*crl_option_limits(option, limits, sizeof limits)) {
        fprintf(out, ", %s", limits);
    }
    fputs(" | ", out);
    if (!option->value) {
        fputs("*required*", out);
    } else if (*option->value) {
        fputc('`', out);
        write_cell(option->value, out);
        fputc('`', out);
    }
    fputs(" | ", out);
    write_cell(option->help, out);
    fputs(" |\n", out);
}

void crl_config_reference(const crl_config_section *sections, FILE *out) {
    for (const crl_config_section *section = sections; section->name; ++section) {
        fprintf(out, "%s## `%s`\n\n%s\n\n", section == sections ? "" : "\n", section->name,
                section->help);
        fputs("| key | value | default | meaning |\n|---|---|---|---|\n", out);
        for (const crl_option *option = section->table; option->name; ++option) {
            write_row(option, out);
        }
        if (section->selector) {
            fprintf(out, "\nFurther keys depend on `%s.%s`.\n", section->name, section->selector);
        }
    }
}
