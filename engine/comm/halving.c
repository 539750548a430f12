/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Recursive halving-doubling all-reduce [thakur05], nearest neighbours first.
 *
 *   W = 4:       member 0     1     2     3      what is kept after the step
 *     halve  1   0 <-> 1      2 <-> 3            one half, summed over two
 *     halve  2   0 <-> 2      1 <-> 3            one quarter, summed over four
 *     double 2   0 <-> 2      1 <-> 3            one half, complete
 *     double 1   0 <-> 1      2 <-> 3            everything
 *
 * With W a power of two and the lanes dealt out in equal aligned parts, what is added to what is
 * the canonical tree: (0 + 1) + (2 + 3), and a + b has the bits of b + a. Other sizes fold the
 * first 2r members, r = W - P for P the power of two below W, into pairs before and unfold them
 * after; they are right, but not canonical.
 *
 * cost: W = P, n elements (a multiple of 16 W), per member:
 *   messages 2 log2 W · sent elements 2(W-1)/W n · scratch n/2 (other sizes: n)
 *   other sizes: the first 2r members one message and n elements more, odd ones nothing else
 */
#include "engine/base/alloc.h"
#include "engine/comm/collective_internal.h"

enum { MAX_LEVELS = 31 };

/* One exchange with one member. */
typedef struct exchange {
    int peer;
    bool sends, receives, adds; /* adds: what comes goes to the scratch and is added */
    int64_t send_begin, send_length;
    int64_t receive_begin, receive_length;
} exchange;

struct crl_allreduce {
    crl_allreduce_base base;
    int extra;  /* r */
    int levels; /* log2 P */

    float *data;
    int64_t low[MAX_LEVELS + 1], high[MAX_LEVELS + 1]; /* what is kept before each level */
    int step, steps;
    exchange now;
    crl_request send, receive;
};

/* Members of the power of two: number v is member_of(v). */
static int member_of(const crl_allreduce *a, int v) {
    return v < a->extra ? 2 * v : v + a->extra;
}

static bool is_paired(const crl_allreduce *a) {
    return a->base.group.me < 2 * a->extra;
}

static bool is_folded(const crl_allreduce *a) {
    return is_paired(a) && a->base.group.me % 2 == 1;
}

static void halving_destroy(crl_allreduce *a) {
    if (a == NULL) {
        return;
    }
    crl_allreduce_base_fini(&a->base);
    crl_free(a);
}

static size_t halving_scratch_bytes(const crl_allreduce_config *config) {
    const int size = config->group->size;
    if (size == 1) {
        return 0;
    }
    const bool power_of_two = (size & (size - 1)) == 0;
    const int64_t most = power_of_two ? crl_chunk_most(config->max_count, 2) : config->max_count;
    return (size_t)most * sizeof(float);
}

static crl_status halving_create(crl_allreduce **out, const crl_allreduce_config *config) {
    crl_allreduce *a = NULL;
    crl_status status;
    CRL_TRY_OUT(crl_alloc(&a, 1, sizeof *a));
    CRL_TRY_OUT(crl_allreduce_base_init(&a->base, config, halving_scratch_bytes));
    while (2 << a->levels <= a->base.group.size) {
        a->levels++;
    }
    a->extra = a->base.group.size - (1 << a->levels);
    *out = a;
    a = NULL;
out:
    halving_destroy(a);
    return status;
}

/* The members of the power of two halve what they keep, level by level. */
static void lay_out_levels(crl_allreduce *a, int number) {
    a->low[0] = 0;
    a->high[0] = a->base.count;
    for (int level = 0; level < a->levels; level++) {
        const int64_t low = a->low[level], high = a->high[level];
        const int64_t middle = low + crl_chunk_begin(high - low, 2, 1);
        const bool upper = (number >> level & 1) != 0;
        a->low[level + 1] = upper ? middle : low;
        a->high[level + 1] = upper ? high : middle;
    }
}

static int number_of(const crl_allreduce *a) {
    return is_paired(a) ? a->base.group.me / 2 : a->base.group.me - a->extra;
}

/* The half of level `level` that this member does not keep. */
static void other_half(const crl_allreduce *a, int level, int64_t *begin, int64_t *length) {
    const bool upper = (number_of(a) >> level & 1) != 0;
    *begin = upper ? a->low[level] : a->high[level + 1];
    *length = (upper ? a->low[level + 1] : a->high[level]) - *begin;
}

