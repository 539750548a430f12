/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Timing messages between the first two ranks of a group, on the clock of rank 0:
 *
 *     ping-pong, small and large      there and back, both wait and are there at once:
 *                                     the difference is the bytes' own time
 *     ping-pong after a pause         rank 1 has waited so long that it has to be woken, as a stage
 *                                     that runs out of work does: the latency
 *     to a receive that is posted     what ranks themselves spend on a message, half on each side
 */
#include "engine/base/alloc.h"
#include "engine/base/thread.h"
#include "engine/run/measure_internal.h"

#include <stdlib.h>
#include <string.h>

enum { SMALL_BYTES = 64, ROUNDS = 31, PAUSE_NS = 300000, TAG = CRL_TAG_USER };

/* Buffers are taken in turn, so many of them: those of training are not in a cache either. */
static int buffers_of(size_t bytes) {
    enum { MOST = 16, ALL_BYTES = 32 << 20 };
    const size_t fit = ALL_BYTES / bytes;
    return fit < 1 ? 1 : fit < MOST ? (int)fit : MOST;
}

static int ascending(const void *left, const void *right) {
    const double a = *(const double *)left, b = *(const double *)right;
    return (a > b) - (a < b);
}

double crl_measure_median(double *value, int count) {
    qsort(value, (size_t)count, sizeof *value, ascending);
    return value[count / 2];
}

/* Does nothing, without giving the core away. */
static void stay_busy(int64_t ns) {
    const int64_t end = crl_clock_ns() + ns;
    while (crl_clock_ns() < end) {
    }
}

static int rank_of(const crl_group *group, int member) {
    return group->member ? group->member[member] : member;
}

static char *buffer_of(char *data, size_t bytes, int round) {
    return data + bytes * (size_t)(round % buffers_of(bytes));
}

/* Half of the time there and back. Rank 0 stays away for `pause_ns` before each. */
static crl_status ping_pong(const crl_group *group, char *data, size_t bytes, int64_t pause_ns,
                            double *out_s) {
    const int peer = rank_of(group, 1 - group->me);
    double time[ROUNDS];
    for (int r = 0; r < ROUNDS; r++) {
        char *at = buffer_of(data, bytes, r);
        if (group->me == 0) {
            memset(at, r, bytes); /* as if it had just been computed */
            stay_busy(pause_ns);
            const int64_t begin_ns = crl_clock_ns();
            CRL_TRY(crl_comm_send_wait(group->comm, peer, TAG, at, bytes, "a measured message"));
            CRL_TRY(crl_comm_recv_wait(group->comm, peer, TAG, at, bytes, "a measured message"));
            time[r] = (double)(crl_clock_ns() - begin_ns) / 2e9;
        } else {
            CRL_TRY(crl_comm_recv_wait(group->comm, peer, TAG, at, bytes, "a measured message"));
            CRL_TRY(crl_comm_send_wait(group->comm, peer, TAG, at, bytes, "a measured message"));
        }
    }
    *out_s = group->me == 0 ? crl_measure_median(time, ROUNDS) : 0;
    return CRL_STATUS_OK;
}

/* What the sender spends on a message whose receive is posted already. */
static crl_status posted(const crl_group *group, char *data, size_t bytes, double *out_s) {
    const int peer = rank_of(group, 1 - group->me);
    double time[ROUNDS];
    char token = 0;
    for (int r = 0; r < ROUNDS; r++) {
        crl_request request = {0};
        char *at = buffer_of(data, bytes, r);
        if (group->me == 1) {
            CRL_TRY(crl_comm_recv(group->comm, peer, TAG, at, bytes, &request));
            CRL_TRY(crl_comm_send_wait(group->comm, peer, TAG + 1, &token, 1, "a token"));
            CRL_TRY(crl_comm_wait(group->comm, &request, "a measured message", NULL, NULL));
        } else {
            CRL_TRY(crl_comm_recv_wait(group->comm, peer, TAG + 1, &token, 1, "a token"));
            memset(at, r, bytes);
            const int64_t begin_ns = crl_clock_ns();
            CRL_TRY(crl_comm_send_wait(group->comm, peer, TAG, at, bytes, "a measured message"));
            time[r] = (double)(crl_clock_ns() - begin_ns) * 1e-9;
        }
    }
    *out_s = group->me == 0 ? crl_measure_median(time, ROUNDS) : 0;
    return CRL_STATUS_OK;
}

static crl_status measure_pair(crl_measured_link *out, const crl_group *group, char *data,
                               size_t bytes) {
    double small_s = 0, large_s = 0, woken_s = 0, own_s = 0;
    CRL_TRY(ping_pong(group, data, SMALL_BYTES, 0, &small_s));
    CRL_TRY(ping_pong(group, data, bytes, 0, &large_s));
    CRL_TRY(ping_pong(group, data, SMALL_BYTES, PAUSE_NS, &woken_s));
    CRL_TRY(posted(group, data, bytes, &own_s));
    const double extra_s = large_s - small_s;
    *out = (crl_measured_link){
        .link = {.latency_s = 2 * woken_s > small_s ? 2 * woken_s - small_s : small_s,
                 .bytes_per_s = extra_s > 0 ? (double)(bytes - SMALL_BYTES) / extra_s : 0},
        .message_s = own_s / 2};
    return CRL_STATUS_OK;
}

crl_status crl_measure_link(crl_measured_link *out, const crl_group *group, size_t bytes) {
    crl_status status = CRL_STATUS_OK;
    crl_measured_link link = {0};
    char *data = NULL;
    bytes = bytes > 2 * SMALL_BYTES ? bytes : 2 * SMALL_BYTES;
    if (group->size > 1) {
        CRL_TRY_OUT(crl_alloc(&data, bytes, (size_t)buffers_of(bytes)));
        CRL_TRY_OUT(crl_barrier(group));
        if (group->me < 2) {
            CRL_TRY_OUT(measure_pair(&link, group, data, bytes));
        }
        CRL_TRY_OUT(crl_broadcast(group, 0, &link, sizeof link));
    }
    *out = link;
out:
    if (status && data) {
        crl_comm_abort(group->comm); /* nobody may write into it any more */
    }
    crl_free(data);
    return status;
}
