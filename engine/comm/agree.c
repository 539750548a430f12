/* SPDX-License-Identifier: Apache-2.0 */
/* The state machine of agree.h: GATHER, UP, DOWN, HAND_ON; member 0 has no parent, so it goes from
 * GATHER to HAND_ON at once. */
#include "engine/comm/agree.h"

#include <string.h>

#include "engine/base/alloc.h"
#include "engine/comm/collective_internal.h"
#include "engine/comm/comm_internal.h"

crl_status crl_agree_init(crl_agree *a, const crl_group *group, int channel, int64_t count) {
    *a = (crl_agree){.group = *group, .channel = channel, .count = count};
    crl_status status = CRL_STATUS_OK;
    CRL_TRY_OUT(crl_alloc(&a->data, (size_t)count, sizeof *a->data));
    CRL_TRY_OUT(crl_alloc(&a->partial, (size_t)count, sizeof *a->partial));
    return CRL_STATUS_OK;
out:
    crl_agree_fini(a);
    return status;
}

void crl_agree_fini(crl_agree *a) {
    if (a->phase != CRL_AGREE_REST) {
        crl_comm_abort(a->group.comm);
    }
    crl_free(a->data);
    crl_free(a->partial);
    *a = (crl_agree){0};
}

/* Is member me + bit below this one? Those are me + 1, me + 2, me + 4 ... below its lowest bit. */
static bool has_child(const crl_agree *a, int bit) {
    return (a->group.me & (2 * bit - 1)) == 0 && a->group.me + bit < a->group.size;
}

/* Its index in hand_on. */
static int child_index(int bit) {
    return __builtin_ctz((unsigned)bit);
}

static size_t bytes_of(const crl_agree *a) {
    return (size_t)a->count * sizeof *a->data;
}

static crl_status post_recv(crl_agree *a, int member, double *data) {
    return crl_comm_recv(a->group.comm, crl_group_rank(&a->group, member),
                         crl_group_tag(&a->group, a->channel), data, bytes_of(a), &a->request);
}

static crl_status post_send(crl_agree *a, int member, crl_request *request) {
    return crl_comm_send(a->group.comm, crl_group_rank(&a->group, member),
                         crl_group_tag(&a->group, a->channel), a->data, bytes_of(a), request);
}

/* To all children at once: what comes down must not wait for one of them. */
static crl_status hand_on(crl_agree *a) {
    a->phase = CRL_AGREE_HAND_ON;
    a->bit = 1;
    for (int bit = 1; has_child(a, bit); bit *= 2) {
        CRL_TRY(post_send(a, a->group.me + bit, &a->hand_on[child_index(bit)]));
    }
    return CRL_STATUS_OK;
}

/* The next child's sum, or, after the last one, up to the parent. */
static crl_status gather_from(crl_agree *a, int bit) {
    a->bit = bit;
    if (has_child(a, bit)) {
        return post_recv(a, a->group.me + bit, a->partial);
    }
    if (a->group.me == 0) {
        return hand_on(a);
    }
    a->phase = CRL_AGREE_UP;
    return post_send(a, a->group.me & (a->group.me - 1), &a->request);
}

/* What follows once the message of this phase is through. */
static crl_status go_on(crl_agree *a) {
    switch (a->phase) {
    case CRL_AGREE_GATHER:
        for (int64_t i = 0; i < a->count; i++) {
            a->data[i] += a->partial[i];
        }
        return gather_from(a, a->bit * 2);
    case CRL_AGREE_UP:
        a->phase = CRL_AGREE_DOWN;
        return post_recv(a, a->group.me & (a->group.me - 1), a->data);
    case CRL_AGREE_DOWN:
        return hand_on(a);
    default:
        a->bit *= 2;
        a->phase = has_child(a, a->bit) ? CRL_AGREE_HAND_ON : CRL_AGREE_REST;
        return CRL_STATUS_OK;
    }
}

static crl_request *current(crl_agree *a) {
    return a->phase == CRL_AGREE_HAND_ON ? &a->hand_on[child_index(a->bit)] : &a->request;
}

crl_status crl_agree_start(crl_agree *a) {
    if (a->phase != CRL_AGREE_REST) {
        return CRL_FAIL(INVALID, "agreement: started while in flight");
    }
    a->phase = CRL_AGREE_GATHER;
    return gather_from(a, 1);
}

crl_status crl_agree_progress(crl_agree *a, bool *done) {
    bool through = true;
    while (a->phase != CRL_AGREE_REST && through) {
        CRL_TRY(crl_comm_test(a->group.comm, current(a), &through));
        if (through) {
            CRL_TRY(go_on(a));
        }
    }
    *done = a->phase == CRL_AGREE_REST;
    return CRL_STATUS_OK;
}

typedef struct agree_wait {
    crl_agree *agree;
    crl_progress_fn progress;
    void *argument;
} agree_wait;

static crl_status poll_agree(void *argument, crl_poll_result *result) {
    const agree_wait *wait = argument;
    const crl_agree_phase phase = wait->agree->phase;
    const int bit = wait->agree->bit;
    CRL_TRY(crl_agree_progress(wait->agree, &result->done));
    if (result->done) {
        return CRL_STATUS_OK;
    }
    const crl_request *request = current(wait->agree);
    result->peer = request->peer;
    result->receiving = request->receiving;
    result->moved = phase != wait->agree->phase || bit != wait->agree->bit;
    return wait->progress ? wait->progress(wait->argument) : CRL_STATUS_OK;
}

crl_status crl_agree_wait(crl_agree *a, const char *what, crl_progress_fn progress,
                          void *argument) {
    agree_wait wait = {a, progress, argument};
    CRL_TRY(crl_comm_wait_poll(a->group.comm, what, poll_agree, &wait));
    return CRL_STATUS_OK;
}

crl_status crl_agree_sum(const crl_group *group, int channel, double *data, int64_t count,
                         const char *what) {
    crl_status status = CRL_STATUS_OK;
    crl_agree a = {0};
    CRL_TRY_OUT(crl_agree_init(&a, group, channel, count));
    memcpy(a.data, data, bytes_of(&a));
    CRL_TRY_OUT(crl_agree_start(&a));
    CRL_TRY_OUT(crl_agree_wait(&a, what, NULL, NULL));
    memcpy(data, a.data, bytes_of(&a));
out:
    crl_agree_fini(&a);
    return status;
}
