/* SPDX-License-Identifier: Apache-2.0 */
/* Numbers of profile files: units, and what stands for those that are left out. */
#include <stdio.h>
#include <string.h>

#include "engine/base/option.h"
#include "engine/run/profile_internal.h"

/* A unit as the exponent that is put behind the digits (times stay what they were written as) or
 * as a power of two. */
typedef struct unit_row {
    const char *name, *exponent;
    double factor;
    bool seconds;
} unit_row;

static const unit_row units[] = {
    {"s", "", 1, true},         {"ms", "e-3", 1, true},     {"us", "e-6", 1, true},
    {"ns", "e-9", 1, true},     {"B", "", 1, false},        {"KiB", "", 0x1p10, false},
    {"MiB", "", 0x1p20, false}, {"GiB", "", 0x1p30, false}, {"TiB", "", 0x1p40, false},
    {"KB", "e3", 1, false},     {"MB", "e6", 1, false},     {"GB", "e9", 1, false},
    {"TB", "e12", 1, false},    {NULL, "", 1, false}};

static const double most_seconds = 1e9, most_bytes = 0x1p60;

static crl_status refuse(const char *text, bool seconds, const char *why) {
    return CRL_FAIL(INVALID, "is '%.60s', expected %s%s", text,
                    seconds ? "a time such as 0.0015, 1.5ms or 1500us"
                            : "a size such as 4096, 4KiB or 1.5MB",
                    why);
}

/* The digits are parsed together with the unit's exponent: 1.1ms is the double nearest to 0.0011.
 */
crl_status crl_profile_parse_number(double *out, const char *text, bool seconds) {
    static const crl_option any = {.name = ""};
    char digits[64];
    const size_t length = strcspn(text, "sumnBKMGT ");
    const char *name = text + length + strspn(text + length, " ");
    const unit_row *unit = &units[seconds ? 0 : 4];
    double value = 0;
    if (length + 8 > sizeof digits) {
        return refuse(text, seconds, "");
    }
    if (*name) {
        for (unit = units; unit->name; unit++) {
            if (unit->seconds == seconds && strcmp(unit->name, name) == 0) {
                break;
            }
        }
    }
    snprintf(digits, sizeof digits, "%.*s%s", (int)length, text, unit->exponent);
    if (!unit->name || crl_option_double.parse(&any, digits, NULL, &value)) {
        return refuse(text, seconds, "");
    }
    value *= unit->factor;
    if (value < 0) {
        return refuse(text, seconds, " that is not negative");
    }
    if (value > (seconds ? most_seconds : most_bytes)) {
        return refuse(text, seconds, seconds ? ", at most 1e9 s" : ", at most 1024 PiB");
    }
    *out = value;
    return CRL_STATUS_OK;
}

static bool given_field(unsigned given, size_t offset) {
    for (int i = 0; crl_profile_numbers[i].name; i++) {
        if (crl_profile_numbers[i].offset == offset) {
            return given >> i & 1u;
        }
    }
    return false;
}

void crl_profile_fill(crl_profile_unit *unit, unsigned given) {
    enum { COPIES = 4 }; /* weights, gradients and the two averages of Adam */
    for (int i = 0; crl_profile_numbers[i].name; i++) {
        if (!(given >> i & 1u)) {
            *profile_number(unit, &crl_profile_numbers[i]) = 0;
        }
    }
    for (int mode = CRL_RECOMPUTE_NONE + 1; mode < CRL_RECOMPUTES; mode++) {
        const size_t offset =
            offsetof(crl_profile_unit, kept_bytes) + sizeof(double) * (size_t)mode;
        if (!given_field(given, offset)) {
            unit->kept_bytes[mode] = unit->kept_bytes[CRL_RECOMPUTE_NONE];
        }
    }
    if (!given_field(given, offsetof(crl_profile_unit, state_bytes))) {
        unit->state_bytes = COPIES * unit->parameter_bytes;
    }
}
