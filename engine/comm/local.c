/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Ranks as threads of one process.
 *
 *   sender A                     mailbox of B, from A             receiver B
 *   send(tag 7) --not expected--> sends    [7]->[9]
 *                                 receives [5]          <--not there yet-- recv(tag 5)
 *
 * A send and its receive meet in the receiver's mailbox, one pair of queues per sender. Whoever
 * comes second takes the other out of its queue and copies from buffer to buffer: one memcpy,
 * outside the lock. So every send is a rendezvous. A rank with nothing to do sleeps on its
 * condition until there is news. Where each rank may have a core it spins first, for about as long
 * as going to sleep and waking up take.
 *
 * Request slots come from blocks that a rank keeps: none are allocated once enough exist. When the
 * job is over each rank withdraws its requests before its failing call returns, waiting for a
 * copy that is under way, so that its buffers may be freed. A rank that never calls in again keeps
 * launch from returning: a thread cannot be ended from outside.
 */
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <string.h>
#include <time.h>

#include "engine/base/alloc.h"
#include "engine/base/thread.h"
#include "engine/comm/local_internal.h"
#include "engine/comm/transport.h"

enum {
    MOST_RANKS = 1024, /* a rank has queues for every other one */
    BLOCK_OPS = 64,
    SPIN_NS = 30000, /* waking a thread costs 50 us */
    ROLL_CALL_STEP_NS = 1000000
};

typedef struct op_block {
    struct op_block *next;
    crl_local_op ops[BLOCK_OPS];
} op_block;

typedef struct job job;

struct crl_endpoint {
    job *job;
    int rank;
    crl_local_op *free;       /* own thread only */
    op_block *blocks;         /* own thread only */
    bool withdrawn;           /* own thread only */
    _Atomic int64_t answered; /* number of the last roll call this rank has answered */
    _Atomic bool news;

    pthread_mutex_t lock; /* of what follows */
    pthread_cond_t wake;
    crl_local_queue *sends, *receives; /* (ranks) by sender */
    crl_wait_note note;
};

struct job {
    crl_endpoint *endpoint; /* (ranks) */
    crl_local_queue *queues;
    int ranks, made; /* made: endpoints that are there */
    bool spin;
    _Atomic int64_t roll; /* number of the last roll call */
    _Atomic bool over;    /* after it is set, error is constant */
    pthread_mutex_t lock;
    crl_error error;
    void *common; /* under the lock; NULL: nobody has asked */
    void (*common_fini)(void *memory);
};

typedef struct rank_start {
    crl_rank_fn run;
    void *argument;
    crl_endpoint *endpoint;
    crl_thread *thread;
} rank_start;

static void wake(crl_endpoint *endpoint) {
    pthread_mutex_lock(&endpoint->lock);
    atomic_store(&endpoint->news, true);
    pthread_cond_signal(&endpoint->wake);
    pthread_mutex_unlock(&endpoint->lock);
}

static crl_local_queue *queue_of(crl_endpoint *mailbox, int sender, bool receiving) {
    return receiving ? &mailbox->receives[sender] : &mailbox->sends[sender];
}

static crl_endpoint *mailbox_of(crl_endpoint *me, int peer, bool receiving) {
    return receiving ? me : &me->job->endpoint[peer];
}

/* After this no other rank touches the memory of this one's requests. */
static void withdraw(crl_endpoint *me) {
    if (me->withdrawn) {
        return;
    }
    me->withdrawn = true;
    for (op_block *block = me->blocks; block != NULL; block = block->next) {
        for (int i = 0; i < BLOCK_OPS; i++) {
            crl_local_op *item = &block->ops[i];
            if (!atomic_load(&item->open)) {
                continue;
            }
            crl_endpoint *mailbox = mailbox_of(me, item->peer, item->receiving);
            const int sender = item->receiving ? item->peer : me->rank;
            pthread_mutex_lock(&mailbox->lock);
            if (item->queued) {
                crl_local_queue_take(queue_of(mailbox, sender, item->receiving), item->tag, item);
                atomic_store(&item->open, false);
            }
            pthread_mutex_unlock(&mailbox->lock);
            while (atomic_load(&item->open)) { /* a peer is copying */
                sched_yield();
            }
        }
    }
}

