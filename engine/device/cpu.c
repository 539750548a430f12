/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The host as a device: memory is the host's, work is done on return, so there are no streams.
 * Refuses nothing; whether the processor is fast enough is the user's judgement.
 */
#include "engine/device/device.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "engine/base/alloc.h"

static crl_status cpu_probe(void) {
    return CRL_STATUS_OK;
}

static crl_status cpu_alloc(void *out, size_t bytes) {
    return crl_alloc(out, bytes, 1);
}

static crl_status cpu_copy(crl_stream *stream, void *to, const void *from, size_t bytes) {
    (void)stream;
    if (bytes > 0)
        memmove(to, from, bytes);
    return CRL_STATUS_OK;
}

const crl_device crl_device_cpu = {
    .name = "cpu",
    .help = "the processor's cores, through oneDNN and OpenMP",
    .probe = cpu_probe,
    .alloc = cpu_alloc,
    .free = crl_free,
    .copy = cpu_copy,
};

static const char *vector_extensions(void) {
#if defined(__x86_64__)
    __builtin_cpu_init();
    if (__builtin_cpu_supports("avx512f"))
        return __builtin_cpu_supports("avx512bf16") ? "avx512 bf16" : "avx512";
    if (__builtin_cpu_supports("avx2"))
        return "avx2";
    return "sse2";
#else
    return "unknown vector extensions";
#endif
}

void crl_device_cpu_describe(char *text, size_t text_bytes) {
    const long l1_bytes = sysconf(_SC_LEVEL1_DCACHE_SIZE);
    const long l2_bytes = sysconf(_SC_LEVEL2_CACHE_SIZE);
    const long l3_bytes = sysconf(_SC_LEVEL3_CACHE_SIZE);
    snprintf(text, text_bytes, "%s, caches %ld KiB / %ld KiB / %ld MiB", vector_extensions(),
             l1_bytes / 1024, l2_bytes / 1024, l3_bytes / (1024 * 1024));
}
