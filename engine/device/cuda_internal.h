/* SPDX-License-Identifier: Apache-2.0 */
/* The parts of crl_device_cuda that are files of their own: streams, events and recordings
 * (contracts: device.h), and where the host's threads run. */
#pragma once

#include "engine/device/cuda_stream.h"

#ifdef __cplusplus
extern "C" {
#endif

CRL_NODISCARD crl_status crl_cuda_stream_create(crl_stream **out);
void crl_cuda_stream_destroy(crl_stream *stream);
CRL_NODISCARD crl_status crl_cuda_stream_wait(crl_stream *stream);
void crl_cuda_allow_tf32(crl_stream *stream, bool allow);
CRL_NODISCARD crl_status crl_cuda_event_create(crl_event **out);
void crl_cuda_event_destroy(crl_event *event);
CRL_NODISCARD crl_status crl_cuda_event_record(crl_event *event, crl_stream *stream);
CRL_NODISCARD crl_status crl_cuda_event_follow(crl_stream *stream, crl_event *event);
CRL_NODISCARD crl_status crl_cuda_event_query(crl_event *event, bool *done);

CRL_NODISCARD crl_status crl_cuda_record_begin(crl_stream *stream);
CRL_NODISCARD crl_status crl_cuda_record_end(crl_stream *stream, crl_recording **out);
CRL_NODISCARD crl_status crl_cuda_replay(crl_stream *stream, crl_recording *recording);
void crl_cuda_recording_destroy(crl_recording *recording);

/* Keeps the calling thread on the cores near the GPU at this PCI address ("0000:17:00.0"), unless
 * something narrower holds it already. Failing is no error: the work is only slower. */
void crl_cuda_bind_near(const char *pci_bus_id);

#ifdef __cplusplus
}
#endif
