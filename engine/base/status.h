/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Status codes and the thread's error record.
 *
 * A function that can fail returns `crl_status`. Whoever first knows the error writes it down with
 * CRL_FAIL; those who pass it on use CRL_TRY or CRL_TRY_OUT and stay silent. The record is one per
 * thread, in a fixed buffer: reporting an error never allocates. Nothing here prints.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif

#define CRL_NODISCARD __attribute__((warn_unused_result))
#define CRL_PRINTF(format_index, first_argument)                                                   \
    __attribute__((format(printf, format_index, first_argument)))

/* The codes differ by what a caller can do about them. */
typedef enum crl_status {
    CRL_STATUS_OK = 0,
    CRL_STATUS_INVALID,     /* the caller gave something wrong: correct it */
    CRL_STATUS_UNSUPPORTED, /* right, but this build or layer cannot do it: choose another */
    CRL_STATUS_NOT_FOUND,   /* a file or name that does not exist */
    CRL_STATUS_NOMEM,       /* memory is exhausted: make it smaller */
    CRL_STATUS_IO,          /* reading or writing failed */
    CRL_STATUS_DEVICE,      /* a compute device or its library failed */
    CRL_STATUS_COMM,        /* a peer or the transport failed */
    CRL_STATUS_TIMEOUT,     /* a deadline passed */
    CRL_STATUS_ABORTED,     /* another rank failed first; its message is in the record */
    CRL_STATUS_INTERNAL     /* our own bug */
} crl_status;

enum { CRL_ERROR_MESSAGE_BYTES = 8192, CRL_ERROR_FRAMES = 16 };

typedef struct crl_error_frame {
    const char *file;
    int line;
} crl_error_frame;

/* The last failure of this thread. `message` is one line per error (several for a config). */
typedef struct crl_error {
    crl_status status;
    int rank; /* the rank that failed first; -1 when there are no ranks */
    int frames;
    crl_error_frame frame[CRL_ERROR_FRAMES]; /* [0] is where it was detected */
    char message[CRL_ERROR_MESSAGE_BYTES];
} crl_error;

/* "ok", "invalid", "not found", ... Lends a constant. */
const char *crl_status_name(crl_status status);

/* This thread's record; lends, valid until the thread's next failure. */
const crl_error *crl_error_get(void);
/* Shorthand for crl_error_get()->message. */
const char *crl_error_message(void);
/* Empties this thread's record: status OK, no message. */
void crl_error_clear(void);
/* Rank written into the failures this thread records from now on; -1 = none. */
void crl_error_set_rank(int rank);
/* That rank, for threads that are to inherit it. */
int crl_error_rank(void);
/* Replaces this thread's record, e.g. with that of the rank that failed first. */
void crl_error_set(const crl_error *error);

/* Used by the macros below. `crl_error_fail` writes the record. CRL_FAIL's value is a
 * constant, so that the compiler sees that a failing function returns no success. */
void crl_error_fail(crl_status status, const char *file, int line, const char *format, ...)
    CRL_PRINTF(4, 5);
/* Notes a place the failure passes through; those beyond CRL_ERROR_FRAMES are dropped. */
void crl_error_add_frame(const char *file, int line);

/* return CRL_FAIL(INVALID, "linear %s: input last dimension is %d, expected %d", ...); */
#define CRL_FAIL(code, ...)                                                                        \
    (crl_error_fail(CRL_STATUS_##code, __FILE__, __LINE__, __VA_ARGS__),                           \
     (crl_status)CRL_STATUS_##code)

/* Passes a failure on: returns it from the calling function. */
#define CRL_TRY(call)                                                                              \
    do {                                                                                           \
        const crl_status crl_try_status_ = (call);                                                 \
        if (crl_try_status_ != CRL_STATUS_OK) {                                                    \
            crl_error_add_frame(__FILE__, __LINE__);                                               \
            return crl_try_status_;                                                                \
        }                                                                                          \
    } while (0)

/* Passes a failure on through the clean-up block: needs `crl_status status` and the label `out:`.
 */
#define CRL_TRY_OUT(call)                                                                          \
    do {                                                                                           \
        status = (call);                                                                           \
        if (status != CRL_STATUS_OK) {                                                             \
            crl_error_add_frame(__FILE__, __LINE__);                                               \
            goto out;                                                                              \
        }                                                                                          \
    } while (0)

/* For our own bugs only: prints the place to stderr and aborts. */
#define CRL_ASSERT(condition)                                                                      \
    ((condition) ? (void)0 : crl_assert_failed(#condition, __FILE__, __LINE__))
__attribute__((noreturn)) void crl_assert_failed(const char *condition, const char *file, int line);

#ifdef __cplusplus
}
#endif
