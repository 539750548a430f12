/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Counted and failable heap memory. Every allocation of the library goes through here.
 *
 * A *watch* counts the allocations of the threads attached to it and can make the n-th one fail.
 * It is the caller's memory, so there is no global state; it has to outlive what was allocated
 * under it. Threads made by crl_thread_start inherit it.
 */
#pragma once

#ifdef __cplusplus
#include <atomic>
#define CRL_ATOMIC(type) std::atomic<type>
#else
#include <stdatomic.h>
#define CRL_ATOMIC(type) _Atomic(type)
#endif
#include <stdint.h>

#include "engine/base/status.h"

#ifdef __cplusplus
extern "C" {
#endif

enum { CRL_ALIGN_BYTES = 64 }; /* of every allocation: one cache line, one AVX-512 vector */

/* Zero-initialise. All fields may be read at any time, from any thread. */
typedef struct crl_alloc_watch {
    CRL_ATOMIC(int64_t) allocations; /* successful ones since the start */
    CRL_ATOMIC(int64_t) frees;
    CRL_ATOMIC(int64_t) live_bytes;
    CRL_ATOMIC(int64_t) peak_bytes;
    /* n > 0: the n-th request from now on fails with NOMEM; 0: never */
    CRL_ATOMIC(int64_t) fail_at;
} crl_alloc_watch;

/* Attaches the calling thread to `watch` (NULL detaches); returns the previous one. */
crl_alloc_watch *crl_alloc_attach(crl_alloc_watch *watch);
/* The calling thread's watch, or NULL. Lends. */
crl_alloc_watch *crl_alloc_attached(void);
/* Successful allocations of the calling thread since it began, whatever it was attached to. */
int64_t crl_alloc_thread_count(void);

/*
 * `out` is the address of a pointer of any type: CRL_TRY(crl_alloc(&x, n, sizeof *x)).
 * The memory is zeroed and 64-byte aligned. count × size_bytes is checked for overflow; zero bytes
 * gives a valid pointer. NOMEM: *out is left as it was.
 */
CRL_NODISCARD crl_status crl_alloc(void *out, size_t count, size_t size_bytes);
/* Grows or shrinks *in_out; new elements are zeroed; on NOMEM the old memory stays valid. */
CRL_NODISCARD crl_status crl_realloc(void *in_out, size_t old_count, size_t new_count,
                                     size_t size_bytes);
/* A copy of `text`, owned by the caller; NULL text gives NULL. NOMEM. */
CRL_NODISCARD crl_status crl_alloc_text(char **out, const char *text);
/* A formatted text, owned by the caller. NOMEM; INVALID when the format fails. */
CRL_NODISCARD crl_status crl_alloc_format(char **out, const char *format, ...) CRL_PRINTF(2, 3);
/* Gives back what the functions above made, from any thread; NULL is fine. */
void crl_free(void *memory);

/* Memory of this machine; 0: unknown. */
int64_t crl_memory_physical_bytes(void);

/* a × b and a + b, INVALID "<what>: size overflows" when they do not fit. */
CRL_NODISCARD crl_status crl_size_mul(size_t *out, size_t a, size_t b, const char *what);
/* a + b, the same way. */
CRL_NODISCARD crl_status crl_size_add(size_t *out, size_t a, size_t b, const char *what);

#ifdef __cplusplus
}
#endif
