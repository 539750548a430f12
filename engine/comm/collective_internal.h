/* SPDX-License-Identifier: Apache-2.0 */
/* What the collective files share. */
#pragma once

#include "engine/comm/collective.h"

#ifdef __cplusplus
extern "C" {
#endif

enum {
    CRL_CHUNK_ALIGN = 16, /* elements: chunks begin on cache lines */
    CRL_MAX_LANES = 65536 /* keeps a member's nodes below CRL_MAX_LANE_NODES */
};

static inline int crl_group_rank(const crl_group *group, int member) {
    return group->member != NULL ? group->member[member] : member;
}

/* Messages between two ranks on one channel match in order, so that steps need no tag of their own.
 */
static inline int crl_group_tag(const crl_group *group, int allreduce_channel) {
    return CRL_TAG_COLLECTIVE | group->channel << 16 | (allreduce_channel + 1);
}

/* Where part `i` of `parts` begins when count elements are dealt out in aligned chunks. */
static inline int64_t crl_chunk_begin(int64_t count, int parts, int i) {
    const int64_t blocks = (count + CRL_CHUNK_ALIGN - 1) / CRL_CHUNK_ALIGN;
    const int64_t begin = (blocks / parts * i + blocks % parts * i / parts) * CRL_CHUNK_ALIGN;
    return begin < count ? begin : count;
}

/* The most elements a part of at most count elements may have. */
static inline int64_t crl_chunk_most(int64_t count, int parts) {
    const int64_t blocks = (count + CRL_CHUNK_ALIGN - 1) / CRL_CHUNK_ALIGN;
    return (blocks + parts - 1) / parts * CRL_CHUNK_ALIGN;
}

/* What every algorithm keeps: the first member of its crl_allreduce. */
typedef struct crl_allreduce_base {
    crl_allreduce_config config;
    crl_group group;
    float *scratch;
    void *own_scratch; /* NULL: the caller lends it */
    const crl_device *own_device;
    bool in_flight;
    int64_t count; /* elements in flight */
} crl_allreduce_base;

/* Checks and copies the config; scratch is the config's, or own memory when it brings none. */
CRL_NODISCARD crl_status
crl_allreduce_base_init(crl_allreduce_base *base, const crl_allreduce_config *config,
                        size_t (*scratch_bytes)(const crl_allreduce_config *config));
/* Aborts the job when in flight. */
void crl_allreduce_base_fini(crl_allreduce_base *base);
/* How `start` begins: INVALID unless at rest and the arguments fit the config; then in flight. */
CRL_NODISCARD crl_status crl_allreduce_begin(crl_allreduce_base *base, const crl_lane_node *node,
                                             int nodes, const float *result, int64_t count);
/* The tag of its messages. */
int crl_allreduce_tag(const crl_allreduce_base *base);
/* This member's nodes added up in order, in the memory of the result; zeros without any. */
CRL_NODISCARD crl_status crl_allreduce_join(float **out, const crl_allreduce_config *config,
                                            const crl_lane_node *node, int nodes, float *result,
                                            int64_t count);
/* The nodes of lanes first..last-1: at most CRL_MAX_LANE_NODES. `data` is left alone. */
int crl_lane_split(int first, int last, crl_lane_node *node);
/* Adds a node to the stack, combining siblings. Needs room for one more. */
CRL_NODISCARD crl_status crl_lane_push_node(crl_lane_node *node, int *nodes, crl_lane_node added,
                                            int64_t count, const crl_reduce_ops *reduce,
                                            crl_stream *stream);
/* The sum of all lanes from the nodes that crl_lane_push_node has left, in one of them; NULL: none.
 * A missing subtree is absent, not zero. */
CRL_NODISCARD crl_status crl_lane_fold(float **out, const crl_lane_node *node, int nodes,
                                       int64_t count, const crl_allreduce_config *config,
                                       crl_stream *stream);
/* data's block `me` becomes the sum of all members' in their order; those of the others are in
 * scratch. */
CRL_NODISCARD crl_status crl_group_sum_blocks(const crl_group *group, float *data, int64_t count,
                                              float *scratch);
/* Starts a message of `count` floats to or from a member. */
CRL_NODISCARD crl_status crl_group_send(const crl_group *group, int member, int tag,
                                        const float *data, int64_t count, crl_request *request);
CRL_NODISCARD crl_status crl_group_recv(const crl_group *group, int member, int tag, float *data,
                                        int64_t count, crl_request *request);

#ifdef __cplusplus
}
#endif
