/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The small collectives, which block. Sums are in member order, so that all members get the same
 * bits. Refuses cleverness: big sums are the business of the all-reduce algorithms.
 *
 * Cost per member, W members:
 *   barrier         ceil(log2 W) messages
 *   broadcast       at most ceil(log2 W) messages (binomial tree)
 *   all-gather      W-1 messages, (W-1) bytes (ring)
 *   reduce-scatter  W-1 messages, (W-1) count elements (direct)
 */
#include "engine/comm/collective.h"

#include "engine/base/alloc.h"
#include "engine/comm/collective_internal.h"
#include "engine/comm/comm_internal.h"

static const int blocking = -1; /* channel of crl_group_tag */

crl_status crl_group_send(const crl_group *group, int member, int tag, const float *data,
                          int64_t count, crl_request *request) {
    CRL_TRY(crl_comm_send(group->comm, crl_group_rank(group, member), tag, data,
                          (size_t)count * sizeof *data, request));
    return CRL_STATUS_OK;
}

crl_status crl_group_recv(const crl_group *group, int member, int tag, float *data, int64_t count,
                          crl_request *request) {
    CRL_TRY(crl_comm_recv(group->comm, crl_group_rank(group, member), tag, data,
                          (size_t)count * sizeof *data, request));
    return CRL_STATUS_OK;
}

typedef struct exchange {
    int to, from; /* members */
    const void *out;
    void *in;
    size_t bytes;
} exchange;

static crl_status exchange_wait(const crl_group *group, const exchange *step, const char *what) {
    crl_comm *comm = group->comm;
    const int tag = crl_group_tag(group, blocking);
    crl_request request = {0};
    CRL_TRY(crl_comm_send(comm, crl_group_rank(group, step->to), tag, step->out, step->bytes,
                          &request));
    CRL_TRY(crl_comm_recv_wait(comm, crl_group_rank(group, step->from), tag, step->in, step->bytes,
                               what));
    CRL_TRY(crl_comm_wait(comm, &request, what, NULL, NULL));
    return CRL_STATUS_OK;
}

/* After round k everybody has heard, through others, of the 2^(k+1) - 1 members before it. */
crl_status crl_barrier(const crl_group *group) {
    const int size = group->size;
    for (int distance = 1; distance < size; distance *= 2) {
        const exchange step = {.to = (group->me + distance) % size,
                               .from = (group->me - distance + size) % size};
        CRL_TRY(exchange_wait(group, &step, "barrier"));
    }
    return CRL_STATUS_OK;
}

/* Numbered from the root: member v gets the data from v without its lowest bit. */
crl_status crl_broadcast(const crl_group *group, int root, void *data, size_t bytes) {
    const int size = group->size;
    if (root < 0 || root >= size) {
        return CRL_FAIL(INVALID, "broadcast: root is member %d, expected 0 to %d", root, size - 1);
    }
    const int me = (group->me - root + size) % size;
    const int tag = crl_group_tag(group, blocking);
    int bit = 1;
    while (bit < size && (me & bit) == 0) {
        bit *= 2;
    }
    if (me != 0) {
        const int from = crl_group_rank(group, (me - bit + root) % size);
        CRL_TRY(crl_comm_recv_wait(group->comm, from, tag, data, bytes, "broadcast"));
    }
    crl_request request[32] = {0};
    int sent = 0;
    for (bit /= 2; bit > 0; bit /= 2) {
        if (me + bit < size) {
            const int to = crl_group_rank(group, (me + bit + root) % size);
            CRL_TRY(crl_comm_send(group->comm, to, tag, data, bytes, &request[sent++]));
        }
    }
    for (int i = 0; i < sent; i++) {
        CRL_TRY(crl_comm_wait(group->comm, &request[i], "broadcast", NULL, NULL));
    }
    return CRL_STATUS_OK;
}

crl_status crl_all_gather(const crl_group *group, void *data, size_t bytes) {
    crl_comm *comm = group->comm;
    if (comm->kind && comm->kind->all_gather) {
        return crl_comm_end_job(comm, comm->kind->all_gather(comm->wire, group, data, bytes));
    }
    const int size = group->size;
    char *block = data;
    for (int s = 0; s < size - 1; s++) {
        const int mine = (group->me - s + size) % size;
        const int next = (group->me - s - 1 + size) % size;
        const exchange step = {.to = (group->me + 1) % size,
                               .from = (group->me - 1 + size) % size,
                               .out = block + (size_t)mine * bytes,
                               .in = block + (size_t)next * bytes,
                               .bytes = bytes};
        CRL_TRY(exchange_wait(group, &step, "all-gather"));
    }
    return CRL_STATUS_OK;
}

static crl_status add_block(const crl_comm *comm, float *sum, const float *x, int64_t count) {
    if (comm->device && !crl_device_is_host(comm->device)) {
        return comm->reduce->add(comm->stream, sum, x, count);
    }
    for (int64_t i = 0; i < count; i++) {
        sum[i] += x[i];
    }
    return CRL_STATUS_OK;
}

crl_status crl_group_sum_blocks(const crl_group *group, float *data, int64_t count,
                                float *scratch) {
    const crl_comm *comm = group->comm;
    const size_t bytes = (size_t)count * sizeof *data;
    float *sum = data + group->me * count;
    CRL_TRY(crl_comm_copy(comm, scratch + group->me * count, sum, bytes));
    CRL_TRY(crl_comm_copy(comm, sum, scratch, bytes));
    for (int member = 1; member < group->size; member++) {
        CRL_TRY(add_block(comm, sum, scratch + member * count, count));
    }
    return CRL_STATUS_OK;
}

crl_status crl_reduce_scatter(const crl_group *group, float *data, int64_t count, float *scratch) {
    const int size = group->size, me = group->me;
    crl_comm *comm = group->comm;
    if (comm->kind && comm->kind->reduce_scatter) {
        return crl_comm_end_job(
            comm, comm->kind->reduce_scatter(comm->wire, group, data, count, scratch));
    }
    size_t bytes;
    CRL_TRY(crl_size_mul(&bytes, (size_t)count, sizeof *data, "reduce-scatter"));
    for (int s = 1; s < size; s++) {
        const int to = (me + s) % size, from = (me - s + size) % size;
        const exchange step = {.to = to,
                               .from = from,
                               .out = data + to * count,
                               .in = scratch + from * count,
                               .bytes = bytes};
        CRL_TRY(exchange_wait(group, &step, "reduce-scatter"));
    }
    return count > 0 ? crl_group_sum_blocks(group, data, count, scratch) : CRL_STATUS_OK;
}