/* Writes the record of the first failure and wakes everybody. */
static void declare_over(job *job, const crl_error *error) {
    pthread_mutex_lock(&job->lock);
    if (!atomic_load(&job->over)) {
        job->error = *error;
        atomic_store(&job->over, true);
    }
    pthread_mutex_unlock(&job->lock);
    for (int rank = 0; rank < job->ranks; rank++) {
        wake(&job->endpoint[rank]);
    }
}

static void local_abort(crl_endpoint *me, const crl_error *error) {
    declare_over(me->job, error);
    crl_error_set(&me->job->error); /* another rank may have been first */
    withdraw(me);
}

static crl_status fail(crl_endpoint *me, crl_status status) {
    local_abort(me, crl_error_get());
    return status;
}

/* What every call begins with: answers a roll call, notices the end of the job. */
static crl_status attend(crl_endpoint *me) {
    const int64_t roll = atomic_load(&me->job->roll);
    if (roll != atomic_load(&me->answered)) {
        atomic_store(&me->answered, roll);
    }
    if (atomic_load(&me->job->over)) {
        withdraw(me);
        crl_error_set(&me->job->error);
        return CRL_STATUS_ABORTED;
    }
    return CRL_STATUS_OK;
}

static crl_status add_block(crl_endpoint *me) {
    op_block *block = NULL;
    CRL_TRY(crl_alloc(&block, 1, sizeof *block));
    block->next = me->blocks;
    me->blocks = block;
    for (int i = BLOCK_OPS - 1; i >= 0; i--) {
        block->ops[i].next = me->free;
        me->free = &block->ops[i];
    }
    return CRL_STATUS_OK;
}

static crl_status local_reserve(crl_endpoint *me, int requests) {
    for (const crl_local_op *item = me->free; item != NULL; item = item->next) {
        requests--;
    }
    for (; requests > 0; requests -= BLOCK_OPS) {
        CRL_TRY(add_block(me));
    }
    return CRL_STATUS_OK;
}

static crl_status take_op(crl_endpoint *me, crl_local_op **out) {
    if (me->free == NULL) {
        CRL_TRY(add_block(me));
    }
    *out = me->free;
    me->free = me->free->next;
    return CRL_STATUS_OK;
}

static void put_op(crl_endpoint *me, crl_local_op *item) {
    item->next = me->free;
    me->free = item;
}

/* `mine` came second and found `partner`: copies, and tells the partner's rank. */
static crl_status meet(crl_endpoint *me, crl_local_op *mine, crl_local_op *partner) {
    crl_endpoint *peer = &me->job->endpoint[mine->peer];
    const crl_local_op *from = mine->receiving ? partner : mine;
    const crl_local_op *to = mine->receiving ? mine : partner;
    crl_status status = CRL_STATUS_OK;
    if (from->bytes != to->bytes) {
        status = CRL_FAIL(COMM,
                          "message from rank %d to rank %d, tag %d: sent %zu bytes, "
                          "the receive expects %zu",
                          to->peer, from->peer, mine->tag, from->bytes, to->bytes);
        declare_over(me->job, crl_error_get());
    } else if (from->bytes > 0) {
        memcpy(to->data, from->data, from->bytes);
    }
    atomic_store(&partner->open, false); /* from here on it is its owner's again */
    wake(peer);
    return status;
}

static crl_status post(crl_endpoint *me, const crl_local_op *wanted, crl_request *request) {
    CRL_TRY(attend(me));
    crl_local_op *mine = NULL;
    const crl_status status = take_op(me, &mine);
    if (status != CRL_STATUS_OK) {
        return fail(me, status);
    }
    mine->data = wanted->data;
    mine->bytes = wanted->bytes;
    mine->peer = wanted->peer;
    mine->tag = wanted->tag;
    mine->receiving = wanted->receiving;
    crl_endpoint *mailbox = mailbox_of(me, mine->peer, mine->receiving);
    const int sender = mine->receiving ? mine->peer : me->rank;
    pthread_mutex_lock(&mailbox->lock);
    crl_local_op *partner =
        crl_local_queue_take(queue_of(mailbox, sender, !mine->receiving), mine->tag, NULL);
    if (partner == NULL) {
        atomic_store(&mine->open, true);
        crl_local_queue_append(queue_of(mailbox, sender, mine->receiving), mine);
    }
    pthread_mutex_unlock(&mailbox->lock);
    if (partner != NULL) {
        const crl_status met = meet(me, mine, partner);
        if (met != CRL_STATUS_OK) {
            put_op(me, mine);
            return fail(me, met);
        }
    }
    *request = (crl_request){.slot = mine,
                             .peer = mine->peer,
                             .tag = mine->tag,
                             .receiving = mine->receiving,
                             .active = true};
    return CRL_STATUS_OK;
}

