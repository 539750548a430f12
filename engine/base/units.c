/* SPDX-License-Identifier: Apache-2.0 */
/* Bytes, times and counts with the unit that leaves few digits. */
#include "engine/base/units.h"

#include <math.h>
#include <stdio.h>

static const double exact_most = 9e15; /* whole numbers are exact in a double up to here */

const char *crl_units_bytes(char text[CRL_UNITS_BYTES], double bytes) {
    static const char *const unit[] = {"B", "KiB", "MiB", "GiB", "TiB", "PiB"};
    int u = 0;
    while (bytes >= 1024 && u < 5) {
        bytes /= 1024;
        u++;
    }
    if (bytes >= 1024)
        snprintf(text, CRL_UNITS_BYTES, "%.4g %s", bytes, unit[u]);
    else
        snprintf(text, CRL_UNITS_BYTES, "%.*f %s", u == 0 || bytes >= 100 ? 0 : 1, bytes, unit[u]);
    return text;
}

const char *crl_units_exact_bytes(char text[CRL_UNITS_EXACT_BYTES], double bytes) {
    char shorter[CRL_UNITS_BYTES];
    if (bytes < 1024)
        snprintf(text, CRL_UNITS_EXACT_BYTES, "%.0f bytes", ceil(bytes));
    else if (bytes < exact_most)
        snprintf(text, CRL_UNITS_EXACT_BYTES, "%s (%.0f bytes)", crl_units_bytes(shorter, bytes),
                 ceil(bytes));
    else
        snprintf(text, CRL_UNITS_EXACT_BYTES, "%s", crl_units_bytes(shorter, bytes));
    return text;
}

const char *crl_units_seconds(char text[CRL_UNITS_BYTES], double seconds) {
    if (seconds < 1e-3)
        snprintf(text, CRL_UNITS_BYTES, "%.1f us", seconds * 1e6);
    else if (seconds < 1)
        snprintf(text, CRL_UNITS_BYTES, "%.1f ms", seconds * 1e3);
    else
        snprintf(text, CRL_UNITS_BYTES, "%.2f s", seconds);
    return text;
}

const char *crl_units_count(char text[CRL_UNITS_BYTES], double count) {
    static const char *const unit[] = {"", " k", " M", " G", " T"};
    int u = 0;
    while (count >= 1000 && u < 4) {
        count /= 1000;
        u++;
    }
    snprintf(text, CRL_UNITS_BYTES, "%.*f%s", u == 0 ? 0 : 2, count, unit[u]);
    return text;
}
