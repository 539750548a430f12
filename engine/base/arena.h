/* SPDX-License-Identifier: Apache-2.0 */
/* Many small things with one life: config texts, graph nodes. Grows by blocks, freed at once. */
#pragma once

#include <stdarg.h>

#include "engine/base/status.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct crl_arena_block crl_arena_block;
/* Zero-initialised is empty. Owns its blocks. */
typedef struct crl_arena {
    crl_arena_block *first;
} crl_arena;

/* Everything lives until crl_arena_fini. One thread at a time. NOMEM, INVALID: size overflows. */

/* Zeroed, 16-byte aligned. `out`: address of any pointer. */
CRL_NODISCARD crl_status crl_arena_alloc(crl_arena *arena, void *out, size_t count,
                                         size_t size_bytes);
/* A copy of `text`. */
CRL_NODISCARD crl_status crl_arena_text(crl_arena *arena, const char **out, const char *text);
/* A formatted text. */
CRL_NODISCARD crl_status crl_arena_format(crl_arena *arena, const char **out, const char *format,
                                          ...) CRL_PRINTF(3, 4);
/* The same with the arguments of a variadic caller. */
CRL_NODISCARD crl_status crl_arena_vformat(crl_arena *arena, const char **out, const char *format,
                                           va_list arguments) CRL_PRINTF(3, 0);
/* Frees everything; the arena is empty then and can be used again. */
void crl_arena_fini(crl_arena *arena);

#ifdef __cplusplus
}
#endif
