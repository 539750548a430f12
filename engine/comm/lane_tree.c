/* SPDX-License-Identifier: Apache-2.0 */
/*
 * All-reduce along the canonical lane tree: the bits depend on the lanes alone, never on who holds
 * them. Member i owns chunk i of the elements.
 *
 *   1. reduce-scatter            2. combine                    3. all-gather
 *   everybody sends each owner   the owner adds the partials   each owner sends its
 *   its nodes' piece of the      as the tree says, in lane     chunk to all others
 *   owner's chunk                order: left + right
 *
 *   member 0: lanes 0 1  --[0..1]-->  owner 1: ([0..1] + ([2] + absent))
 *   member 1: lane 2
 *
 * A missing subtree is absent, not zero: left alone or right alone. The owner combines siblings
 * as soon as both are there; the tree, not the order of arrival, says what is added to what.
 *
 * cost: a member with k nodes, W members, n elements (a multiple of 16 W), per member:
 *   messages (W-1)(k+1) · sent elements (W-1)/W n (k+1) · scratch (K-k)/W n, K nodes of all members
 * With lanes dealt out in equal aligned parts k is 1: the traffic of a ring in two steps.
 */
#include "engine/base/alloc.h"
#include "engine/comm/collective_internal.h"
#include "engine/comm/comm_internal.h"

/* One node's piece of the chunk this member owns. */
typedef struct part {
    crl_lane_node node;
    int member;
    float *scratch; /* (chunk), NULL for this member's own */
    crl_request request;
    bool ready;
} part;

typedef struct peer_state {
    crl_request send[CRL_MAX_LANE_NODES]; /* my nodes' pieces of the peer's chunk */
    crl_request give, get;                /* result chunks: mine to the peer, the peer's to me */
    bool sent, getting;
} peer_state;

struct crl_allreduce {
    crl_allreduce_base base; /* scratch: (foreign parts, chunk) */
    part *part;              /* (parts) of all members, in lane order */
    peer_state *peer;        /* (size) */
    int parts, own_first, own_count;

    bool combined;
    float *result;
    int taken; /* parts on the stack */
    crl_lane_node stack[2 * CRL_MAX_LANE_NODES];
    int stacked;
};

static int64_t begin_of(const crl_allreduce *a, int member) {
    return crl_chunk_begin(a->base.count, a->base.group.size, member);
}

static int64_t length_of(const crl_allreduce *a, int member) {
    return begin_of(a, member + 1) - begin_of(a, member);
}

static void tree_destroy(crl_allreduce *a) {
    if (a == NULL) {
        return;
    }
    crl_allreduce_base_fini(&a->base);
    crl_free(a->part);
    crl_free(a->peer);
    crl_free(a);
}

static void lay_out_parts(crl_allreduce *a, int64_t chunk) {
    const int *first = a->base.config.lane_first;
    float *scratch = a->base.scratch;
    int at = 0;
    for (int member = 0; member < a->base.group.size; member++) {
        crl_lane_node node[CRL_MAX_LANE_NODES];
        const int nodes = crl_lane_split(first[member], first[member + 1], node);
        const bool own = member == a->base.group.me;
        if (own) {
            a->own_first = at;
            a->own_count = nodes;
        }
        for (int i = 0; i < nodes; i++) {
            a->part[at] = (part){.node = node[i], .member = member};
            if (!own) {
                a->part[at].scratch = scratch;
                scratch += chunk;
            }
            at++;
        }
    }
}

/* Nodes of all members, and of the others alone. */
static void count_nodes(const crl_allreduce_config *config, int *out_all, int *out_foreign) {
    *out_all = *out_foreign = 0;
    for (int member = 0; member < config->group->size; member++) {
        crl_lane_node node[CRL_MAX_LANE_NODES];
        const int nodes =
            crl_lane_split(config->lane_first[member], config->lane_first[member + 1], node);
        *out_all += nodes;
        *out_foreign += member != config->group->me ? nodes : 0;
    }
}

static size_t tree_scratch_bytes(const crl_allreduce_config *config) {
    int all, foreign;
    count_nodes(config, &all, &foreign);
    return (size_t)foreign * (size_t)crl_chunk_most(config->max_count, config->group->size) *
           sizeof(float);
}

static crl_status tree_create(crl_allreduce **out, const crl_allreduce_config *config) {
    crl_allreduce *a = NULL;
    crl_status status;
    CRL_TRY_OUT(crl_alloc(&a, 1, sizeof *a));
    CRL_TRY_OUT(crl_allreduce_base_init(&a->base, config, tree_scratch_bytes));
    const int size = a->base.group.size;
    int foreign;
    count_nodes(config, &a->parts, &foreign);
    CRL_TRY_OUT(crl_alloc(&a->part, (size_t)a->parts, sizeof *a->part));
    CRL_TRY_OUT(crl_alloc(&a->peer, (size_t)size, sizeof *a->peer));
    lay_out_parts(a, crl_chunk_most(config->max_count, size));
    *out = a;
    a = NULL;
out:
    tree_destroy(a);
    return status;
}

