/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Segmented ring all-reduce [patarasuk09]: chunks travel once around adding up, once around
 * spreading.
 *
 *   W = 3, what each member sends to its right neighbour (chunk, members summed so far):
 *     step      member 0     member 1     member 2
 *     0 reduce  0 (0)        1 (1)        2 (2)
 *     1 reduce  2 (20)       0 (01)       1 (12)
 *     2 gather  1 (120)      2 (201)      0 (012)     complete
 *     3 gather  0            1            2
 *
 * Each chunk is cut into G segments; what leaves in step s is what came in step s-1, segment by
 * segment, so that receiving, adding and sending overlap. Messages to the right are items 0, 1, ...
 * (step · G + segment) in order; a few are in flight each way. Not canonical: a chunk's sum begins
 * with its own member.
 *
 * cost: W members, n elements (a multiple of 16 W G), per member:
 *   messages 2(W-1)G · sent elements 2(W-1)/W n · scratch 4 segments
 */
#include "engine/base/alloc.h"
#include "engine/comm/collective_internal.h"

enum { WINDOW = 4, SEGMENT_BYTES = 1 << 20 };

struct crl_allreduce {
    crl_allreduce_base base; /* scratch: (WINDOW, segment) */
    int64_t segment;         /* elements */

    float *data;
    int segments;                        /* G */
    int items;                           /* 2(W-1)G */
    int posted, received, sending, sent; /* items */
    crl_request receive[WINDOW], send[WINDOW];
};

/* A piece of the elements. */
typedef struct span {
    int64_t begin, length;
} span;

/* What item `item` of this member's left (received) or right (sent) neighbour is about. */
static span span_of(const crl_allreduce *a, int item, bool receiving) {
    const int size = a->base.group.size;
    const int step = item / a->segments, segment = item % a->segments;
    const int chunk = (a->base.group.me - step - (receiving ? 1 : 0) + 2 * size) % size;
    const int64_t begin = crl_chunk_begin(a->base.count, size, chunk);
    const int64_t length = crl_chunk_begin(a->base.count, size, chunk + 1) - begin;
    const int64_t from = crl_chunk_begin(length, a->segments, segment);
    return (span){begin + from, crl_chunk_begin(length, a->segments, segment + 1) - from};
}

static bool is_reduce(const crl_allreduce *a, int item) {
    return item < a->items / 2;
}

static void ring_destroy(crl_allreduce *a) {
    if (a == NULL) {
        return;
    }
    crl_allreduce_base_fini(&a->base);
    crl_free(a);
}

static int64_t segment_of(const crl_allreduce_config *config) {
    const int64_t bytes = config->segment_bytes > 0 ? config->segment_bytes : SEGMENT_BYTES;
    const int64_t most = crl_chunk_most(config->max_count, config->group->size);
    const int64_t segment = crl_chunk_most(bytes / (int64_t)sizeof(float), 1);
    const int64_t useful = segment < most ? segment : most;
    return useful > 0 ? useful : CRL_CHUNK_ALIGN;
}

static size_t ring_scratch_bytes(const crl_allreduce_config *config) {
    return (size_t)(WINDOW * segment_of(config)) * sizeof(float);
}

static crl_status ring_create(crl_allreduce **out, const crl_allreduce_config *config) {
    crl_allreduce *a = NULL;
    crl_status status;
    CRL_TRY_OUT(crl_alloc(&a, 1, sizeof *a));
    CRL_TRY_OUT(crl_allreduce_base_init(&a->base, config, ring_scratch_bytes));
    const int64_t most = crl_chunk_most(config->max_count, a->base.group.size);
    a->segment = segment_of(config);
    if (most / a->segment > INT32_MAX / 4 / a->base.group.size) {
        CRL_TRY_OUT(CRL_FAIL(INVALID,
                             "ring all-reduce: %lld elements in segments of %lld are too "
                             "many messages",
                             (long long)config->max_count, (long long)a->segment));
    }
    *out = a;
    a = NULL;
out:
    ring_destroy(a);
    return status;
}

