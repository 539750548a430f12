/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The comm of a rank's device memory: made from the host's, with the same endpoint, so that the end
 * of the job reaches both. Refuses to wait inside the device's runtime: whoever waits polls an
 * event and the job, since a kernel that waits for a dead peer never ends by itself.
 */
#include <string.h>

#include "engine/comm/comm_internal.h"

crl_status crl_comm_on_device(crl_comm *out, crl_comm *host, const crl_wire_kind *kind,
                              const crl_wire_config *config) {
    const bool direct = !kind || crl_device_is_host(config->device);
    crl_comm comm = *host;
    crl_wire_config own = *config;
    own.host = host;
    comm.device = config->device;
    comm.stream = config->stream;
    comm.reduce = config->reduce;
    comm.other = host;
    CRL_TRY(crl_comm_end_job(host, crl_device_event_create(config->device, &comm.event)));
    if (!direct) {
        comm.kind = kind;
        const crl_status status = kind->create(&comm.wire, &own);
        if (status != CRL_STATUS_OK) {
            crl_device_event_destroy(config->device, comm.event);
            return crl_comm_end_job(host, status);
        }
    }
    *out = comm;
    host->other = out;
    return CRL_STATUS_OK;
}

void crl_comm_leave_device(crl_comm *comm) {
    if (!comm->device) {
        return;
    }
    if (comm->wire) {
        const crl_error first = *crl_error_get(); /* why we are here, if for a failure */
        if (crl_comm_attend(comm) != CRL_STATUS_OK) {
            comm->kind->abort(comm->wire);
            crl_error_set(&first);
        }
        comm->kind->destroy(comm->wire);
    }
    crl_device_event_destroy(comm->device, comm->event);
    comm->other->other = NULL;
    *comm = (crl_comm){0};
}

typedef struct stream_wait {
    crl_comm *comm;
    crl_progress_fn progress;
    void *argument;
} stream_wait;

static crl_status poll_stream(void *argument, crl_poll_result *result) {
    const stream_wait *wait = argument;
    const crl_comm *comm = wait->comm;
    result->peer = comm->rank;
    result->receiving = result->soon = true;
    CRL_TRY(crl_device_event_query(comm->device, comm->event, &result->done));
    if (!result->done) {
        CRL_TRY(crl_comm_attend(comm));
        CRL_TRY(wait->progress ? wait->progress(wait->argument) : CRL_STATUS_OK);
    }
    return CRL_STATUS_OK;
}

crl_status crl_comm_wait_stream(crl_comm *comm, const char *what, crl_progress_fn progress,
                                void *argument) {
    if (!comm->device || crl_device_is_host(comm->device)) {
        return CRL_STATUS_OK;
    }
    stream_wait wait = {comm, progress, argument};
    CRL_TRY(crl_device_event_record(comm->device, comm->event, comm->stream));
    CRL_TRY(crl_comm_end_job(comm, crl_comm_wait_poll(comm, what, poll_stream, &wait)));
    CRL_TRY(crl_device_stream_wait(comm->device, comm->stream));
    return CRL_STATUS_OK;
}

crl_status crl_comm_zero(const crl_comm *comm, void *to, size_t bytes) {
    if (comm->device) {
        return crl_device_zero(comm->device, comm->stream, to, bytes);
    }
    memset(to, 0, bytes);
    return CRL_STATUS_OK;
}

crl_status crl_comm_copy(const crl_comm *comm, void *to, const void *from, size_t bytes) {
    if (comm->device) {
        return crl_device_copy(comm->device, comm->stream, to, from, bytes);
    }
    memcpy(to, from, bytes);
    return CRL_STATUS_OK;
}
