/* SPDX-License-Identifier: Apache-2.0 */
/* What ranks that share a machine have to know of each other. */
#pragma once

#include "engine/comm/comm.h"
#include "engine/device/device.h"
#include "engine/run/settings.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct crl_host_numbers {
    int ranks_here;   /* ranks on this machine, by host name */
    int index_here;   /* this rank among them, by rank */
    int64_t sum_here; /* of their numbers */
    int64_t largest;  /* of all ranks' numbers */
} crl_host_numbers;

/* Collective: all ranks. Blocking. Each gives one number, 0 or more. */
CRL_NODISCARD crl_status crl_hosts_gather(crl_host_numbers *out, crl_comm *comm, int64_t number);

/* Collective: all ranks. Blocking. Before each reserves `bytes` on `device`: NOMEM when those on
 * one machine want more of its own memory than it has, since they would be killed without a word
 * once they touch it. `out_most`: of the rank that wants the most. */
CRL_NODISCARD crl_status crl_hosts_reserve(int64_t *out_most, crl_comm *comm,
                                           const crl_device *device, size_t bytes);

/* Collective: all ranks. Blocking. The calling thread works on the settings' device from now on,
 * with the settings' threads or its share of the machine's. `out_stream`: of its computing, to be
 * destroyed by the caller, also after a failure; NULL on the CPU. */
CRL_NODISCARD crl_status crl_hosts_choose_device(crl_stream **out_stream, int *out_threads,
                                                 crl_comm *comm, const crl_settings *settings);

#ifdef __cplusplus
}
#endif
