/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Sums of a group of ranks through NCCL, on one communicator and stream of the group. They are
 * queued one after the other in the order of their start, which has to be the same on all members.
 *
 *   stream ──gradients──begin─>                                          └─follow──optimizer──>
 *   group's           └─follow─ exchange ─ add in the tree's order ─ spread ─end─┘
 *
 * `tree` has the bits of lane_tree.c: the same pieces to the same owners, added in the same order;
 * only the way is NCCL's, in two groups of operations. `sum` is ncclAllReduce, whose order is its
 * own.
 *
 * cost: that of lane_tree.c's and ring.c's cards
 */
#include "engine/base/alloc.h"
#include "engine/comm/nccl_internal.h"

/* One node's piece of the chunk this member owns. */
typedef struct part {
    crl_lane_node node;
    int member;
    float *scratch; /* (chunk), NULL for this member's own */
} part;

enum { WAITING = 0, EXCHANGING, SPREADING, QUEUED };

struct crl_allreduce {
    crl_allreduce_base base;
    crl_wire *wire;
    crl_nccl_team *team;
    crl_event *begin, *end;
    crl_allreduce *next; /* of the team's */
    int state;

    float *result;
    crl_lane_node own[CRL_MAX_LANE_NODES];
    int owns;
    int parts;  /* tree: of all members, in lane order */
    part *part; /* (parts) */
};

static int64_t begin_of(const crl_allreduce *a, int member) {
    return crl_chunk_begin(a->base.count, a->base.group.size, member);
}

static int64_t length_of(const crl_allreduce *a, int member) {
    return begin_of(a, member + 1) - begin_of(a, member);
}

/* Pieces of everybody's nodes to the owners of their chunks. */
static ncclResult_t post_exchange(const crl_allreduce *a) {
    const crl_nccl *n = &a->wire->nccl;
    const ncclComm_t comm = a->team->line.comm;
    const cudaStream_t stream = crl_nccl_stream(&a->team->line);
    const int me = a->base.group.me, size = a->base.group.size;
    ncclResult_t result = ncclSuccess;
    for (int i = 0; i < a->parts && length_of(a, me) > 0 && result == ncclSuccess; i++) {
        if (a->part[i].scratch) {
            result = n->recv(a->part[i].scratch, (size_t)length_of(a, me), ncclFloat,
                             a->part[i].member, comm, stream);
        }
    }
    for (int s = 1; s < size && result == ncclSuccess; s++) {
        const int to = (me + s) % size;
        for (int i = 0; i < a->owns && length_of(a, to) > 0 && result == ncclSuccess; i++) {
            result = n->send(a->own[i].data + begin_of(a, to), (size_t)length_of(a, to), ncclFloat,
                             to, comm, stream);
        }
    }
    return result;
}

/* Every owner's chunk to all. */
static ncclResult_t post_spread(const crl_allreduce *a) {
    const crl_nccl *n = &a->wire->nccl;
    const ncclComm_t comm = a->team->line.comm;
    const cudaStream_t stream = crl_nccl_stream(&a->team->line);
    const int size = a->base.group.size;
    if (a->base.count % (CRL_CHUNK_ALIGN * size) == 0) {
        return n->all_gather(a->result + begin_of(a, a->base.group.me), a->result,
                             (size_t)(a->base.count / size), ncclFloat, comm, stream);
    }
    ncclResult_t result = ncclSuccess;
    for (int owner = 0; owner < size && result == ncclSuccess; owner++) {
        float *chunk = a->result + begin_of(a, owner);
        if (length_of(a, owner) > 0) {
            result = n->broadcast(chunk, chunk, (size_t)length_of(a, owner), ncclFloat, owner, comm,
                                  stream);
        }
    }
    return result;
}

/* A group is closed whatever happened inside. */
static crl_status post_group(const crl_allreduce *a, ncclResult_t (*post)(const crl_allreduce *)) {
    const crl_nccl *n = &a->wire->nccl;
    CRL_TRY(crl_nccl_check(a->wire, n->group_start(), a->team->line.name));
    const ncclResult_t posted = post(a), ended = n->group_end();
    CRL_TRY(crl_nccl_check(a->wire, posted, a->team->line.name));
    return crl_nccl_check(a->wire, ended, a->team->line.name);
}

