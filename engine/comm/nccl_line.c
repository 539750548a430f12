/* SPDX-License-Identifier: Apache-2.0 */
/* A communicator with its stream: how it begins, what it says of itself, and how it ends. None of
 * the library's calls here blocks; those who wait poll, with the job's deadline. */
#include <stdio.h>

#include "engine/comm/nccl_internal.h"
#include "engine/device/cuda_stream.h"

/* Of a channel's kernels: many channels share the GPU with computing. */
enum { MOST_BLOCKS = 8 };

cudaStream_t crl_nccl_stream(const crl_nccl_line *line) {
    return line->stream->handle;
}

crl_status crl_nccl_check(const crl_wire *w, ncclResult_t result, const char *what) {
    if (result == ncclSuccess || result == ncclInProgress) {
        return CRL_STATUS_OK;
    }
    return CRL_FAIL(DEVICE, "nccl: %s: %s", what, w->nccl.get_error_string(result));
}

crl_status crl_nccl_settled(const crl_wire *w, const crl_nccl_line *line, bool *settled) {
    ncclResult_t state = ncclSuccess;
    if (!line->comm) { /* its ranks are still coming together */
        *settled = true;
        return CRL_STATUS_OK;
    }
    CRL_TRY(crl_nccl_check(w, w->nccl.get_async_error(line->comm, &state), line->name));
    CRL_TRY(crl_nccl_check(w, state, line->name));
    *settled = state == ncclSuccess;
    return CRL_STATUS_OK;
}

typedef struct settle_wait {
    const crl_wire *wire;
    const crl_nccl_line *line;
} settle_wait;

static crl_status poll_settled(void *argument, crl_poll_result *result) {
    const settle_wait *wait = argument;
    result->peer = wait->line->peer;
    result->receiving = result->soon = true;
    CRL_TRY(crl_comm_attend(wait->wire->base.config.host));
    return crl_nccl_settled(wait->wire, wait->line, &result->done);
}

crl_status crl_nccl_settle(crl_wire *w, const crl_nccl_line *line, const char *what) {
    settle_wait wait = {w, line};
    return crl_comm_wait_poll(w->base.config.host, what, poll_settled, &wait);
}

crl_status crl_nccl_connect(crl_wire *w, crl_nccl_line *line, const ncclUniqueId *id, int me,
                            int size) {
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    config.blocking = 0;
    if (size == 2) {
        config.maxCTAs = MOST_BLOCKS;
    }
    CRL_TRY(crl_device_stream_create(w->base.config.device, &line->stream));
    CRL_TRY(crl_nccl_check(w, w->nccl.init_rank(&line->comm, size, *id, me, &config), line->name));
    return crl_nccl_settle(w, line, line->name);
}

void crl_nccl_disconnect(crl_wire *w, crl_nccl_line *line, bool abort) {
    if (line->comm) {
        (void)(abort ? w->nccl.abort(line->comm) : w->nccl.destroy(line->comm));
        line->comm = NULL;
    }
    if (!abort) {
        crl_device_stream_destroy(w->base.config.device, line->stream);
        line->stream = NULL;
    }
}
