/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The kinds of values. Each reads the whole text or refuses it; nothing depends on the locale.
 * Messages name what was given and what is expected: "is '2x', expected an integer".
 */
#include "engine/base/option.h"

#include "engine/base/option_internal.h"
#include "engine/base/text_internal.h"

#include <ctype.h>
#include <errno.h>
#include <float.h>
#include <inttypes.h>
#include <locale.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

static crl_status refuse(const char *text, const char *expected) {
    char quoted[CRL_QUOTE_BYTES];
    crl_text_quote(quoted, sizeof quoted, text);
    return CRL_FAIL(INVALID, "is '%s', expected %s", quoted, expected);
}

static bool has_upper(const crl_option *option) {
    return option->max >= option->min && option->max < DBL_MAX;
}

const char *crl_option_limits(const crl_option *option, char *out, size_t out_bytes) {
    const double min = option->min, max = option->max;
    if (min == 0.0 && max == 0.0) {
        snprintf(out, out_bytes, "%s", "");
    } else if (!has_upper(option)) {
        snprintf(out, out_bytes, "at least %.15g", min);
    } else if (min <= -DBL_MAX) {
        snprintf(out, out_bytes, "at most %.15g", max);
    } else {
        snprintf(out, out_bytes, "%.15g to %.15g", min, max);
    }
    return out;
}

static crl_status check_limits(const crl_option *option, const char *text, double value) {
    char limits[96];
    crl_option_limits(option, limits, sizeof limits);
    const bool inside = value >= option->min && (!has_upper(option) || value <= option->max);
    return !*limits || inside ? CRL_STATUS_OK : refuse(text, limits);
}

static crl_status parse_int(const crl_option *option, const char *text, crl_arena *arena,
                            void *field) {
    (void)arena;
    const char *digit = text + (*text == '-' || *text == '+');
    if (!*digit || digit[strspn(digit, "0123456789")] != '\0') {
        return refuse(text, "an integer");
    }
    errno = 0;
    const long long value = strtoll(text, NULL, 10);
    if (errno == ERANGE) {
        return refuse(text, "an integer of 64 bits");
    }
    CRL_TRY(check_limits(option, text, (double)value));
    memcpy(field, &(int64_t){value}, sizeof(int64_t));
    return CRL_STATUS_OK;
}

static void show_int(const crl_option *option, const void *field, char *text, size_t text_bytes) {
    (void)option;
    int64_t value;
    memcpy(&value, field, sizeof value);
    snprintf(text, text_bytes, "%" PRId64, value);
}

/* The thread in the C locale, where the decimal point is a point. */
static locale_t locale_begin(locale_t *plain) {
    *plain = newlocale(LC_ALL_MASK, "C", (locale_t)0);
    return *plain ? uselocale(*plain) : (locale_t)0;
}

static void locale_end(locale_t before, locale_t plain) {
    if (plain) {
        uselocale(before);
        freelocale(plain);
    }
}

/* Neither hexadecimal nor "inf" nor "nan": strtod would take them. */
static bool is_decimal(const char *text) {
    text += *text == '-' || *text == '+';
    const size_t whole = strspn(text, "0123456789");
    text += whole;
    size_t fraction = 0;
    if (*text == '.') {
        fraction = strspn(++text, "0123456789");
        text += fraction;
    }
    if (whole + fraction == 0) {
        return false;
    }
    if (*text == 'e' || *text == 'E') {
        ++text;
        text += *text == '-' || *text == '+';
        const size_t exponent = strspn(text, "0123456789");
        text += exponent;
        if (exponent == 0) {
            return false;
        }
    }
    return *text == '\0';
}

static crl_status parse_double(const crl_option *option, const char *text, crl_arena *arena,
                               void *field) {
    (void)arena;
    if (!is_decimal(text)) {
        return refuse(text, "a number");
    }
    locale_t plain;
    const locale_t before = locale_begin(&plain);
    const double value = strtod(text, NULL);
    locale_end(before, plain);
    if (!isfinite(value)) {
        return refuse(text, "a number that a double can hold");
    }
    CRL_TRY(check_limits(option, text, value));
    memcpy(field, &value, sizeof value);
    return CRL_STATUS_OK;
}

