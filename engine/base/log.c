/* SPDX-License-Identifier: Apache-2.0 */
/* Log lines: formatted, split at newlines, handed to the sink. Refuses to print by itself. */
#include "engine/base/log.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

/* A whole error record with some words before it. */
enum { TEXT_BYTES = CRL_ERROR_MESSAGE_BYTES + 256 };

void crl_log_write(const crl_log *log, crl_log_level level, const char *format, ...) {
    if (!log || !log->write || level > log->level) {
        return;
    }
    char text[TEXT_BYTES];
    va_list arguments;
    va_start(arguments, format);
    const int length = vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    if (length < 0) {
        return;
    }
    char *line = text;
    for (char *end; (end = strchr(line, '\n')) != NULL; line = end + 1) {
        *end = '\0';
        log->write(log->sink, level, log->rank, line);
    }
    if (*line != '\0' || line == text) {
        log->write(log->sink, level, log->rank, line);
    }
}

void crl_log_format(char *text, size_t text_bytes, crl_log_level level, int rank,
                    const char *line) {
    static const char *const prefixes[] = {
        [CRL_LOG_ERROR] = "error: ",
        [CRL_LOG_WARN] = "warning: ",
        [CRL_LOG_INFO] = "",
        [CRL_LOG_DEBUG] = "debug: ",
    };
    if (text_bytes == 0) {
        return;
    }
    char place[32] = "";
    if (rank >= 0) {
        snprintf(place, sizeof place, "[rank %d] ", rank);
    }
    const int length = snprintf(text, text_bytes, "%s%s%s\n", place, prefixes[level], line);
    /* A line that was cut still ends as a line. */
    if (length >= 0 && (size_t)length >= text_bytes && text_bytes >= 2) {
        text[text_bytes - 2] = '\n';
    }
}
