/* SPDX-License-Identifier: Apache-2.0 */
/* Log lines go to the sink the caller passes in; the library itself never prints. */
#pragma once

#include "engine/base/status.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef enum crl_log_level {
    CRL_LOG_ERROR,
    CRL_LOG_WARN,
    CRL_LOG_INFO,
    CRL_LOG_DEBUG
} crl_log_level;

typedef void (*crl_log_fn)(void *sink, crl_log_level level, int rank, const char *line);

/* Zero-initialised discards everything. Copied freely. */
typedef struct crl_log {
    crl_log_fn write;
    void *sink;
    crl_log_level level; /* lines above it are dropped */
    int rank;            /* prefix; -1: none */
} crl_log;

/* Formats, and hands the sink one line after the other. Never fails; what is longer than an error
 * record is cut. */
void crl_log_write(const crl_log *log, crl_log_level level, const char *format, ...)
    CRL_PRINTF(3, 4);
/* "[rank 3] warning: text\n" into `text`: the one format every sink uses. */
void crl_log_format(char *text, size_t text_bytes, crl_log_level level, int rank, const char *line);

#ifdef __cplusplus
}
#endif