static void show_double(const crl_option *option, const void *field, char *text,
                        size_t text_bytes) {
    (void)option;
    double value;
    memcpy(&value, field, sizeof value);
    locale_t plain;
    const locale_t before = locale_begin(&plain);
    for (int digits = DBL_DIG; digits <= DBL_DECIMAL_DIG; ++digits) {
        char number[40];
        snprintf(number, sizeof number, "%.*g", digits, value);
        snprintf(text, text_bytes, "%s", number);
        if (strtod(number, NULL) == value) {
            break;
        }
    }
    locale_end(before, plain);
}

static crl_status parse_bool(const crl_option *option, const char *text, crl_arena *arena,
                             void *field) {
    (void)option;
    (void)arena;
    const bool yes = strcmp(text, "true") == 0;
    if (!yes && strcmp(text, "false") != 0) {
        return refuse(text, "true or false");
    }
    memcpy(field, &yes, sizeof yes);
    return CRL_STATUS_OK;
}

static void show_bool(const crl_option *option, const void *field, char *text, size_t text_bytes) {
    (void)option;
    bool value;
    memcpy(&value, field, sizeof value);
    snprintf(text, text_bytes, "%s", value ? "true" : "false");
}

static crl_status parse_text(const crl_option *option, const char *text, crl_arena *arena,
                             void *field) {
    (void)option;
    const char *copy;
    CRL_TRY(crl_arena_text(arena, &copy, text));
    memcpy(field, &copy, sizeof copy);
    return CRL_STATUS_OK;
}

static void show_text(const crl_option *option, const void *field, char *text, size_t text_bytes) {
    (void)option;
    const char *value;
    memcpy(&value, field, sizeof value);
    snprintf(text, text_bytes, "%s", value ? value : "");
}

static crl_status parse_choice(const crl_option *option, const char *text, crl_arena *arena,
                               void *field) {
    (void)arena;
    char expected[1024] = "";
    size_t used = 0;
    for (int i = 0; option->choices[i]; ++i) {
        if (strcmp(option->choices[i], text) == 0) {
            memcpy(field, &i, sizeof i);
            return CRL_STATUS_OK;
        }
        const char *join = i == 0 ? "" : option->choices[i + 1] ? ", " : " or ";
        if (used < sizeof expected) {
            const int length =
                snprintf(expected + used, sizeof expected - used, "%s%s", join, option->choices[i]);
            used += (size_t)length;
        }
    }
    return refuse(text, expected);
}

static void show_choice(const crl_option *option, const void *field, char *text,
                        size_t text_bytes) {
    int value;
    memcpy(&value, field, sizeof value);
    snprintf(text, text_bytes, "%s", option->choices[value]);
}

typedef struct byte_unit {
    const char *name;
    int64_t bytes;
} byte_unit;

/* Largest binary units first: show takes the first that divides. */
static const byte_unit byte_units[] = {
    {"GiB", INT64_C(1) << 30},
    {"MiB", INT64_C(1) << 20},
    {"KiB", INT64_C(1) << 10},
    {"B", 1},
    {"GB", 1000000000},
    {"MB", 1000000},
    {"KB", 1000},
    {"", 1},
};
enum { BYTE_UNITS = sizeof byte_units / sizeof byte_units[0], BINARY_UNITS = 3 };