/* What lane_tree.c does with the pieces of this member's chunk. */
static crl_status combine(crl_allreduce *a) {
    const int me = a->base.group.me;
    const int64_t length = length_of(a, me);
    crl_stream *stream = a->team->line.stream;
    const crl_device *device = a->wire->base.config.device;
    crl_lane_node stack[2 * CRL_MAX_LANE_NODES] = {0};
    int stacked = 0;
    float *sum, *chunk = a->result + begin_of(a, me);
    int own = 0;
    if (length == 0) {
        return CRL_STATUS_OK;
    }
    for (int i = 0; i < a->parts; i++) {
        crl_lane_node node = a->part[i].node;
        node.data = a->part[i].scratch ? a->part[i].scratch : a->own[own++].data + begin_of(a, me);
        CRL_TRY(crl_lane_push_node(stack, &stacked, node, length, a->base.config.reduce, stream));
    }
    CRL_TRY(crl_lane_fold(&sum, stack, stacked, length, &a->base.config, stream));
    if (!sum) {
        return crl_device_zero(device, stream, chunk, (size_t)length * sizeof *chunk);
    }
    return sum == chunk
               ? CRL_STATUS_OK
               : crl_device_copy(device, stream, chunk, sum, (size_t)length * sizeof *chunk);
}

/* What comes after `state`, once the operations of `state` are on the stream. */
static crl_status go_on(crl_allreduce *a) {
    const crl_device *device = a->wire->base.config.device;
    crl_nccl_line *line = &a->team->line;
    if (a->state == WAITING) {
        CRL_TRY(crl_device_event_follow(device, line->stream, a->begin));
    }
    if (a->base.count > 0 && a->part && a->state == WAITING) {
        a->state = EXCHANGING;
        return post_group(a, post_exchange);
    }
    if (a->base.count > 0 && a->state == EXCHANGING) {
        a->state = SPREADING;
        CRL_TRY(combine(a));
        return post_group(a, post_spread);
    }
    if (a->base.count > 0 && a->state == WAITING) {
        a->state = SPREADING;
        return crl_nccl_check(a->wire,
                              a->wire->nccl.all_reduce(a->result, a->result, (size_t)a->base.count,
                                                       ncclFloat, ncclSum, line->comm,
                                                       crl_nccl_stream(line)),
                              line->name);
    }
    a->state = QUEUED;
    return crl_device_event_record(device, a->end, line->stream);
}

static crl_status advance_team(crl_wire *w, crl_nccl_team *team) {
    bool settled = true;
    while (team->first && settled) {
        crl_allreduce *a = team->first;
        CRL_TRY(crl_nccl_settled(w, &team->line, &settled));
        if (settled) {
            CRL_TRY(go_on(a));
        }
        if (a->state == QUEUED) {
            team->first = a->next;
        }
    }
    return CRL_STATUS_OK;
}

crl_status crl_nccl_teams_advance(crl_wire *w, bool *busy) {
    for (crl_nccl_team *team = w->team; team; team = team->next) {
        CRL_TRY(advance_team(w, team));
        *busy = *busy || team->first;
    }
    return CRL_STATUS_OK;
}

static void destroy(crl_allreduce *a) {
    if (!a) {
        return;
    }
    crl_allreduce_base_fini(&a->base);
    if (a->wire) {
        crl_device_event_destroy(a->wire->base.config.device, a->begin);
        crl_device_event_destroy(a->wire->base.config.device, a->end);
    }
    crl_free(a->part);
    crl_free(a);
}

static crl_status create(crl_allreduce **out, const crl_allreduce_config *config,
                         const crl_allreduce_algorithm *algorithm) {
    crl_allreduce *a = NULL;
    crl_status status;
    crl_comm *comm = config->group->comm;
    CRL_TRY_OUT(crl_alloc(&a, 1, sizeof *a));
    CRL_TRY_OUT(crl_allreduce_base_init(&a->base, config, algorithm->scratch_bytes));
    a->wire = comm->wire;
    CRL_TRY_OUT(crl_device_event_create(comm->device, &a->begin));
    CRL_TRY_OUT(crl_device_event_create(comm->device, &a->end));
    CRL_TRY_OUT(crl_nccl_find_team(a->wire, config->group, &a->team));
    *out = a;
    a = NULL;
out:
    destroy(a);
    return status ? crl_comm_end_job(comm, status) : status;
}

static crl_status create_sum(crl_allreduce **out, const crl_allreduce_config *config) {
    return create(out, config, &crl_allreduce_nccl_sum);
}

static size_t sum_scratch_bytes(const crl_allreduce_config *config) {
    (void)config;
    return 0;
}

static size_t tree_scratch_bytes(const crl_allreduce_config *config) {
    return crl_allreduce_tree.scratch_bytes(config);
}