static crl_status ring_start(crl_allreduce *a, crl_lane_node *node, int nodes, float *result,
                             int64_t count) {
    CRL_TRY(crl_allreduce_begin(&a->base, node, nodes, result, count));
    CRL_TRY(crl_allreduce_join(&a->data, &a->base.config, node, nodes, result, count));
    const int64_t most = crl_chunk_most(count, a->base.group.size);
    a->segments = (int)((most + a->segment - 1) / a->segment);
    a->items = count > 0 ? 2 * (a->base.group.size - 1) * a->segments : 0;
    a->posted = a->received = a->sending = a->sent = 0;
    bool done;
    int peer;
    CRL_TRY(crl_allreduce_ring.progress(a, &done, &peer));
    return CRL_STATUS_OK;
}

static crl_status post_receives(crl_allreduce *a) {
    const int left = (a->base.group.me - 1 + a->base.group.size) % a->base.group.size;
    for (; a->posted < a->items && a->posted - a->received < WINDOW; a->posted++) {
        const int item = a->posted;
        const span at = span_of(a, item, true);
        const int slot = item % WINDOW;
        float *to = a->base.scratch + slot * a->segment;
        if (!is_reduce(a, item)) {
            if (a->sent <= item - a->items / 2) {
                break; /* what is still being sent from there must not be overwritten */
            }
            to = a->data + at.begin;
        }
        CRL_TRY(crl_group_recv(&a->base.group, left, crl_allreduce_tag(&a->base), to, at.length,
                               &a->receive[slot]));
    }
    return CRL_STATUS_OK;
}

static crl_status take_receives(crl_allreduce *a) {
    for (; a->received < a->posted; a->received++) {
        const int slot = a->received % WINDOW;
        bool done;
        CRL_TRY(crl_comm_test(a->base.group.comm, &a->receive[slot], &done));
        if (!done) {
            break;
        }
        const span at = span_of(a, a->received, true);
        if (is_reduce(a, a->received) && at.length > 0) {
            CRL_TRY(a->base.config.reduce->add(a->base.config.stream, a->data + at.begin,
                                               a->base.scratch + slot * a->segment, at.length));
        }
    }
    return CRL_STATUS_OK;
}

static crl_status move_sends(crl_allreduce *a) {
    const int right = (a->base.group.me + 1) % a->base.group.size;
    for (; a->sent < a->sending; a->sent++) {
        bool done;
        CRL_TRY(crl_comm_test(a->base.group.comm, &a->send[a->sent % WINDOW], &done));
        if (!done) {
            break;
        }
    }
    for (; a->sending < a->items && a->sending - a->sent < WINDOW; a->sending++) {
        const int item = a->sending;
        if (item >= a->segments && a->received <= item - a->segments) {
            break;
        }
        const span at = span_of(a, item, false);
        CRL_TRY(crl_group_send(&a->base.group, right, crl_allreduce_tag(&a->base),
                               a->data + at.begin, at.length, &a->send[item % WINDOW]));
    }
    return CRL_STATUS_OK;
}

static crl_status ring_progress(crl_allreduce *a, bool *done, int *peer) {
    if (!a->base.in_flight) {
        *done = true;
        return CRL_STATUS_OK;
    }
    /* Goes on as long as something moves: one call may carry several segments through. */
    int before;
    do {
        before = a->received + a->sent + a->posted + a->sending;
        CRL_TRY(post_receives(a));
        CRL_TRY(take_receives(a));
        CRL_TRY(move_sends(a));
    } while (before != a->received + a->sent + a->posted + a->sending);
    const int size = a->base.group.size;
    *peer =
        crl_group_rank(&a->base.group, a->received < a->items ? (a->base.group.me - 1 + size) % size
                                                              : (a->base.group.me + 1) % size);
    *done = a->received == a->items && a->sent == a->items;
    a->base.in_flight = !*done;
    return CRL_STATUS_OK;
}

const crl_allreduce_algorithm crl_allreduce_ring = {
    .name = "ring",
    .help = "segmented ring: least traffic per link, bits depend on the width",
    .canonical = false,
    .scratch_bytes = ring_scratch_bytes,
    .create = ring_create,
    .destroy = ring_destroy,
    .start = ring_start,
    .progress = ring_progress,
};
