/* SPDX-License-Identifier: Apache-2.0 */
/* The thread's error record. Refuses to allocate and to print (a failed assertion excepted). */
#include "engine/base/status.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static _Thread_local crl_error record = {.rank = -1};
static _Thread_local int thread_rank = -1;

const char *crl_status_name(crl_status status) {
    static const char *const names[] = {
        [CRL_STATUS_OK] = "ok",
        [CRL_STATUS_INVALID] = "invalid",
        [CRL_STATUS_UNSUPPORTED] = "unsupported",
        [CRL_STATUS_NOT_FOUND] = "not found",
        [CRL_STATUS_NOMEM] = "out of memory",
        [CRL_STATUS_IO] = "i/o error",
        [CRL_STATUS_DEVICE] = "device error",
        [CRL_STATUS_COMM] = "communication error",
        [CRL_STATUS_TIMEOUT] = "timeout",
        [CRL_STATUS_ABORTED] = "aborted",
        [CRL_STATUS_INTERNAL] = "internal error",
    };
    const size_t index = (size_t)status;
    return index < sizeof names / sizeof names[0] ? names[index] : "unknown status";
}

const crl_error *crl_error_get(void) {
    return &record;
}

const char *crl_error_message(void) {
    return record.message;
}

void crl_error_clear(void) {
    record.status = CRL_STATUS_OK;
    record.rank = -1;
    record.frames = 0;
    record.message[0] = '\0';
}

void crl_error_set_rank(int rank) {
    thread_rank = rank;
}

int crl_error_rank(void) {
    return thread_rank;
}

void crl_error_set(const crl_error *error) {
    if (error != &record) {
        record = *error;
    }
}

void crl_error_fail(crl_status status, const char *file, int line, const char *format, ...) {
    /* Formatted aside first: the arguments may quote the record that is about to be replaced. */
    char message[CRL_ERROR_MESSAGE_BYTES];
    va_list arguments;
    va_start(arguments, format);
    const int length = vsnprintf(message, sizeof message, format, arguments);
    va_end(arguments);
    if (length < 0) {
        message[0] = '\0';
    }
    record.status = status;
    record.rank = thread_rank;
    record.frames = 0;
    memcpy(record.message, message, strlen(message) + 1);
    crl_error_add_frame(file, line);
}

void crl_error_add_frame(const char *file, int line) {
    if (record.frames < CRL_ERROR_FRAMES) {
        record.frame[record.frames++] = (crl_error_frame){.file = file, .line = line};
    }
}

void crl_assert_failed(const char *condition, const char *file, int line) {
    fprintf(stderr, "%s:%d: assertion failed: %s\n", file, line, condition);
    abort();
}