static crl_status local_send(crl_endpoint *me, int peer, int tag, const void *data, size_t bytes,
                             crl_request *request) {
    const crl_local_op wanted = {
        .data = (void *)(uintptr_t)data, .bytes = bytes, .peer = peer, .tag = tag};
    CRL_TRY(post(me, &wanted, request));
    return CRL_STATUS_OK;
}

static crl_status local_recv(crl_endpoint *me, int peer, int tag, void *data, size_t bytes,
                             crl_request *request) {
    const crl_local_op wanted = {
        .data = data, .bytes = bytes, .peer = peer, .tag = tag, .receiving = true};
    CRL_TRY(post(me, &wanted, request));
    return CRL_STATUS_OK;
}

static crl_status local_test(crl_endpoint *me, crl_request *request, bool *done) {
    crl_local_op *item = request->slot;
    /* First this, then the end of the job: a pair that did not fit is closed after the abort. */
    const bool open = atomic_load(&item->open);
    CRL_TRY(attend(me));
    if (!open) {
        put_op(me, item);
        request->slot = NULL;
        request->active = false;
    }
    *done = !open;
    return CRL_STATUS_OK;
}

static struct timespec clock_after(int64_t duration_ns) {
    struct timespec at;
    clock_gettime(CLOCK_MONOTONIC, &at);
    const int64_t ns = at.tv_nsec + duration_ns;
    at.tv_sec += (time_t)(ns / 1000000000);
    at.tv_nsec = (long)(ns % 1000000000);
    return at;
}

static bool spin(crl_endpoint *me) {
    const int64_t until_ns = crl_clock_ns() + SPIN_NS;
    while (!atomic_load_explicit(&me->news, memory_order_acquire)) {
        if (crl_clock_ns() >= until_ns) {
            return false;
        }
    }
    return true;
}

static void local_idle(crl_endpoint *me, int64_t at_most_ns) {
    if (me->job->spin && spin(me)) {
        atomic_store(&me->news, false);
        return;
    }
    const struct timespec until = clock_after(at_most_ns);
    pthread_mutex_lock(&me->lock);
    while (!atomic_load(&me->news)) {
        if (pthread_cond_timedwait(&me->wake, &me->lock, &until) != 0) {
            break;
        }
    }
    atomic_store(&me->news, false);
    pthread_mutex_unlock(&me->lock);
}

static void local_note(crl_endpoint *me, const crl_wait_note *note) {
    pthread_mutex_lock(&me->lock);
    me->note = *note;
    pthread_mutex_unlock(&me->lock);
}

static bool everybody_answered(const job *job, int64_t roll) {
    for (int rank = 0; rank < job->ranks; rank++) {
        if (atomic_load(&job->endpoint[rank].answered) < roll) {
            return false;
        }
    }
    return true;
}

static crl_status local_roll_call(crl_endpoint *me, crl_wait_note *note, bool *answered,
                                  int64_t at_most_ns) {
    job *job = me->job;
    const int64_t until_ns = crl_clock_ns() + at_most_ns;
    const int64_t roll = atomic_fetch_add(&job->roll, 1) + 1;
    for (int rank = 0; rank < job->ranks; rank++) {
        wake(&job->endpoint[rank]);
    }
    for (;;) {
        CRL_TRY(attend(me));
        if (everybody_answered(job, roll) || crl_clock_ns() >= until_ns) {
            break;
        }
        local_idle(me, ROLL_CALL_STEP_NS);
    }
    for (int rank = 0; rank < job->ranks; rank++) {
        crl_endpoint *endpoint = &job->endpoint[rank];
        answered[rank] = atomic_load(&endpoint->answered) >= roll;
        pthread_mutex_lock(&endpoint->lock);
        note[rank] = endpoint->note;
        pthread_mutex_unlock(&endpoint->lock);
    }
    return CRL_STATUS_OK;
}

static crl_status local_share(crl_endpoint *me, const crl_share *share, void **out) {
    job *job = me->job;
    crl_status status = CRL_STATUS_OK;
    pthread_mutex_lock(&job->lock);
    if (!job->common) {
        status = crl_alloc(&job->common, 1, share->bytes);
        if (status == CRL_STATUS_OK) {
            job->common_fini = share->fini;
            share->init(job->common, job->ranks);
        }
    }
    *out = job->common;
    pthread_mutex_unlock(&job->lock);
    return status == CRL_STATUS_OK ? status : fail(me, status);
}

