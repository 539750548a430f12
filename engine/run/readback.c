/* SPDX-License-Identifier: Apache-2.0 */
/* See readback.h. */
#include "engine/run/readback.h"

crl_status crl_readback_init(crl_readback *r, const crl_device *device, crl_stream *stream,
                             size_t bytes) {
    *r = (crl_readback){.device = device, .stream = stream, .bytes = bytes};
    CRL_TRY(crl_device_host_alloc(device, &r->data, bytes));
    return crl_device_event_create(device, &r->arrived);
}

void crl_readback_fini(crl_readback *r) {
    if (r->device) {
        crl_device_event_destroy(r->device, r->arrived);
        crl_device_host_free(r->device, r->data);
    }
}

crl_status crl_readback_start(crl_readback *r, const void *from, size_t bytes) {
    CRL_ASSERT(bytes <= r->bytes);
    CRL_TRY(crl_device_copy(r->device, r->stream, r->data, from, bytes));
    return crl_device_event_record(r->device, r->arrived, r->stream);
}

crl_status crl_readback_test(crl_readback *r, bool *done) {
    return crl_device_event_query(r->device, r->arrived, done);
}
