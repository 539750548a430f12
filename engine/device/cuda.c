/* SPDX-License-Identifier: Apache-2.0 */
/*
 * An NVIDIA GPU as a device: memory, pinned memory, copies. Which GPUs there are is the runtime's
 * answer, and so CUDA_VISIBLE_DEVICES's. Refuses a machine without a driver or without a GPU in one
 * line; everything is loaded at the first call, so a program that does not ask pays nothing.
 */
#include "engine/device/cuda_internal.h"

#include <stdio.h>
#include <string.h>

#include "engine/base/units.h"
#include "engine/device/cuda_library.h"

static crl_status count_devices(int *out) {
    int count = 0;
    const cudaError_t error = cudaGetDeviceCount(&count);
    (void)cudaGetLastError();
    if (error == cudaErrorInsufficientDriver || error == cudaErrorStubLibrary)
        return CRL_FAIL(UNSUPPORTED, "cuda: no driver, or one older than CUDA %d.%d",
                        CUDART_VERSION / 1000, CUDART_VERSION % 1000 / 10);
    if (error == cudaErrorNoDevice || (error == cudaSuccess && count == 0))
        return CRL_FAIL(UNSUPPORTED, "cuda: no GPU");
    CRL_CUDA_TRY("devices", error);
    *out = count;
    return CRL_STATUS_OK;
}

static crl_status cuda_probe(void) {
    int count;
    return count_devices(&count);
}

static crl_status describe_gpu(char *text, size_t text_bytes) {
    int count = 0, version = 0;
    CRL_TRY(count_devices(&count));
    struct cudaDeviceProp gpu;
    CRL_CUDA_TRY("driver", cudaDriverGetVersion(&version));
    CRL_CUDA_TRY("device", cudaGetDeviceProperties(&gpu, 0));
    char times[32] = "", memory[CRL_UNITS_BYTES];
    if (count > 1)
        snprintf(times, sizeof times, "%d x ", count);
    snprintf(text, text_bytes, "%s%s, %s, sm_%d%d, driver for CUDA %d.%d", times, gpu.name,
             crl_units_bytes(memory, (double)gpu.totalGlobalMem), gpu.major, gpu.minor,
             version / 1000, version % 1000 / 10);
    return CRL_STATUS_OK;
}

static void cuda_describe(char *text, size_t text_bytes) {
    char gpu[512], libraries[256];
    if (describe_gpu(gpu, sizeof gpu) != CRL_STATUS_OK) {
        const char *colon = strchr(crl_error_message(), ':');
        snprintf(gpu, sizeof gpu, "%.500s", colon ? colon + 2 : crl_error_message());
        crl_error_clear();
    }
    crl_cuda_library_describe(libraries, sizeof libraries);
    snprintf(text, text_bytes, "%s; %s", gpu, libraries);
}

static crl_status cuda_choose(int index, int count) {
    (void)count;
    int devices = 0;
    char pci_bus_id[32];
    CRL_TRY(count_devices(&devices));
    const int device = index % devices;
    CRL_CUDA_TRY("device", cudaSetDevice(device));
    CRL_CUDA_TRY("device", cudaDeviceGetPCIBusId(pci_bus_id, sizeof pci_bus_id, device));
    crl_cuda_bind_near(pci_bus_id);
    return CRL_STATUS_OK;
}

/* On a stream of its own: the default one orders nothing among streams like ours, and waiting for
 * the device would wait for other ranks on it. */
static crl_status zero_now(void *memory, size_t bytes) {
    cudaStream_t stream = NULL;
    CRL_CUDA_TRY("stream", cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    cudaError_t error = cudaMemsetAsync(memory, 0, bytes, stream);
    if (error == cudaSuccess)
        error = cudaStreamSynchronize(stream);
    (void)cudaStreamDestroy(stream);
    CRL_CUDA_TRY("zero", error);
    return CRL_STATUS_OK;
}

static void cuda_free(void *memory) {
    (void)cudaFree(memory);
    (void)cudaGetLastError();
}

static crl_status cuda_alloc(void *out, size_t bytes) {
    void *memory = NULL;
    bytes = bytes > 0 ? bytes : 1;
    const cudaError_t error = cudaMalloc(&memory, bytes);
    if (error == cudaErrorMemoryAllocation) {
        size_t free_bytes = 0, total_bytes = 0;
        char asked[CRL_UNITS_BYTES], left[CRL_UNITS_BYTES];
        (void)cudaMemGetInfo(&free_bytes, &total_bytes);
        (void)cudaGetLastError();
        return CRL_FAIL(NOMEM, "cuda: %s of device memory asked for, %s free",
                        crl_units_bytes(asked, (double)bytes),
                        crl_units_bytes(left, (double)free_bytes));
    }
    CRL_CUDA_TRY("memory", error);
    const crl_status status = zero_now(memory, bytes);
    if (status != CRL_STATUS_OK) {
        cuda_free(memory);
        return status;
    }
    memcpy(out, &memory, sizeof memory);
    return CRL_STATUS_OK;
}

static crl_status cuda_host_alloc(void *out, size_t bytes) {
    void *memory = NULL;
    bytes = bytes > 0 ? bytes : 1;
    CRL_CUDA_TRY("pinned memory", cudaHostAlloc(&memory, bytes, cudaHostAllocPortable));
    memset(memory, 0, bytes);
    memcpy(out, &memory, sizeof memory);
    return CRL_STATUS_OK;
}

static void cuda_host_free(void *memory) {
    (void)cudaFreeHost(memory);
    (void)cudaGetLastError();
}

static crl_status cuda_copy(crl_stream *stream, void *to, const void *from, size_t bytes) {
    if (bytes > 0)
        CRL_CUDA_TRY("copy", cudaMemcpyAsync(to, from, bytes, cudaMemcpyDefault, stream->handle));
    return CRL_STATUS_OK;
}

static crl_status cuda_zero(crl_stream *stream, void *to, size_t bytes) {
    if (bytes > 0)
        CRL_CUDA_TRY("zero", cudaMemsetAsync(to, 0, bytes, stream->handle));
    return CRL_STATUS_OK;
}

const crl_device crl_device_cuda = {
    .name = "cuda",
    .help = "NVIDIA GPUs, through cuBLASLt, cuDNN, NCCL and own kernels",
    .probe = cuda_probe,
    .describe = cuda_describe,
    .choose = cuda_choose,
    .alloc = cuda_alloc,
    .free = cuda_free,
    .host_alloc = cuda_host_alloc,
    .host_free = cuda_host_free,
    .copy = cuda_copy,
    .zero = cuda_zero,
    .stream_create = crl_cuda_stream_create,
    .stream_destroy = crl_cuda_stream_destroy,
    .stream_wait = crl_cuda_stream_wait,
    .allow_tf32 = crl_cuda_allow_tf32,
    .event_create = crl_cuda_event_create,
    .event_destroy = crl_cuda_event_destroy,
    .event_record = crl_cuda_event_record,
    .event_follow = crl_cuda_event_follow,
    .event_query = crl_cuda_event_query,
    .record_begin = crl_cuda_record_begin,
    .record_end = crl_cuda_record_end,
    .replay = crl_cuda_replay,
    .recording_destroy = crl_cuda_recording_destroy,
};
