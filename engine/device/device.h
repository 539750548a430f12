/* SPDX-License-Identifier: Apache-2.0 */
/* Device contract: where a rank's memory lives and how work on it is ordered. One rank = one
 * device. A NULL entry means: not needed on this device (work is synchronous, memory is the
 * host's). */
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "engine/base/status.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct crl_stream crl_stream; /* an ordered queue of work; NULL on the CPU */

typedef struct crl_device {
    const char *name;
    const char *help;
    /* OK when this machine can use it; else the reason, as a failure. */
    crl_status (*probe)(void);
    /* Zeroed device memory, aligned to 64 bytes. `out`: address of any pointer. */
    crl_status (*alloc)(void *out, size_t bytes);
    void (*free)(void *memory);
    /* Async on stream. Either side may be host memory. */
    crl_status (*copy)(crl_stream *stream, void *to, const void *from, size_t bytes);
    crl_status (*stream_create)(crl_stream **out);
    void (*stream_destroy)(crl_stream *stream);
    crl_status (*stream_wait)(crl_stream *stream); /* blocks the host */
} crl_device;

extern const crl_device crl_device_cpu;

/* What the CPU offers, for `carole info`: "avx512, caches 48 KiB / 2048 KiB / 105 MiB". Local. */
void crl_device_cpu_describe(char *text, size_t text_bytes);

#ifdef __cplusplus
}
#endif
