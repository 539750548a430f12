/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Collectives over a group of ranks, built on point-to-point messages. The all-reduce of gradients
 * is a state machine that is moved on between kernels; the small ones block (with the deadline).
 */
#pragma once

#include "engine/comm/comm.h"
#include "engine/kernels/reduce.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Ranks in a fixed order that all members share. `member` is lent by the creator. */
typedef struct crl_group {
    crl_comm *comm;
    const int *member; /* ranks; NULL: member i is rank i */
    int size;
    int me;      /* my index in member */
    int channel; /* 0..4095: distinguishes groups that overlap; the same on all members */
} crl_group;

/*
 * A partial sum of gradients over lanes [first, first + count) of the canonical binary tree:
 * count is a power of two and first a multiple of it. See docs/numerics.md.
 */
typedef struct crl_lane_node {
    int first, count;
    float *data; /* (n), overwritten by the sum over all lanes */
} crl_lane_node;

enum { CRL_MAX_LANE_NODES = 32 };

typedef struct crl_allreduce crl_allreduce; /* one in flight at a time, reusable */

typedef struct crl_allreduce_config {
    const crl_group *group; /* lent */
    const crl_reduce_ops *reduce;
    crl_stream *stream;
    int channel; /* 0..65533, unique among the all-reduces of the group that may be in flight */
    int64_t max_count;     /* elements */
    int64_t segment_bytes; /* ring: a message's size; 0: default */
    int lanes;             /* L, a power of two, at most 65536 */
    /* lane_first[i] .. lane_first[i+1]-1 are the lanes of member i; size+1 entries; lent. With
     * fewer micro-batches than lanes the last lanes are nobody's: lane_first[size] < L. */
    const int *lane_first;
    void *scratch; /* scratch_bytes, 64-byte aligned, lent; NULL: `create` allocates it */
} crl_allreduce_config;

/* One algorithm. */
typedef struct crl_allreduce_algorithm {
    const char *name; /* "tree", "ring", "halving" */
    const char *help;
    /* true: any widths give the bits of one rank with the same lanes */
    bool canonical;
    /* Staging memory it needs; pure: group->comm and scratch may be missing. */
    size_t (*scratch_bytes)(const crl_allreduce_config *config);
    crl_status (*create)(crl_allreduce **out, const crl_allreduce_config *config);
    /* NULL is fine. One in flight aborts the job: its scratch must not be written any more. */
    void (*destroy)(crl_allreduce *allreduce);
    /*
     * Begins the sum of `count` elements. The nodes (at most CRL_MAX_LANE_NODES, ascending,
     * covering exactly this member's lanes; none when it has no lane) stay the algorithm's until
     * done; the result is in node[0].data, or in `result` when there is no node (result may be NULL
     * otherwise).
     */
    crl_status (*start)(crl_allreduce *allreduce, crl_lane_node *node, int nodes, float *result,
                        int64_t count);
    /* Moves on without blocking. `peer`: the rank it waits for while not done. On a device: done
     * means queued work sees the result. */
    crl_status (*progress)(crl_allreduce *allreduce, bool *done, int *peer);
    /* The stream waits for the result from here on, the host does not: at rest. NULL: the host has
     * to. */
    crl_status (*follow)(crl_allreduce *allreduce);
} crl_allreduce_algorithm;

extern const crl_allreduce_algorithm crl_allreduce_tree;    /* lane tree */
extern const crl_allreduce_algorithm crl_allreduce_ring;    /* segmented ring */
extern const crl_allreduce_algorithm crl_allreduce_halving; /* recursive halving-doubling */
/* NULL-terminated, for crl_registry_find. */
extern const void *const crl_allreduce_algorithms[];

/* What to use for messages of `comm` instead of `algorithm`: its wire's own, or itself. Canonical
 * stays canonical; scratch of the same size is enough. */
const crl_allreduce_algorithm *crl_allreduce_on(const crl_comm *comm,
                                                const crl_allreduce_algorithm *algorithm);
/* Blocking: progress until done, with the deadline; or `follow`. TIMEOUT as crl_comm_wait. */
CRL_NODISCARD crl_status crl_allreduce_wait(const crl_allreduce_algorithm *algorithm,
                                            crl_allreduce *allreduce, crl_comm *comm,
                                            const char *what);

/* What follows is blocking. Collective: group. Fails as the messages of comm.h do. With a comm for
 * device memory, data and scratch lie there and results are there for queued work. */

/* Returns when all members have called it. */
CRL_NODISCARD crl_status crl_barrier(const crl_group *group);
/* `bytes` of member `root` to all. INVALID: root. */
CRL_NODISCARD crl_status crl_broadcast(const crl_group *group, int root, void *data, size_t bytes);
/* Every member gives `bytes` at data + me·bytes and gets all of them. Ring. */
CRL_NODISCARD crl_status crl_all_gather(const crl_group *group, void *data, size_t bytes);
/* data has size·count elements; member i ends with the sum of block i, in member order. */
CRL_NODISCARD crl_status crl_reduce_scatter(const crl_group *group, float *data, int64_t count,
                                            float *scratch /* (size·count) */);

#ifdef __cplusplus
}
#endif