static exchange fold_step(const crl_allreduce *a, bool before) {
    const bool sends = is_folded(a) == before;
    return (exchange){
        .peer = a->base.group.me ^ 1,
        .sends = sends,
        .receives = !sends,
        .adds = before,
        .send_length = a->base.count,
        .receive_length = a->base.count,
    };
}

static exchange level_step(const crl_allreduce *a, int level, bool halving) {
    exchange step = {
        .peer = member_of(a, number_of(a) ^ 1 << level),
        .sends = true,
        .receives = true,
        .adds = halving,
    };
    int64_t *const other_begin = halving ? &step.send_begin : &step.receive_begin;
    int64_t *const other_length = halving ? &step.send_length : &step.receive_length;
    int64_t *const own_begin = halving ? &step.receive_begin : &step.send_begin;
    int64_t *const own_length = halving ? &step.receive_length : &step.send_length;
    other_half(a, level, other_begin, other_length);
    *own_begin = a->low[level + 1];
    *own_length = a->high[level + 1] - a->low[level + 1];
    return step;
}

/* Steps: [fold] halve 0.. levels-1, double levels-1..0 [unfold]; a folded member: fold, unfold. */
static exchange plan_step(const crl_allreduce *a) {
    if (is_paired(a) && (a->step == 0 || a->step == a->steps - 1)) {
        return fold_step(a, a->step == 0);
    }
    const int at = a->step - (is_paired(a) ? 1 : 0);
    return at < a->levels ? level_step(a, at, true) : level_step(a, 2 * a->levels - 1 - at, false);
}

static crl_status begin_step(crl_allreduce *a) {
    a->now = plan_step(a);
    const exchange *now = &a->now;
    if (now->receives) {
        float *to = now->adds ? a->base.scratch : a->data + now->receive_begin;
        CRL_TRY(crl_group_recv(&a->base.group, now->peer, crl_allreduce_tag(&a->base), to,
                               now->receive_length, &a->receive));
    }
    if (now->sends) {
        CRL_TRY(crl_group_send(&a->base.group, now->peer, crl_allreduce_tag(&a->base),
                               a->data + now->send_begin, now->send_length, &a->send));
    }
    return CRL_STATUS_OK;
}

static crl_status halving_start(crl_allreduce *a, crl_lane_node *node, int nodes, float *result,
                                int64_t count) {
    CRL_TRY(crl_allreduce_begin(&a->base, node, nodes, result, count));
    CRL_TRY(crl_allreduce_join(&a->data, &a->base.config, node, nodes, result, count));
    a->step = 0;
    a->steps = (is_folded(a) ? 0 : 2 * a->levels) + (is_paired(a) ? 2 : 0);
    a->steps = count > 0 ? a->steps : 0;
    if (!is_folded(a)) {
        lay_out_levels(a, number_of(a));
    }
    if (a->steps > 0) {
        CRL_TRY(begin_step(a));
    }
    return CRL_STATUS_OK;
}

static crl_status end_step(crl_allreduce *a) {
    const exchange *now = &a->now;
    if (now->receives && now->adds && now->receive_length > 0) {
        CRL_TRY(a->base.config.reduce->add(a->base.config.stream, a->data + now->receive_begin,
                                           a->base.scratch, now->receive_length));
    }
    a->step++;
    if (a->step < a->steps) {
        CRL_TRY(begin_step(a));
    }
    return CRL_STATUS_OK;
}

static crl_status halving_progress(crl_allreduce *a, bool *done, int *peer) {
    if (!a->base.in_flight) {
        *done = true;
        return CRL_STATUS_OK;
    }
    while (a->step < a->steps) {
        bool received, sent;
        CRL_TRY(crl_comm_test(a->base.group.comm, &a->receive, &received));
        CRL_TRY(crl_comm_test(a->base.group.comm, &a->send, &sent));
        if (!received || !sent) {
            *peer = crl_group_rank(&a->base.group, a->now.peer);
            *done = false;
            return CRL_STATUS_OK;
        }
        CRL_TRY(end_step(a));
    }
    a->base.in_flight = false;
    *done = true;
    return CRL_STATUS_OK;
}

const crl_allreduce_algorithm crl_allreduce_halving = {
    .name = "halving",
    .help = "recursive halving-doubling: fewest messages; the tree's bits for powers of two",
    .canonical = false,
    .scratch_bytes = halving_scratch_bytes,
    .create = halving_create,
    .destroy = halving_destroy,
    .start = halving_start,
    .progress = halving_progress,
};
