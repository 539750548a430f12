/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Streams and events of the CUDA device. A stream notes what kernels refused; whoever waits for it
 * is told, and nobody else waits. Refuses to wait anywhere but in wait and destroy.
 */
#include "engine/device/cuda_internal.h"

#include "engine/base/alloc.h"

struct crl_event {
    cudaEvent_t handle;
};

crl_status crl_cuda_failed(const char *what, cudaError_t error, const char *file, int line) {
    const crl_status status =
        error == cudaErrorMemoryAllocation ? CRL_STATUS_NOMEM : CRL_STATUS_DEVICE;
    (void)cudaGetLastError();
    crl_error_fail(status, file, line, "cuda: %s: %s", what, cudaGetErrorString(error));
    return status;
}

void *crl_cuda_context_get(const crl_stream *stream, const void *key) {
    for (int i = 0; i < CRL_CUDA_CONTEXTS; i++)
        if (stream->contexts[i].key == key)
            return stream->contexts[i].pointer;
    return NULL;
}

void crl_cuda_context_set(crl_stream *stream, const void *key, void *pointer,
                          void (*destroy)(void *pointer)) {
    int i = 0;
    while (i < CRL_CUDA_CONTEXTS && stream->contexts[i].key)
        i++;
    CRL_ASSERT(i < CRL_CUDA_CONTEXTS);
    stream->contexts[i] = (crl_cuda_context){key, pointer, destroy};
}

void crl_cuda_allow_tf32(crl_stream *stream, bool allow) {
    stream->tf32 = allow;
}

static crl_status fill(crl_stream *stream) {
    void *memory = NULL;
    CRL_CUDA_TRY("device", cudaGetDevice(&stream->device));
    CRL_CUDA_TRY("stream", cudaStreamCreateWithFlags(&stream->handle, cudaStreamNonBlocking));
    CRL_CUDA_TRY("stream memory", cudaMalloc(&memory, sizeof *stream->refusals));
    stream->refusals = memory;
    CRL_CUDA_TRY("stream memory", cudaMalloc(&memory, CRL_CUDA_PARTIALS * sizeof(double)));
    stream->partials = memory;
    CRL_CUDA_TRY("pinned memory",
                 cudaHostAlloc(&memory, sizeof *stream->collected, cudaHostAllocPortable));
    stream->collected = memory;
    /* every byte 0xff: no refusals */
    CRL_CUDA_TRY("stream memory",
                 cudaMemsetAsync(stream->refusals, 0xff, sizeof *stream->refusals, stream->handle));
    return CRL_STATUS_OK;
}

crl_status crl_cuda_stream_create(crl_stream **out) {
    crl_stream *stream = NULL;
    crl_status status;
    CRL_TRY_OUT(crl_alloc(&stream, 1, sizeof *stream));
    CRL_TRY_OUT(fill(stream));
    *out = stream;
    stream = NULL;
out:
    crl_cuda_stream_destroy(stream);
    return status;
}

/* Errors here have been reported by whoever waited, or nobody waits any more. */
void crl_cuda_stream_destroy(crl_stream *stream) {
    if (!stream)
        return;
    if (stream->handle)
        (void)cudaStreamSynchronize(stream->handle);
    for (int i = CRL_CUDA_CONTEXTS - 1; i >= 0; i--)
        if (stream->contexts[i].destroy)
            stream->contexts[i].destroy(stream->contexts[i].pointer);
    if (stream->handle)
        (void)cudaStreamDestroy(stream->handle);
    (void)cudaFree(stream->refusals);
    (void)cudaFree(stream->partials);
    (void)cudaFreeHost(stream->collected);
    (void)cudaGetLastError();
    crl_free(stream);
}

static int index_of(unsigned long long first) {
    return (int)(uint32_t)first;
}

static crl_status refused(const crl_cuda_refusals *got) {
    if (got->token.first != CRL_CUDA_NONE) {
        const long long place = (long long)(got->token.first >> 32);
        return CRL_FAIL(INVALID,
                        "embedding: token at sample %lld, position %lld is %d, expected 0 to %lld",
                        place / got->token.width, place % got->token.width,
                        index_of(got->token.first), got->token.limit - 1);
    }
    return CRL_FAIL(INVALID, "cross_entropy: target of row %lld is %d, expected 0 to %lld",
                    (long long)(got->target.first >> 32), index_of(got->target.first),
                    got->target.limit - 1);
}

crl_status crl_cuda_stream_wait(crl_stream *stream) {
    const crl_cuda_refusals *got = stream->collected;
    CRL_CUDA_TRY("refusals", cudaMemcpyAsync(stream->collected, stream->refusals, sizeof *got,
                                             cudaMemcpyDeviceToHost, stream->handle));
    CRL_CUDA_TRY("wait", cudaStreamSynchronize(stream->handle));
    if (got->token.first == CRL_CUDA_NONE && got->target.first == CRL_CUDA_NONE)
        return CRL_STATUS_OK;
    CRL_CUDA_TRY("refusals",
                 cudaMemsetAsync(stream->refusals, 0xff, sizeof *stream->refusals, stream->handle));
    return refused(got);
}

static crl_status make_event(cudaEvent_t *out) {
    CRL_CUDA_TRY("event", cudaEventCreateWithFlags(out, cudaEventDisableTiming));
    return CRL_STATUS_OK;
}

crl_status crl_cuda_event_create(crl_event **out) {
    crl_event *event = NULL;
    crl_status status;
    CRL_TRY_OUT(crl_alloc(&event, 1, sizeof *event));
    CRL_TRY_OUT(make_event(&event->handle));
    *out = event;
    event = NULL;
out:
    crl_free(event);
    return status;
}

void crl_cuda_event_destroy(crl_event *event) {
    if (!event)
        return;
    (void)cudaEventDestroy(event->handle);
    (void)cudaGetLastError();
    crl_free(event);
}

crl_status crl_cuda_event_record(crl_event *event, crl_stream *stream) {
    CRL_CUDA_TRY("event record", cudaEventRecord(event->handle, stream->handle));
    return CRL_STATUS_OK;
}

crl_status crl_cuda_event_follow(crl_stream *stream, crl_event *event) {
    CRL_CUDA_TRY("event wait", cudaStreamWaitEvent(stream->handle, event->handle, 0));
    return CRL_STATUS_OK;
}

crl_status crl_cuda_event_query(crl_event *event, bool *done) {
    const cudaError_t error = cudaEventQuery(event->handle);
    *done = error == cudaSuccess;
    if (error == cudaErrorNotReady) {
        (void)cudaGetLastError(); /* not an error, but noted as one */
        return CRL_STATUS_OK;
    }
    CRL_CUDA_TRY("event query", error);
    return CRL_STATUS_OK;
}