static crl_status run_rank(void *argument) {
    const rank_start *start = argument;
    crl_endpoint *me = start->endpoint;
    crl_error_set_rank(me->rank);
    const crl_status status = start->run(start->argument, me, me->rank, me->job->ranks);
    if (status != CRL_STATUS_OK) {
        crl_error error = *crl_error_get();
        error.status = status;
        local_abort(me, &error);
    }
    withdraw(me);
    return status;
}

static void endpoint_init(crl_endpoint *endpoint, job *job, int rank, crl_local_queue *queues) {
    pthread_condattr_t attributes;
    pthread_condattr_init(&attributes);
    pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
    pthread_cond_init(&endpoint->wake, &attributes);
    pthread_condattr_destroy(&attributes);
    pthread_mutex_init(&endpoint->lock, NULL);
    endpoint->job = job;
    endpoint->rank = rank;
    endpoint->note.peer = -1;
    endpoint->sends = queues;
    endpoint->receives = queues + job->ranks;
}

static void endpoint_fini(crl_endpoint *endpoint) {
    while (endpoint->blocks != NULL) {
        op_block *block = endpoint->blocks;
        endpoint->blocks = block->next;
        crl_free(block);
    }
    pthread_mutex_destroy(&endpoint->lock);
    pthread_cond_destroy(&endpoint->wake);
}

/* Starts a thread per rank and waits for all of them. */
static void run_threads(job *job, rank_start *start) {
    for (int rank = 0; rank < job->ranks; rank++) {
        const crl_status status = crl_thread_start(&start[rank].thread, run_rank, &start[rank]);
        if (status != CRL_STATUS_OK) {
            declare_over(job, crl_error_get());
            break;
        }
    }
    for (int rank = 0; rank < job->ranks; rank++) {
        (void)crl_thread_join(start[rank].thread);
    }
}

/* As far as it was made; NULL is fine. */
static void job_destroy(job *job) {
    if (job == NULL) {
        return;
    }
    if (job->made > 0) {
        pthread_mutex_destroy(&job->lock);
    }
    if (job->common) {
        job->common_fini(job->common);
        crl_free(job->common);
    }
    for (int rank = 0; rank < job->made; rank++) {
        endpoint_fini(&job->endpoint[rank]);
    }
    crl_free(job->queues);
    crl_free(job->endpoint);
    crl_free(job);
}

static crl_status local_launch(int ranks, crl_rank_fn run, void *argument) {
    if (ranks < 1 || ranks > MOST_RANKS) {
        return CRL_FAIL(INVALID, "local transport: the job has %d ranks, expected 1 to %d", ranks,
                        MOST_RANKS);
    }
    job *job = NULL;
    rank_start *start = NULL;
    crl_status status;
    const size_t count = (size_t)ranks;
    CRL_TRY_OUT(crl_alloc(&job, 1, sizeof *job));
    CRL_TRY_OUT(crl_alloc(&job->endpoint, count, sizeof *job->endpoint));
    CRL_TRY_OUT(crl_alloc(&job->queues, count * count * 2, sizeof *job->queues));
    CRL_TRY_OUT(crl_alloc(&start, count, sizeof *start));
    job->ranks = ranks;
    job->spin = ranks > 1 && ranks <= crl_cpu_count();
    pthread_mutex_init(&job->lock, NULL);
    for (int rank = 0; rank < ranks; rank++, job->made++) {
        endpoint_init(&job->endpoint[rank], job, rank, job->queues + count * 2 * (size_t)rank);
        start[rank] = (rank_start){run, argument, &job->endpoint[rank], NULL};
    }
    run_threads(job, start);
    if (atomic_load(&job->over)) {
        crl_error_set(&job->error);
        status = job->error.status;
    }
out:
    job_destroy(job);
    crl_free(start);
    return status;
}

const crl_transport crl_transport_local = {
    .name = "local",
    .help = "ranks are threads of this process",
    .launch = local_launch,
    .reserve = local_reserve,
    .send = local_send,
    .recv = local_recv,
    .test = local_test,
    .attend = attend,
    .idle = local_idle,
    .note = local_note,
    .roll_call = local_roll_call,
    .abort = local_abort,
    .share = local_share,
};
