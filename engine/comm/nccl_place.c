/* SPDX-License-Identifier: Apache-2.0 */
/* Whether NCCL can be used here: the library, and a GPU of its own for every rank, which NCCL
 * needs. Refuses to try: all ranks tell each other where they are, and come to the same answer. */
#include <cuda_runtime_api.h>
#include <string.h>
#include <unistd.h>

#include "engine/base/alloc.h"
#include "engine/comm/nccl_internal.h"
#include "engine/device/cuda_library.h"
#include "engine/device/cuda_stream.h"

crl_status crl_nccl_load(crl_nccl *n) {
    const crl_cuda_symbol symbols[] = {
        {"ncclGetUniqueId", &n->get_unique_id},
        {"ncclCommInitRankConfig", &n->init_rank},
        {"ncclCommFinalize", &n->finalize},
        {"ncclCommDestroy", &n->destroy},
        {"ncclCommAbort", &n->abort},
        {"ncclCommGetAsyncError", &n->get_async_error},
        {"ncclGetErrorString", &n->get_error_string},
        {"ncclGroupStart", &n->group_start},
        {"ncclGroupEnd", &n->group_end},
        {"ncclSend", &n->send},
        {"ncclRecv", &n->recv},
        {"ncclBroadcast", &n->broadcast},
        {"ncclAllGather", &n->all_gather},
        {"ncclAllReduce", &n->all_reduce},
    };
    return crl_cuda_library_load(&crl_cuda_library_nccl, symbols,
                                 (int)(sizeof symbols / sizeof *symbols));
}

/* Where a rank's GPU is. */
typedef struct place {
    char host[96], bus[32]; /* bus "": the library is missing */
} place;

static crl_status look_around(place *own, const crl_wire_config *config) {
    crl_nccl unused;
    gethostname(own->host, sizeof own->host - 1);
    if (crl_nccl_load(&unused) != CRL_STATUS_OK) {
        crl_error_clear();
        return CRL_STATUS_OK;
    }
    const int device = config->stream->device;
    if (cudaDeviceGetPCIBusId(own->bus, (int)sizeof own->bus, device) != cudaSuccess) {
        return CRL_FAIL(DEVICE, "cuda: device %d has no PCI address", device);
    }
    return CRL_STATUS_OK;
}

/* The same on all ranks: all have the same places. */
static crl_status judge(const place *all, int ranks) {
    for (int rank = 0; rank < ranks; rank++) {
        if (!all[rank].bus[0]) {
            return CRL_FAIL(UNSUPPORTED, "wire nccl: rank %d has no %s", rank,
                            crl_cuda_library_nccl.files[0]);
        }
        for (int other = 0; other < rank; other++) {
            if (memcmp(&all[rank], &all[other], sizeof *all) == 0) {
                return CRL_FAIL(UNSUPPORTED, "wire nccl: ranks %d and %d share GPU %s of %s", other,
                                rank, all[rank].bus, all[rank].host);
            }
        }
    }
    return CRL_STATUS_OK;
}

crl_status crl_nccl_usable(const crl_wire_config *config) {
    crl_comm *host = config->host;
    const crl_group world = {.comm = host, .size = host->ranks, .me = host->rank};
    if (strcmp(config->device->name, "cuda") != 0) {
        return CRL_FAIL(UNSUPPORTED, "wire nccl: device %s is not CUDA's", config->device->name);
    }
    place *all = NULL;
    crl_status status = crl_alloc(&all, (size_t)host->ranks, sizeof *all);
    if (status != CRL_STATUS_OK) {
        return crl_comm_end_job(host, status);
    }
    CRL_TRY_OUT(crl_comm_end_job(host, look_around(&all[host->rank], config)));
    CRL_TRY_OUT(crl_all_gather(&world, all, sizeof *all));
    status = judge(all, host->ranks);
out:
    crl_free(all);
    return status;
}
