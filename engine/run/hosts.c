/* SPDX-License-Identifier: Apache-2.0 */
/* One gather of host names and numbers. */
#include "engine/run/hosts.h"

#include <string.h>
#include <unistd.h>

#include "engine/base/alloc.h"
#include "engine/base/thread.h"
#include "engine/comm/collective.h"
#include "engine/run/run_internal.h"

enum { HOST_BYTES = 64 };

typedef struct entry {
    char host[HOST_BYTES];
    int64_t number;
} entry;

crl_status crl_hosts_gather(crl_host_numbers *out, crl_comm *comm, int64_t number) {
    crl_status status = CRL_STATUS_OK;
    const crl_group world = {comm, NULL, comm->ranks, comm->rank, CRL_SESSION_CHANNEL};
    entry *all = NULL, mine = {.number = number};
    CRL_TRY_OUT(crl_alloc(&all, (size_t)comm->ranks, sizeof *all));
    if (gethostname(mine.host, sizeof mine.host - 1) != 0) {
        memcpy(mine.host, "?", 2);
    }
    all[comm->rank] = mine;
    CRL_TRY_OUT(crl_all_gather(&world, all, sizeof *all));
    *out = (crl_host_numbers){0};
    for (int r = 0; r < comm->ranks; r++) {
        const bool here = strncmp(all[r].host, mine.host, sizeof mine.host) == 0;
        out->ranks_here += here;
        out->index_here += here && r < comm->rank;
        out->sum_here += here ? all[r].number : 0;
        out->largest = all[r].number > out->largest ? all[r].number : out->largest;
    }
out:
    crl_free(all);
    return status;
}

crl_status crl_hosts_reserve(int64_t *out_most, crl_comm *comm, const crl_device *device,
                             size_t bytes) {
    crl_host_numbers hosts;
    const int64_t physical = crl_memory_physical_bytes();
    CRL_TRY(crl_hosts_gather(&hosts, comm, (int64_t)bytes));
    if (crl_device_is_host(device) && physical > 0 && hosts.sum_here > physical) {
        return CRL_FAIL(
            NOMEM, "memory: the %d ranks on this machine reserve %.1f GiB, it has %.1f GiB",
            hosts.ranks_here, (double)hosts.sum_here / (1 << 30), (double)physical / (1 << 30));
    }
    *out_most = hosts.largest;
    return CRL_STATUS_OK;
}

crl_status crl_hosts_choose_device(crl_stream **out_stream, int *out_threads, crl_comm *comm,
                                   const crl_settings *settings) {
    const crl_device *device = settings->backend->device;
    crl_host_numbers hosts;
    CRL_TRY(crl_hosts_gather(&hosts, comm, 0));
    CRL_TRY(crl_device_choose(device, hosts.index_here, hosts.ranks_here));
    CRL_TRY(crl_device_stream_create(device, out_stream));
    if (device->allow_tf32) {
        device->allow_tf32(*out_stream, settings->numerics.tf32);
    }
    const int share = crl_cpu_count() / hosts.ranks_here;
    *out_threads = settings->run.threads > 0 ? (int)settings->run.threads : share < 1 ? 1 : share;
    crl_kernels_set_threads(*out_threads);
    return CRL_STATUS_OK;
}
