/* SPDX-License-Identifier: Apache-2.0 */
/* Numbers as people read them, for tables and messages. Pure; each returns `text`. */
#pragma once

#ifdef __cplusplus
extern "C" {
#endif

enum { CRL_UNITS_BYTES = 32 };

/* Bytes: "512 B", "1.5 GiB" */
const char *crl_units_bytes(char text[CRL_UNITS_BYTES], double bytes);
/* "8.0 GiB (8589934592 bytes)"; fractions are rounded up. */
enum { CRL_UNITS_EXACT_BYTES = 64 };
const char *crl_units_exact_bytes(char text[CRL_UNITS_EXACT_BYTES], double bytes);
/* Seconds: "12.3 ms" */
const char *crl_units_seconds(char text[CRL_UNITS_BYTES], double seconds);
/* Anything that is counted: "124.44 M" */
const char *crl_units_count(char text[CRL_UNITS_BYTES], double count);

#ifdef __cplusplus
}
#endif
