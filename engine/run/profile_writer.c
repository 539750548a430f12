/* SPDX-License-Identifier: Apache-2.0 */
/* Writing profile files: only what the reader would not fill in by itself. */
#include <locale.h>
#include <string.h>

#include "engine/base/option.h"
#include "engine/run/profile_file.h"
#include "engine/run/profile_internal.h"

/* A text that YAML takes as it is, in double quotes where need be. */
static void print_text(FILE *out, const char *text) {
    const char *plain = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ_./0123456789-";
    if (text[0] && strspn(text, plain) == strlen(text) && text[0] != '-' && text[0] != '.') {
        fputs(text, out);
        return;
    }
    fputc('"', out);
    for (; *text; text++) {
        const unsigned char c = (unsigned char)*text;
        if (c == '"' || c == '\\') {
            fprintf(out, "\\%c", c);
        } else if (c < 0x20 || c == 0x7f) {
            fprintf(out, "\\x%02x", c);
        } else {
            fputc(c, out);
        }
    }
    fputc('"', out);
}

/* The shortest text in the unit of its size that reads back to the same double. */
static void show_seconds(double value, char *text, size_t text_bytes) {
    static const struct {
        double least, scale;
        const char *name;
    } unit[] = {{1, 1, "s"}, {1e-3, 1e3, "ms"}, {1e-6, 1e6, "us"}, {0, 1e9, "ns"}};
    int u = 0;
    while (value < unit[u].least) {
        u++;
    }
    for (int digits = 1; digits <= 17; digits++) {
        double back = 0;
        snprintf(text, text_bytes, "%.*g%s", digits, value * unit[u].scale, unit[u].name);
        if (crl_profile_parse_number(&back, text, true) == CRL_STATUS_OK && back == value) {
            return;
        }
    }
    snprintf(text, text_bytes, "%.17g", value);
}

static void print_number(FILE *out, const char *indent, const crl_profile_number *number,
                         double value) {
    const crl_option row = {.name = number->name};
    char text[64];
    if (number->seconds && value > 0) {
        show_seconds(value, text, sizeof text);
    } else {
        crl_option_double.show(&row, &value, text, sizeof text);
    }
    fprintf(out, "%s    %s: %s\n", indent, number->name, text);
}

static void print_inputs(FILE *out, const char *indent, const crl_profile *profile, int index) {
    const crl_profile_unit *unit = &profile->unit[index];
    if (unit->inputs == (index > 0) && (index == 0 || unit->input[0] == index - 1)) {
        return;
    }
    fprintf(out, "%s    inputs: [", indent);
    for (int i = 0; i < unit->inputs; i++) {
        fputs(i ? ", " : "", out);
        print_text(out, profile->unit[unit->input[i]].name);
    }
    fputs("]\n", out);
}

static void print_unit(FILE *out, const char *indent, const crl_profile *profile, int index) {
    crl_profile_unit unit = profile->unit[index], filled = unit;
    fprintf(out, "%s  - name: ", indent);
    print_text(out, unit.name);
    fputc('\n', out);
    print_inputs(out, indent, profile, index);
    if (unit.no_gradient) {
        fprintf(out, "%s    gradient: false\n", indent);
    }
    for (int i = 0; crl_profile_numbers[i].name; i++) {
        const crl_profile_number *number = &crl_profile_numbers[i];
        crl_profile_fill(&filled, ~(1u << i));
        const double value = *profile_number(&unit, number);
        if (i == 0 || value != *profile_number(&filled, number)) {
            print_number(out, indent, number, value);
        }
        filled = unit;
    }
}

static void print_profile(FILE *out, const crl_profile *profile, bool item) {
    const crl_option row = {.name = ""};
    const char *indent = item ? "  " : "";
    char tokens[64];
    crl_option_double.show(&row, &profile->tokens_per_sample, tokens, sizeof tokens);
    fprintf(out, "%sformat: %d\n", item ? "- " : "", CRL_PROFILE_FORMAT);
    fprintf(out, "%ssource: ", indent);
    print_text(out, profile->source);
    fprintf(out, "\n%smicro_batch: %lld\n%stokens_per_sample: %s\n%sunits:\n", indent,
            (long long)profile->micro_batch, indent, tokens, indent);
    for (int u = 0; u < profile->units; u++) {
        print_unit(out, indent, profile, u);
    }
}

crl_status crl_profile_file_write(const crl_profile *const *profile, int count, FILE *out) {
    const locale_t plain = newlocale(LC_ALL_MASK, "C", (locale_t)0);
    if (!plain) {
        return CRL_FAIL(NOMEM, "profile: no memory to write it");
    }
    const locale_t before = uselocale(plain);
    fputs("# What the units of a model cost, for one micro-batch on one device. Bytes are plain "
          "numbers;\n# docs/profile-format.md explains every key.\n",
          out);
    for (int p = 0; p < count; p++) {
        print_profile(out, profile[p], count > 1);
    }
    uselocale(before);
    freelocale(plain);
    return CRL_STATUS_OK;
}