static void lay_out_parts(crl_allreduce *a) {
    const crl_allreduce_config *config = &a->base.config;
    const int64_t chunk = crl_chunk_most(config->max_count, a->base.group.size);
    float *scratch = a->base.scratch;
    a->parts = 0;
    for (int member = 0; member < a->base.group.size; member++) {
        crl_lane_node node[CRL_MAX_LANE_NODES];
        const int nodes =
            crl_lane_split(config->lane_first[member], config->lane_first[member + 1], node);
        for (int i = 0; i < nodes; i++) {
            part *part = &a->part[a->parts++];
            part->node = node[i];
            part->member = member;
            if (member != a->base.group.me) {
                part->scratch = scratch;
                scratch += chunk;
            }
        }
    }
}

static crl_status create_tree(crl_allreduce **out, const crl_allreduce_config *config) {
    crl_allreduce *a = NULL;
    CRL_TRY(create(&a, config, &crl_allreduce_nccl_tree));
    const crl_status status =
        crl_alloc(&a->part, (size_t)a->base.group.size * CRL_MAX_LANE_NODES, sizeof *a->part);
    if (status != CRL_STATUS_OK) {
        destroy(a);
        return crl_comm_end_job(config->group->comm, status);
    }
    lay_out_parts(a);
    *out = a;
    return CRL_STATUS_OK;
}

static crl_status enqueue(crl_allreduce *a) {
    crl_nccl_team *team = a->team;
    CRL_TRY(crl_device_event_record(a->wire->base.config.device, a->begin, a->base.config.stream));
    a->state = WAITING;
    a->next = NULL;
    *(team->first ? &team->last->next : &team->first) = a;
    team->last = a;
    return advance_team(a->wire, team);
}

static crl_status start(crl_allreduce *a, crl_lane_node *node, int nodes, float *result,
                        int64_t count) {
    crl_comm *comm = a->base.group.comm;
    CRL_TRY(crl_allreduce_begin(&a->base, node, nodes, result, count));
    if (a->part) {
        a->result = nodes > 0 ? node[0].data : result;
        a->owns = nodes;
        for (int i = 0; i < nodes; i++) {
            a->own[i] = node[i];
        }
    } else {
        CRL_TRY(crl_allreduce_join(&a->result, &a->base.config, node, nodes, result, count));
    }
    return crl_comm_end_job(comm, enqueue(a));
}

static crl_status look(crl_allreduce *a, bool *queued, bool *done) {
    CRL_TRY(crl_comm_attend(a->base.group.comm));
    CRL_TRY(advance_team(a->wire, a->team));
    *queued = a->state == QUEUED;
    return *queued && done ? crl_device_event_query(a->wire->base.config.device, a->end, done)
                           : CRL_STATUS_OK;
}

static crl_status progress(crl_allreduce *a, bool *done, int *peer) {
    bool queued;
    *done = !a->base.in_flight;
    *peer = a->team->line.peer;
    if (!*done) {
        CRL_TRY(crl_comm_end_job(a->base.group.comm, look(a, &queued, done)));
    }
    a->base.in_flight = !*done;
    return CRL_STATUS_OK;
}

static crl_status poll_queued(void *argument, crl_poll_result *result) {
    crl_allreduce *a = argument;
    result->peer = a->team->line.peer;
    result->receiving = result->soon = true;
    return look(a, &result->done, NULL);
}

static crl_status follow(crl_allreduce *a) {
    crl_comm *comm = a->base.group.comm;
    if (a->base.in_flight) {
        CRL_TRY(
            crl_comm_end_job(comm, crl_comm_wait_poll(comm, "a sum to be queued", poll_queued, a)));
        CRL_TRY(crl_comm_end_job(
            comm, crl_device_event_follow(comm->device, a->base.config.stream, a->end)));
        a->base.in_flight = false;
    }
    return CRL_STATUS_OK;
}

const crl_allreduce_algorithm crl_allreduce_nccl_tree = {
    .name = "tree",
    .help = "lane tree over NCCL",
    .canonical = true,
    .scratch_bytes = tree_scratch_bytes,
    .create = create_tree,
    .destroy = destroy,
    .start = start,
    .progress = progress,
    .follow = follow,
};

const crl_allreduce_algorithm crl_allreduce_nccl_sum = {
    .name = "sum",
    .help = "NCCL's own all-reduce",
    .canonical = false,
    .scratch_bytes = sum_scratch_bytes,
    .create = create_sum,
    .destroy = destroy,
    .start = start,
    .progress = progress,
    .follow = follow,
};
