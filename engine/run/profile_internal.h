/* SPDX-License-Identifier: Apache-2.0 */
/* What reader and writer of profile files share: the keys, and what a missing one stands for. */
#pragma once

#include "engine/ir/profile.h"

/* The field of a number. */
static inline double *profile_number(crl_profile_unit *unit, const crl_profile_number *number) {
    return (double *)(void *)((char *)unit + number->offset);
}

/* What the numbers that a file leaves out are, given those it has: `given` bit i is row i of
 * crl_profile_numbers. */
void crl_profile_fill(crl_profile_unit *unit, unsigned given);

/* Reads "1.5ms", "2KiB", "3e-4"; without a unit seconds or bytes. INVALID "is 'x', expected ...",
 * which says nothing of where. */
crl_status crl_profile_parse_number(double *out, const char *text, bool seconds);
