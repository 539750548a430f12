/* SPDX-License-Identifier: Apache-2.0 */
/* Numbers that the device has made, on their way to the host, while both go on. One copy under way
 * at a time. Refuses to wait: see crl_comm_wait_stream. */
#pragma once

#include "engine/device/device.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct crl_readback {
    const crl_device *device;
    crl_stream *stream;
    crl_event *arrived;
    void *data; /* (bytes) of host memory */
    size_t bytes;
} crl_readback;

/* Host memory for `bytes`, and an event. NOMEM, DEVICE. */
CRL_NODISCARD crl_status crl_readback_init(crl_readback *readback, const crl_device *device,
                                           crl_stream *stream, size_t bytes);
/* One that is all zero is fine. Nothing may be under way. */
void crl_readback_fini(crl_readback *readback);
/* Queues the copy of the first `bytes` of `from`. DEVICE. */
CRL_NODISCARD crl_status crl_readback_start(crl_readback *readback, const void *from, size_t bytes);
/* *done: data holds what was copied last. Never blocks. DEVICE. */
CRL_NODISCARD crl_status crl_readback_test(crl_readback *readback, bool *done);

#ifdef __cplusplus
}
#endif
