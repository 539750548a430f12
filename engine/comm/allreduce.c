/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What all all-reduces have in common: the table of algorithms, the checks of their arguments, and
 * waiting. A new algorithm is one file and one line here.
 */
#include "engine/base/alloc.h"
#include "engine/comm/collective_internal.h"
#include "engine/comm/comm_internal.h"

const void *const crl_allreduce_algorithms[] = {
    &crl_allreduce_tree,
    &crl_allreduce_ring,
    &crl_allreduce_halving,
    NULL,
};

/* More than any memory holds; sizes made of it do not overflow. */
static const int64_t most_elements = INT64_C(1) << 48;

static crl_status check_lanes(const crl_allreduce_config *config) {
    const int lanes = config->lanes;
    if (lanes < 1 || lanes > CRL_MAX_LANES || (lanes & (lanes - 1)) != 0) {
        return CRL_FAIL(INVALID, "all-reduce: %d lanes, expected a power of two up to %d", lanes,
                        CRL_MAX_LANES);
    }
    const int *first = config->lane_first;
    for (int i = 0; i < config->group->size; i++) {
        if (first[i] < 0 || first[i + 1] < first[i] || first[i + 1] > lanes) {
            return CRL_FAIL(INVALID,
                            "all-reduce: member %d has lanes %d to %d, expected ascending ones "
                            "within 0 to %d",
                            i, first[i], first[i + 1] - 1, lanes - 1);
        }
    }
    return CRL_STATUS_OK;
}

static crl_status check_config(const crl_allreduce_config *config) {
    const crl_group *group = config->group;
    if (group->size < 1 || group->me < 0 || group->me >= group->size) {
        return CRL_FAIL(INVALID, "all-reduce: member %d of a group of %d", group->me, group->size);
    }
    if (group->channel < 0 || group->channel > 4095) {
        return CRL_FAIL(INVALID, "all-reduce: group channel is %d, expected 0 to 4095",
                        group->channel);
    }
    if (config->channel < 0 || config->channel > 65533) {
        return CRL_FAIL(INVALID, "all-reduce: channel is %d, expected 0 to 65533", config->channel);
    }
    if (config->max_count < 0 || config->max_count > most_elements) {
        return CRL_FAIL(INVALID, "all-reduce: max_count is %lld, expected 0 to %lld",
                        (long long)config->max_count, (long long)most_elements);
    }
    if (config->segment_bytes < 0) {
        return CRL_FAIL(INVALID, "all-reduce: segment_bytes is %lld, expected 0 or more",
                        (long long)config->segment_bytes);
    }
    CRL_TRY(check_lanes(config));
    return CRL_STATUS_OK;
}

crl_status crl_allreduce_base_init(crl_allreduce_base *base, const crl_allreduce_config *config,
                                   size_t (*scratch_bytes)(const crl_allreduce_config *config)) {
    CRL_TRY(check_config(config));
    base->config = *config;
    base->group = *config->group;
    const crl_comm *comm = config->group->comm;
    if (!config->scratch) {
        base->own_device = comm && comm->device ? comm->device : &crl_device_cpu;
        CRL_TRY(crl_device_alloc(base->own_device, &base->own_scratch, scratch_bytes(config)));
    }
    base->scratch = config->scratch ? config->scratch : base->own_scratch;
    return CRL_STATUS_OK;
}

void crl_allreduce_base_fini(crl_allreduce_base *base) {
    if (base->in_flight) {
        crl_comm_abort(base->group.comm);
    }
    if (base->own_scratch) {
        crl_device_free(base->own_device, base->own_scratch);
    }
}

int crl_allreduce_tag(const crl_allreduce_base *base) {
    return crl_group_tag(&base->group, base->config.channel);
}

static crl_status check_start(const crl_allreduce_config *config, const crl_lane_node *node,
                              int nodes, const float *result, int64_t count) {
    if (count < 0 || count > config->max_count) {
        return CRL_FAIL(INVALID, "all-reduce: %lld elements, expected 0 to %lld", (long long)count,
                        (long long)config->max_count);
    }
    crl_lane_node expected[CRL_MAX_LANE_NODES];
    const int *first = &config->lane_first[config->group->me];
    const int wanted = crl_lane_split(first[0], first[1], expected);
    if (nodes != wanted) {
        return CRL_FAIL(INVALID, "all-reduce: %d nodes, lanes %d to %d have %d", nodes, first[0],
                        first[1] - 1, wanted);
    }
    for (int i = 0; i < nodes; i++) {
        if (node[i].first != expected[i].first || node[i].count != expected[i].count) {
            return CRL_FAIL(INVALID, "all-reduce: node %d is lanes %d+%d, expected %d+%d", i,
                            node[i].first, node[i].count, expected[i].first, expected[i].count);
        }
    }
    if (nodes == 0 && result == NULL && count > 0) {
        return CRL_FAIL(INVALID, "all-reduce: member %d has no lanes and no memory for the result",
                        config->group->me);
    }
    return CRL_STATUS_OK;
}

crl_status crl_allreduce_begin(crl_allreduce_base *base, const crl_lane_node *node, int nodes,
                               const float *result, int64_t count) {
    if (base->in_flight) {
        return CRL_FAIL(INVALID, "all-reduce: started while in flight");
    }
    CRL_TRY(check_start(&base->config, node, nodes, result, count));
    base->count = count;
    base->in_flight = true;
    return CRL_STATUS_OK;
}

crl_status crl_allreduce_join(float **out, const crl_allreduce_config *config,
                              const crl_lane_node *node, int nodes, float *result, int64_t count) {
    if (nodes == 0) {
        if (count > 0) {
            CRL_TRY(crl_comm_zero(config->group->comm, result, (size_t)count * sizeof *result));
        }
        *out = result;
        return CRL_STATUS_OK;
    }
    for (int i = 1; i < nodes && count > 0; i++) {
        CRL_TRY(config->reduce->add(config->stream, node[0].data, node[i].data, count));
    }
    *out = node[0].data;
    return CRL_STATUS_OK;
}

const crl_allreduce_algorithm *crl_allreduce_on(const crl_comm *comm,
                                                const crl_allreduce_algorithm *algorithm) {
    const crl_allreduce_algorithm *own = NULL;
    if (comm->kind) {
        own = algorithm->canonical ? comm->kind->tree : comm->kind->sum;
    }
    return own ? own : algorithm;
}

typedef struct allreduce_wait {
    const crl_allreduce_algorithm *algorithm;
    crl_allreduce *allreduce;
    const crl_comm *comm;
    int64_t traffic_bytes; /* when last looked at */
} allreduce_wait;

static crl_status poll_allreduce(void *argument, crl_poll_result *result) {
    allreduce_wait *wait = argument;
    result->receiving = true;
    CRL_TRY(wait->algorithm->progress(wait->allreduce, &result->done, &result->peer));
    const int64_t traffic_bytes = wait->comm->sent_bytes + wait->comm->received_bytes;
    result->moved = traffic_bytes != wait->traffic_bytes;
    wait->traffic_bytes = traffic_bytes;
    return CRL_STATUS_OK;
}

crl_status crl_allreduce_wait(const crl_allreduce_algorithm *algorithm, crl_allreduce *allreduce,
                              crl_comm *comm, const char *what) {
    if (algorithm->follow) {
        return algorithm->follow(allreduce);
    }
    allreduce_wait wait = {algorithm, allreduce, comm, 0};
    CRL_TRY(crl_comm_wait_poll(comm, what, poll_allreduce, &wait));
    return CRL_STATUS_OK;
}
