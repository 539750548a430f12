/* SPDX-License-Identifier: Apache-2.0 */
/* What the files of the NCCL wire share: the library's functions, and communicators as calls that
 * do not block see them. Only these files include NCCL's header. */
#pragma once

#include <nccl.h>

#include "engine/comm/collective_internal.h"
#include "engine/comm/wire_internal.h"

/* The library's functions, as it was opened. */
typedef struct crl_nccl {
    __typeof__(ncclGetUniqueId) *get_unique_id;
    __typeof__(ncclCommInitRankConfig) *init_rank;
    __typeof__(ncclCommFinalize) *finalize;
    __typeof__(ncclCommDestroy) *destroy;
    __typeof__(ncclCommAbort) *abort;
    __typeof__(ncclCommGetAsyncError) *get_async_error;
    __typeof__(ncclGetErrorString) *get_error_string;
    __typeof__(ncclGroupStart) *group_start;
    __typeof__(ncclGroupEnd) *group_end;
    __typeof__(ncclSend) *send;
    __typeof__(ncclRecv) *recv;
    __typeof__(ncclBroadcast) *broadcast;
    __typeof__(ncclAllGather) *all_gather;
    __typeof__(ncclAllReduce) *all_reduce;
} crl_nccl;

/* One communicator with a stream of its own. It takes operations one after the other: the next one
 * when the library says that the one before has been queued on the stream. */
typedef struct crl_nccl_line {
    ncclComm_t comm;
    crl_stream *stream;
    int peer;          /* rank, for reports */
    const void *owner; /* whose operation is being queued; NULL: anybody's turn */
    char name[48];     /* "channel 0 from rank 1 to rank 2" */
} crl_nccl_line;

/* A pair's communicator, in one direction. */
typedef struct crl_nccl_channel {
    crl_nccl_line line;
    int from, to, number;
} crl_nccl_channel;

/* A group's communicator. */
typedef struct crl_nccl_team {
    struct crl_nccl_team *next;
    crl_nccl_line line;
    int channel, size, leader; /* of the group: its channel, members, first member's rank */
    crl_event *begin, *end;    /* of the collectives that are not sums */
    struct crl_allreduce *first, *last; /* sums that are not all queued, in order of their start */
} crl_nccl_team;

struct crl_wire {
    crl_wire_base base;
    crl_nccl nccl;
    int channels;
    crl_nccl_channel *channel; /* (channels) ascending by from, to, number */
    crl_route *route;          /* (routes) ascending by from, to, tag */
    crl_nccl_team *team;
};

/* Opens the library. UNSUPPORTED. */
CRL_NODISCARD crl_status crl_nccl_load(crl_nccl *out);
/* The wire's `usable`. */
CRL_NODISCARD crl_status crl_nccl_usable(const crl_wire_config *config);
/* OK for ncclSuccess and ncclInProgress; DEVICE "nccl: <what>: <text>". */
CRL_NODISCARD crl_status crl_nccl_check(const crl_wire *wire, ncclResult_t result,
                                        const char *what);
/* *settled: the communicator is through with what it was last asked to do. */
CRL_NODISCARD crl_status crl_nccl_settled(const crl_wire *wire, const crl_nccl_line *line,
                                          bool *settled);
/* Blocks until then, with the deadline. */
CRL_NODISCARD crl_status crl_nccl_settle(crl_wire *wire, const crl_nccl_line *line,
                                         const char *what);
/* Makes the communicator with this rank as number `me` of `size`, and its stream. Collective: its
 * ranks. Blocking, with the deadline. */
CRL_NODISCARD crl_status crl_nccl_connect(crl_wire *wire, crl_nccl_line *line,
                                          const ncclUniqueId *id, int me, int size);
/* Ends communicator and stream; `abort`: whatever is on them. */
void crl_nccl_disconnect(crl_wire *wire, crl_nccl_line *line, bool abort);
/* The CUDA stream of ours. */
cudaStream_t crl_nccl_stream(const crl_nccl_line *line);

/* The group's communicator, which the first call makes. Collective then: group. */
CRL_NODISCARD crl_status crl_nccl_find_team(crl_wire *wire, const crl_group *group,
                                            crl_nccl_team **out);
extern const crl_allreduce_algorithm crl_allreduce_nccl_tree, crl_allreduce_nccl_sum;
CRL_NODISCARD crl_status crl_nccl_all_gather(crl_wire *wire, const crl_group *group, void *data,
                                             size_t bytes);
CRL_NODISCARD crl_status crl_nccl_reduce_scatter(crl_wire *wire, const crl_group *group,
                                                 float *data, int64_t count, float *scratch);
/* Sums that are not all queued move on; *busy is set when there are any. */
CRL_NODISCARD crl_status crl_nccl_teams_advance(crl_wire *wire, bool *busy);
/* Ends all teams. */
void crl_nccl_teams_end(crl_wire *wire, bool abort);
void crl_nccl_teams_free(crl_wire *wire);
