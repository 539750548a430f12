/* SPDX-License-Identifier: Apache-2.0 */
/* The calls on a device, with what stands for an entry that it does not need. */
#include "engine/device/device.h"

#include <string.h>

#include "engine/base/alloc.h"

crl_status crl_device_choose(const crl_device *device, int index, int count) {
    return device->choose ? device->choose(index, count) : CRL_STATUS_OK;
}

crl_status crl_device_alloc(const crl_device *device, void *out, size_t bytes) {
    return device->alloc(out, bytes);
}

void crl_device_free(const crl_device *device, void *memory) {
    if (memory) {
        device->free(memory);
    }
}

crl_status crl_device_host_alloc(const crl_device *device, void *out, size_t bytes) {
    return device->host_alloc ? device->host_alloc(out, bytes) : crl_alloc(out, bytes, 1);
}

void crl_device_host_free(const crl_device *device, void *memory) {
    if (!device->host_free) {
        crl_free(memory);
    } else if (memory) {
        device->host_free(memory);
    }
}

crl_status crl_device_copy(const crl_device *device, crl_stream *stream, void *to, const void *from,
                           size_t bytes) {
    return device->copy(stream, to, from, bytes);
}

crl_status crl_device_zero(const crl_device *device, crl_stream *stream, void *to, size_t bytes) {
    if (device->zero) {
        return device->zero(stream, to, bytes);
    }
    if (bytes > 0) {
        memset(to, 0, bytes);
    }
    return CRL_STATUS_OK;
}

crl_status crl_device_stream_create(const crl_device *device, crl_stream **out) {
    *out = NULL;
    return device->stream_create ? device->stream_create(out) : CRL_STATUS_OK;
}

void crl_device_stream_destroy(const crl_device *device, crl_stream *stream) {
    if (stream) {
        device->stream_destroy(stream);
    }
}

crl_status crl_device_stream_wait(const crl_device *device, crl_stream *stream) {
    return stream ? device->stream_wait(stream) : CRL_STATUS_OK;
}

crl_status crl_device_copy_wait(const crl_device *device, crl_stream *stream, void *to,
                                const void *from, size_t bytes) {
    CRL_TRY(crl_device_copy(device, stream, to, from, bytes));
    return crl_device_stream_wait(device, stream);
}

crl_status crl_device_event_create(const crl_device *device, crl_event **out) {
    *out = NULL;
    return device->event_create ? device->event_create(out) : CRL_STATUS_OK;
}

void crl_device_event_destroy(const crl_device *device, crl_event *event) {
    if (event) {
        device->event_destroy(event);
    }
}

crl_status crl_device_event_record(const crl_device *device, crl_event *event, crl_stream *stream) {
    return event ? device->event_record(event, stream) : CRL_STATUS_OK;
}

crl_status crl_device_event_follow(const crl_device *device, crl_stream *stream, crl_event *event) {
    return event ? device->event_follow(stream, event) : CRL_STATUS_OK;
}

crl_status crl_device_event_query(const crl_device *device, crl_event *event, bool *done) {
    *done = true;
    return event ? device->event_query(event, done) : CRL_STATUS_OK;
}

bool crl_device_is_host(const crl_device *device) {
    return device->stream_create == NULL;
}
