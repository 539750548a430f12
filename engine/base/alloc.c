/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Counted and failable heap memory. Refuses to keep global state: each block remembers its watch.
 *
 *     | header (64 bytes): watch, bytes | the caller's block, 64-byte aligned ...
 *
 * A block may be freed by a thread attached to another watch or to none, so the watch it is counted
 * under stands in its header; a watch must outlive the blocks made under it.
 */
#include "engine/base/alloc.h"

#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

typedef struct header {
    _Alignas(CRL_ALIGN_BYTES) crl_alloc_watch *watch;
    size_t bytes;
} header;

_Static_assert(sizeof(header) == CRL_ALIGN_BYTES, "the header keeps the block aligned");

static _Thread_local crl_alloc_watch *attached;
static _Thread_local int64_t thread_count;

crl_alloc_watch *crl_alloc_attach(crl_alloc_watch *watch) {
    crl_alloc_watch *previous = attached;
    attached = watch;
    return previous;
}

crl_alloc_watch *crl_alloc_attached(void) {
    return attached;
}

int64_t crl_alloc_thread_count(void) {
    return thread_count;
}

/* Counts one request against fail_at; true when it is the one that has to fail. */
static bool must_fail(crl_alloc_watch *watch) {
    int64_t left = atomic_load(&watch->fail_at);
    while (left > 0) {
        if (atomic_compare_exchange_weak(&watch->fail_at, &left, left - 1)) {
            return left == 1;
        }
    }
    return false;
}

static void count_allocation(crl_alloc_watch *watch, size_t bytes) {
    atomic_fetch_add(&watch->allocations, 1);
    const int64_t live = atomic_fetch_add(&watch->live_bytes, (int64_t)bytes) + (int64_t)bytes;
    int64_t peak = atomic_load(&watch->peak_bytes);
    while (live > peak && !atomic_compare_exchange_weak(&watch->peak_bytes, &peak, live)) {
    }
}

/* `zero_from`: the caller overwrites the bytes before it. */
static crl_status allocate(void **out, size_t bytes, size_t zero_from) {
    crl_alloc_watch *watch = attached;
    if (watch && must_fail(watch)) {
        return CRL_FAIL(NOMEM, "memory: no room for %zu bytes", bytes);
    }
    const size_t overhead = sizeof(header) + CRL_ALIGN_BYTES;
    if (bytes > (size_t)PTRDIFF_MAX - overhead) {
        return CRL_FAIL(NOMEM, "memory: no room for %zu bytes", bytes);
    }
    const size_t rounded = (bytes + CRL_ALIGN_BYTES - 1) / CRL_ALIGN_BYTES * CRL_ALIGN_BYTES;
    header *head = aligned_alloc(CRL_ALIGN_BYTES, sizeof *head + rounded);
    if (!head) {
        return CRL_FAIL(NOMEM, "memory: no room for %zu bytes", bytes);
    }
    head->watch = watch;
    head->bytes = bytes;
    char *block = (char *)(head + 1);
    memset(block + zero_from, 0, bytes - zero_from);
    if (watch) {
        count_allocation(watch, bytes);
    }
    thread_count++;
    *out = block;
    return CRL_STATUS_OK;
}

crl_status crl_alloc(void *out, size_t count, size_t size_bytes) {
    size_t bytes;
    void *block;
    CRL_TRY(crl_size_mul(&bytes, count, size_bytes, "memory"));
    CRL_TRY(allocate(&block, bytes, 0));
    memcpy(out, &block, sizeof block);
    return CRL_STATUS_OK;
}

crl_status crl_realloc(void *in_out, size_t old_count, size_t new_count, size_t size_bytes) {
    size_t old_bytes, new_bytes;
    CRL_TRY(crl_size_mul(&old_bytes, old_count, size_bytes, "memory"));
    CRL_TRY(crl_size_mul(&new_bytes, new_count, size_bytes, "memory"));
    void *old, *block;
    memcpy(&old, in_out, sizeof old);
    const size_t kept = !old ? 0 : old_bytes < new_bytes ? old_bytes : new_bytes;
    CRL_TRY(allocate(&block, new_bytes, kept));
    if (kept > 0) {
        memcpy(block, old, kept);
    }
    crl_free(old);
    memcpy(in_out, &block, sizeof block);
    return CRL_STATUS_OK;
}

crl_status crl_alloc_text(char **out, const char *text) {
    if (!text) {
        *out = NULL;
        return CRL_STATUS_OK;
    }
    const size_t bytes = strlen(text) + 1;
    char *copy;
    CRL_TRY(crl_alloc(&copy, bytes, 1));
    memcpy(copy, text, bytes);
    *out = copy;
    return CRL_STATUS_OK;
}

crl_status crl_alloc_format(char **out, const char *format, ...) {
    va_list arguments, again;
    va_start(arguments, format);
    va_copy(again, arguments);
    const int length = vsnprintf(NULL, 0, format, arguments);
    va_end(arguments);
    char *text = NULL;
    const crl_status status = length < 0
                                  ? CRL_FAIL(INVALID, "text: '%s' cannot be formatted", format)
                                  : crl_alloc(&text, (size_t)length + 1, 1);
    if (status == CRL_STATUS_OK) {
        vsnprintf(text, (size_t)length + 1, format, again);
        *out = text;
    }
    va_end(again);
    return status;
}

void crl_free(void *memory) {
    if (!memory) {
        return;
    }
    header *head = (header *)memory - 1;
    if (head->watch) {
        atomic_fetch_add(&head->watch->frees, 1);
        atomic_fetch_sub(&head->watch->live_bytes, (int64_t)head->bytes);
    }
    free(head);
}

crl_status crl_size_mul(size_t *out, size_t a, size_t b, const char *what) {
    size_t product;
    if (__builtin_mul_overflow(a, b, &product)) {
        return CRL_FAIL(INVALID, "%s: size overflows, %zu x %zu", what, a, b);
    }
    *out = product;
    return CRL_STATUS_OK;
}

crl_status crl_size_add(size_t *out, size_t a, size_t b, const char *what) {
    size_t sum;
    if (__builtin_add_overflow(a, b, &sum)) {
        return CRL_FAIL(INVALID, "%s: size overflows, %zu + %zu", what, a, b);
    }
    *out = sum;
    return CRL_STATUS_OK;
}

int64_t crl_memory_physical_bytes(void) {
    const long pages = sysconf(_SC_PHYS_PAGES), page_bytes = sysconf(_SC_PAGE_SIZE);
    return pages > 0 && page_bytes > 0 ? (int64_t)pages * page_bytes : 0;
}
