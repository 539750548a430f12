/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Device contract: where a rank's memory lives and how work on it is ordered. One rank = one
 * device. Work is queued on streams and done in their order; an event marks a point of one stream
 * that others, or the host, can wait for:
 *
 *     compute  ──kernel──┬──kernel──────────────┬──kernel──>
 *                        │ record          follow│
 *     copies             └──follow──copy──record─┘
 *
 * A NULL entry of the table means: not needed on this device (work is done on return, memory is the
 * host's). Call the crl_device_* functions below, which know that, and never the entries.
 */
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "engine/base/status.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct crl_stream crl_stream;       /* an ordered queue of work; NULL on the CPU */
typedef struct crl_event crl_event;         /* a point in a stream; NULL on the CPU */
typedef struct crl_recording crl_recording; /* work to be queued again and again */

typedef struct crl_device {
    const char *name;
    const char *help;
    /* OK when this machine can use it; else the reason, as a failure. */
    crl_status (*probe)(void);
    /* "NVIDIA H200, 139 GiB, sm_90; cuBLASLt 13.0, cuDNN 9.19, NCCL missing", for `carole info`. */
    void (*describe)(char *text, size_t text_bytes);
    /* The calling thread works on the device of local rank `index` of `count` on this machine from
     * now on: the first call of every rank's thread. */
    crl_status (*choose)(int index, int count);
    /* Zeroed device memory, aligned to 256 bytes (CPU: 64). `out`: address of any pointer. */
    crl_status (*alloc)(void *out, size_t bytes);
    void (*free)(void *memory);
    /* Zeroed host memory that copies may run from and to while the host goes on. */
    crl_status (*host_alloc)(void *out, size_t bytes);
    void (*host_free)(void *memory);
    /* Async on stream. Either side may be host memory. */
    crl_status (*copy)(crl_stream *stream, void *to, const void *from, size_t bytes);
    crl_status (*zero)(crl_stream *stream, void *to, size_t bytes);
    crl_status (*stream_create)(crl_stream **out);
    void (*stream_destroy)(crl_stream *stream);
    crl_status (*stream_wait)(crl_stream *stream); /* blocks the host; reports what went wrong */
    /* Products prepared on the stream from now on may round f32 inputs to 10 bits, or not. */
    void (*allow_tf32)(crl_stream *stream, bool allow);
    crl_status (*event_create)(crl_event **out);
    /* Whatever waits for its last record still does. */
    void (*event_destroy)(crl_event *event);
    /* The event is now the end of what the stream has been given so far. */
    crl_status (*event_record)(crl_event *event, crl_stream *stream);
    /* What is queued on the stream from now on waits for the event's last record. */
    crl_status (*event_follow)(crl_stream *stream, crl_event *event);
    /* *done: the device has passed the last record. One never recorded is done. */
    crl_status (*event_query)(crl_event *event, bool *done);
    /* What is queued between the two calls is not done but recorded, with all arguments as they
     * are; replay queues it as one. NULL: the device records nothing. */
    crl_status (*record_begin)(crl_stream *stream);
    crl_status (*record_end)(crl_stream *stream, crl_recording **out);
    crl_status (*replay)(crl_stream *stream, crl_recording *recording);
    void (*recording_destroy)(crl_recording *recording);
} crl_device;

extern const crl_device crl_device_cpu;
extern const crl_device crl_device_cuda; /* only when built with CUDA */

/*
 * What every caller uses: the entry, or what stands for it on a device without streams. A rank's
 * streams are used, and its events recorded, by its thread alone. Other ranks of the process may
 * follow and query an event whose record they have been told of, and its owner records it anew only
 * when they have said that they are through; whoever comes last may destroy it, with work that
 * waits for it still queued. All may fail with DEVICE, those that create or allocate with NOMEM.
 */
CRL_NODISCARD crl_status crl_device_choose(const crl_device *device, int index, int count);
CRL_NODISCARD crl_status crl_device_alloc(const crl_device *device, void *out, size_t bytes);
/* NULL is fine, here and below. */
void crl_device_free(const crl_device *device, void *memory);
/* Without the entry: memory of the host's allocator. */
CRL_NODISCARD crl_status crl_device_host_alloc(const crl_device *device, void *out, size_t bytes);
void crl_device_host_free(const crl_device *device, void *memory);
CRL_NODISCARD crl_status crl_device_copy(const crl_device *device, crl_stream *stream, void *to,
                                         const void *from, size_t bytes);
/* Blocking: the copy is done on return, and what the stream was given before. */
CRL_NODISCARD crl_status crl_device_copy_wait(const crl_device *device, crl_stream *stream,
                                              void *to, const void *from, size_t bytes);
CRL_NODISCARD crl_status crl_device_zero(const crl_device *device, crl_stream *stream, void *to,
                                         size_t bytes);
/* Without the entry: *out is NULL, which the other calls take. */
CRL_NODISCARD crl_status crl_device_stream_create(const crl_device *device, crl_stream **out);
/* Waits for its work first; NULL is fine. */
void crl_device_stream_destroy(const crl_device *device, crl_stream *stream);
/* INVALID too: a kernel met an index outside its table. */
CRL_NODISCARD crl_status crl_device_stream_wait(const crl_device *device, crl_stream *stream);
CRL_NODISCARD crl_status crl_device_event_create(const crl_device *device, crl_event **out);
/* NULL is fine. */
void crl_device_event_destroy(const crl_device *device, crl_event *event);
CRL_NODISCARD crl_status crl_device_event_record(const crl_device *device, crl_event *event,
                                                 crl_stream *stream);
CRL_NODISCARD crl_status crl_device_event_follow(const crl_device *device, crl_stream *stream,
                                                 crl_event *event);
CRL_NODISCARD crl_status crl_device_event_query(const crl_device *device, crl_event *event,
                                                bool *done);
/* Is its memory the host's, and its work done on return? */
bool crl_device_is_host(const crl_device *device);

/* What the CPU offers, for `carole info`: "avx512, caches 48 KiB / 2048 KiB / 105 MiB". Local. */
void crl_device_cpu_describe(char *text, size_t text_bytes);

#ifdef __cplusplus
}
#endif