static crl_status parse_bytes(const crl_option *option, const char *text, crl_arena *arena,
                              void *field) {
    (void)arena;
    static const char expected[] = "a size such as 4096, 64KiB or 1.5GiB";
    /* Exact: the digits as one integer, and the power of ten they are to be divided by. */
    __int128 digits = 0, scale = 1;
    const __int128 limit = (__int128)INT64_MAX * 1000000000;
    const char *at = text;
    bool point = false;
    for (; isdigit((unsigned char)*at) || (*at == '.' && !point && at > text); ++at) {
        if (*at == '.') {
            point = true;
            continue;
        }
        digits = digits * 10 + (*at - '0');
        scale = point ? scale * 10 : scale;
        if (digits > limit || scale > 1000000000) {
            return refuse(text, "a size below 8 EiB with at most 9 decimals");
        }
    }
    if (at == text || at[-1] == '.') {
        return refuse(text, expected);
    }
    at += *at == ' ';
    int unit = 0;
    while (unit < BYTE_UNITS && strcmp(at, byte_units[unit].name) != 0) {
        ++unit;
    }
    if (unit == BYTE_UNITS) {
        return refuse(text, expected);
    }
    const __int128 scaled = digits * byte_units[unit].bytes;
    if (byte_units[unit].bytes == 1 && scaled % scale != 0) {
        return refuse(text, "a whole number of bytes");
    }
    if (scaled / scale > INT64_MAX) {
        return refuse(text, "a size below 8 EiB with at most 9 decimals");
    }
    const int64_t value = (int64_t)(scaled / scale);
    CRL_TRY(check_limits(option, text, (double)value));
    memcpy(field, &value, sizeof value);
    return CRL_STATUS_OK;
}

static void show_bytes(const crl_option *option, const void *field, char *text, size_t text_bytes) {
    (void)option;
    int64_t value;
    memcpy(&value, field, sizeof value);
    int unit = 0;
    while (unit < BINARY_UNITS && (value == 0 || value % byte_units[unit].bytes != 0)) {
        ++unit;
    }
    const bool plain = unit == BINARY_UNITS;
    snprintf(text, text_bytes, "%" PRId64 "%s", plain ? value : value / byte_units[unit].bytes,
             plain ? "" : byte_units[unit].name);
}

/* "[a, b]" as in YAML and "a,b" are the same list. */
static void strip_brackets(const char **begin, const char **end) {
    if (*end - *begin >= 2 && **begin == '[' && (*end)[-1] == ']') {
        ++*begin;
        --*end;
    }
}

static void strip_spaces(const char **begin, const char **end) {
    while (*begin < *end && **begin == ' ') {
        ++*begin;
    }
    while (*end > *begin && (*end)[-1] == ' ') {
        --*end;
    }
}

static crl_status parse_list(const crl_option *option, const char *text, crl_arena *arena,
                             void *field) {
    (void)option;
    crl_text_list list = {0};
    const char *at = text, *last = text + strlen(text);
    size_t commas = 0;
    strip_brackets(&at, &last);
    for (const char *c = at; c < last; ++c) {
        commas += *c == ',';
    }
    if (at < last) {
        CRL_TRY(crl_arena_alloc(arena, &list.item, commas + 1, sizeof *list.item));
    }
    while (at < last) {
        const char *comma = memchr(at, ',', (size_t)(last - at));
        const char *begin = at, *end = comma ? comma : last;
        strip_spaces(&begin, &end);
        if (begin == end || (comma && comma + 1 == last)) {
            return refuse(text, "a list such as a,b without empty items");
        }
        CRL_TRY(crl_arena_format(arena, &list.item[list.count], "%.*s", (int)(end - begin), begin));
        ++list.count;
        at = comma ? comma + 1 : last;
    }
    memcpy(field, &list, sizeof list);
    return CRL_STATUS_OK;
}

static void show_list(const crl_option *option, const void *field, char *text, size_t text_bytes) {
    (void)option;
    crl_text_list list;
    memcpy(&list, field, sizeof list);
    size_t used = 0;
    snprintf(text, text_bytes, "%s", "");
    for (int i = 0; i < list.count && used < text_bytes; ++i) {
        used +=
            (size_t)snprintf(text + used, text_bytes - used, "%s%s", i ? "," : "", list.item[i]);
    }
}

const crl_option_type crl_option_int = {"integer", parse_int, show_int};
const crl_option_type crl_option_double = {"number", parse_double, show_double};
const crl_option_type crl_option_bool = {"true or false", parse_bool, show_bool};
const crl_option_type crl_option_text = {"text", parse_text, show_text};
const crl_option_type crl_option_choice = {"choice", parse_choice, show_choice};
const crl_option_type crl_option_bytes = {"bytes", parse_bytes, show_bytes};
const crl_option_type crl_option_list = {"list", parse_list, show_list};
