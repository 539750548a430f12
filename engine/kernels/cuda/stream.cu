/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Streams: the queue, its scratch, and the one place where the host waits. Refuses to wait
 * anywhere else.
 */
#include "engine/device/cuda_stream.h"
#include "engine/kernels/cuda/cuda.h"

#include "engine/base/alloc.h"

crl_status crl_cuda_failed(const char *what, cudaError_t error, const char *file, int line) {
    const crl_status status =
        error == cudaErrorMemoryAllocation ? CRL_STATUS_NOMEM : CRL_STATUS_DEVICE;
    (void)cudaGetLastError();
    crl_error_fail(status, file, line, "cuda: %s: %s", what, cudaGetErrorString(error));
    return status;
}

static crl_status fill(crl_stream *stream) {
    CRL_CUDA_TRY("stream", cudaStreamCreateWithFlags(&stream->handle, cudaStreamNonBlocking));
    void *memory = nullptr;
    CRL_CUDA_TRY("stream memory", cudaMalloc(&memory, sizeof *stream->refusals));
    stream->refusals = static_cast<crl_cuda_refusals *>(memory);
    CRL_CUDA_TRY("stream memory", cudaMalloc(&memory, CRL_CUDA_PARTIALS * sizeof(double)));
    stream->partials = static_cast<double *>(memory);
    CRL_CUDA_TRY("pinned memory", cudaMallocHost(&memory, sizeof *stream->collected));
    stream->collected = static_cast<crl_cuda_refusals *>(memory);
    /* every byte 0xff: no refusals */
    CRL_CUDA_TRY("stream memory",
                 cudaMemsetAsync(stream->refusals, 0xff, sizeof *stream->refusals, stream->handle));
    return CRL_STATUS_OK;
}

extern "C" crl_status crl_cuda_stream_create(crl_stream **out) {
    crl_stream *stream = nullptr;
    CRL_TRY(crl_alloc(&stream, 1, sizeof *stream));
    const crl_status status = fill(stream);
    if (status != CRL_STATUS_OK) {
        crl_cuda_stream_destroy(stream);
        return status;
    }
    *out = stream;
    return CRL_STATUS_OK;
}

/* Errors here have been reported by whoever waited, or nobody waits any more. */
extern "C" void crl_cuda_stream_destroy(crl_stream *stream) {
    if (stream == nullptr)
        return;
    if (stream->handle != nullptr) {
        (void)cudaStreamSynchronize(stream->handle);
        (void)cudaStreamDestroy(stream->handle);
    }
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

static crl_status collect(crl_stream *stream) {
    const crl_cuda_refusals *got = stream->collected;
    CRL_CUDA_TRY("result", cudaMemcpyAsync(stream->collected, stream->refusals, sizeof *got,
                                           cudaMemcpyDeviceToHost, stream->handle));
    CRL_CUDA_TRY("wait", cudaStreamSynchronize(stream->handle));
    if (got->token.first == CRL_CUDA_NONE && got->target.first == CRL_CUDA_NONE)
        return CRL_STATUS_OK;
    CRL_CUDA_TRY("result",
                 cudaMemsetAsync(stream->refusals, 0xff, sizeof *stream->refusals, stream->handle));
    return refused(got);
}

extern "C" crl_status crl_cuda_stream_wait(crl_stream *stream) {
    return collect(stream);
}