static crl_status post_parts(crl_allreduce *a, const crl_lane_node *node) {
    const int me = a->base.group.me;
    const int64_t length = length_of(a, me);
    for (int i = 0; i < a->parts; i++) {
        part *part = &a->part[i];
        part->ready = part->scratch == NULL || length == 0;
        part->node.data =
            part->scratch != NULL ? part->scratch : node[i - a->own_first].data + begin_of(a, me);
        if (!part->ready) {
            CRL_TRY(crl_group_recv(&a->base.group, part->member, crl_allreduce_tag(&a->base),
                                   part->scratch, length, &part->request));
        }
    }
    for (int s = 1; s < a->base.group.size; s++) {
        const int to = (me + s) % a->base.group.size;
        for (int i = 0; i < a->own_count && length_of(a, to) > 0; i++) {
            CRL_TRY(crl_group_send(&a->base.group, to, crl_allreduce_tag(&a->base),
                                   node[i].data + begin_of(a, to), length_of(a, to),
                                   &a->peer[to].send[i]));
        }
    }
    return CRL_STATUS_OK;
}

static crl_status tree_start(crl_allreduce *a, crl_lane_node *node, int nodes, float *result,
                             int64_t count) {
    CRL_TRY(crl_allreduce_begin(&a->base, node, nodes, result, count));
    a->result = nodes > 0 ? node[0].data : result;
    a->taken = a->stacked = 0;
    a->combined = false;
    for (int member = 0; member < a->base.group.size; member++) {
        a->peer[member].sent = a->peer[member].getting = member == a->base.group.me;
    }
    CRL_TRY(post_parts(a, node));
    return CRL_STATUS_OK;
}

/* All pieces are on the stack: finishes the sum and hands it out. */
static crl_status finish_chunk(crl_allreduce *a) {
    const int me = a->base.group.me;
    const int64_t length = length_of(a, me);
    a->combined = true;
    if (length == 0) {
        return CRL_STATUS_OK;
    }
    float *chunk = a->result + begin_of(a, me);
    float *sum;
    CRL_TRY(
        crl_lane_fold(&sum, a->stack, a->stacked, length, &a->base.config, a->base.config.stream));
    if (sum == NULL) {
        CRL_TRY(crl_comm_zero(a->base.group.comm, chunk, (size_t)length * sizeof *chunk));
    } else if (sum != chunk) {
        CRL_TRY(crl_comm_copy(a->base.group.comm, chunk, sum, (size_t)length * sizeof *chunk));
    }
    for (int s = 1; s < a->base.group.size; s++) {
        const int to = (me + s) % a->base.group.size;
        CRL_TRY(crl_group_send(&a->base.group, to, crl_allreduce_tag(&a->base), chunk, length,
                               &a->peer[to].give));
    }
    return CRL_STATUS_OK;
}

/* Takes the pieces that have arrived, in lane order. */
static crl_status take_parts(crl_allreduce *a, int *peer) {
    for (; a->taken < a->parts; a->taken++) {
        part *part = &a->part[a->taken];
        if (!part->ready) {
            CRL_TRY(crl_comm_test(a->base.group.comm, &part->request, &part->ready));
        }
        if (!part->ready) {
            *peer = crl_group_rank(&a->base.group, part->member);
            return CRL_STATUS_OK;
        }
        CRL_TRY(crl_lane_push_node(a->stack, &a->stacked, part->node,
                                   length_of(a, a->base.group.me), a->base.config.reduce,
                                   a->base.config.stream));
    }
    CRL_TRY(finish_chunk(a));
    return CRL_STATUS_OK;
}

/* The peer's result goes where my piece of its chunk lies: only once that has been sent. */
static crl_status serve_peer(crl_allreduce *a, int member, bool *done) {
    peer_state *peer = &a->peer[member];
    bool got = false, given = false;
    *done = false;
    if (!peer->sent) {
        peer->sent = true;
        for (int i = 0; i < a->own_count && peer->sent; i++) {
            CRL_TRY(crl_comm_test(a->base.group.comm, &peer->send[i], &peer->sent));
        }
    }
    if (peer->sent && !peer->getting) {
        peer->getting = true;
        if (length_of(a, member) > 0) {
            CRL_TRY(crl_group_recv(&a->base.group, member, crl_allreduce_tag(&a->base),
                                   a->result + begin_of(a, member), length_of(a, member),
                                   &peer->get));
        }
    }
    if (peer->getting) {
        CRL_TRY(crl_comm_test(a->base.group.comm, &peer->get, &got));
    }
    CRL_TRY(crl_comm_test(a->base.group.comm, &peer->give, &given));
    *done = peer->getting && got && given && a->combined;
    return CRL_STATUS_OK;
}

static crl_status tree_progress(crl_allreduce *a, bool *done, int *peer) {
    if (!a->base.in_flight) {
        *done = true;
        return CRL_STATUS_OK;
    }
    *done = false;
    *peer = -1;
    if (!a->combined) {
        CRL_TRY(take_parts(a, peer));
    }
    bool all = a->combined;
    for (int s = 1; s < a->base.group.size; s++) {
        const int member = (a->base.group.me + s) % a->base.group.size;
        bool served;
        CRL_TRY(serve_peer(a, member, &served));
        if (!served && *peer < 0) {
            *peer = crl_group_rank(&a->base.group, member);
        }
        all = all && served;
    }
    a->base.in_flight = !all;
    *done = all;
    return CRL_STATUS_OK;
}

const crl_allreduce_algorithm crl_allreduce_tree = {
    .name = "tree",
    .help = "lane tree: the same bits for any width",
    .canonical = true,
    .scratch_bytes = tree_scratch_bytes,
    .create = tree_create,
    .destroy = tree_destroy,
    .start = tree_start,
    .progress = tree_progress,
};
