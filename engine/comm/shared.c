/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Tensors between ranks that are threads of one process: what is sent is where the data lies and
 * which event makes it ready; the receiver copies from device to device.
 *
 *   sender    stream ──work──posted─>        parcel ──message──┐      └─follow──work─>
 *   receiver  in       follow posted of both <─────────────────┘──copy──own─> (both follow it)
 *             stream ──posted────────────────────────────────────────────────follow──work─>
 *
 * Events and parcels end up in a hall that lives as long as the job, so no pointer dangles. Whoever
 * ends the job or leaves closes its door in the hall: from then on no receiver queues a copy of its
 * memory, and leaving waits for those that are queued. Everything a stream waits for has been
 * queued before, by whomever; so streams cannot wait for each other in a circle.
 *
 * cost: one copy, one message of a pointer
 */
#include <pthread.h>

#include "engine/base/alloc.h"
#include "engine/comm/wire_internal.h"

enum { STREAMS = 4 }; /* copies from different ranks do not wait for each other, mostly */

typedef struct door {
    pthread_mutex_t lock; /* of `closed`, and held while a copy from here is queued */
    bool closed;
} door;

typedef struct hall {
    int ranks;
    pthread_mutex_t lock; /* of what follows */
    const crl_device *device;
    crl_parcel_block *blocks; /* of those who have left */
    door door[];              /* (ranks) */
} hall;

struct crl_wire {
    crl_wire_base base;
    hall *hall;
    crl_stream *in[STREAMS];
};

static crl_status shared_start(crl_wire *w, crl_parcel *parcel) {
    crl_comm *host = w->base.config.host;
    atomic_store(&parcel->taken, false);
    if (parcel->receiving) {
        return crl_comm_recv(host, parcel->peer, parcel->tag, &parcel->remote,
                             sizeof parcel->remote, &parcel->host);
    }
    parcel->self = parcel;
    return crl_comm_send(host, parcel->peer, parcel->tag, &parcel->self, sizeof parcel->self,
                         &parcel->host);
}

/* The door of the sender is held open. */
static crl_status queue_copy(crl_wire *w, crl_parcel *parcel) {
    const crl_device *device = w->base.config.device;
    crl_stream *in = w->in[parcel->peer % STREAMS];
    crl_parcel *remote = parcel->remote;
    if (remote->bytes != parcel->bytes) {
        return CRL_FAIL(COMM,
                        "message from rank %d to rank %d, tag %d: sent %zu bytes, the receive "
                        "expects %zu",
                        parcel->peer, remote->peer, parcel->tag, remote->bytes, parcel->bytes);
    }
    if (parcel->bytes == 0) {
        parcel->state = CRL_PARCEL_QUEUED;
    } else {
        CRL_TRY(crl_device_event_follow(device, in, remote->posted));
        CRL_TRY(crl_device_event_follow(device, in, parcel->posted));
        CRL_TRY(crl_device_copy(device, in, parcel->data, remote->data, parcel->bytes));
        CRL_TRY(crl_parcel_queued(&w->base, parcel, in));
    }
    atomic_store(&parcel->lent, true);
    remote->taker = parcel;
    atomic_store(&remote->taken, true); /* from here on it is the sender's again */
    return CRL_STATUS_OK;
}

static crl_status advance_receive(crl_wire *w, crl_parcel *parcel) {
    bool done = false;
    CRL_TRY(crl_comm_test(w->base.config.host, &parcel->host, &done));
    if (!done) {
        return CRL_STATUS_OK;
    }
    door *door = &w->hall->door[parcel->peer];
    pthread_mutex_lock(&door->lock);
    const crl_status status = door->closed ? CRL_STATUS_OK : queue_copy(w, parcel);
    pthread_mutex_unlock(&door->lock);
    return status; /* where the door is closed the job is over */
}

static crl_status shared_advance(crl_wire *w, crl_parcel *parcel) {
    if (parcel->receiving) {
        return advance_receive(w, parcel);
    }
    bool done = false;
    CRL_TRY(crl_comm_test(w->base.config.host, &parcel->host, &done));
    w->base.busy = w->base.busy || done; /* the receiver's thread is about to take it */
    if (done && atomic_load(&parcel->taken)) {
        parcel->through = parcel->bytes > 0 ? parcel->taker->own : NULL;
        parcel->state = CRL_PARCEL_QUEUED;
    }
    return CRL_STATUS_OK;
}

/* The sender has followed the receiver's event, or seen it pass. */
static void shared_detach(crl_wire *w, crl_parcel *parcel) {
    (void)w;
    if (!parcel->receiving) {
        atomic_store(&parcel->taker->lent, false);
        parcel->through = NULL; /* the receiver's to record anew */
        parcel->state = CRL_PARCEL_DONE;
    }
}

static bool shared_release(crl_wire *w, crl_parcel *parcel) {
    (void)w;
    return !parcel->receiving || !atomic_load(&parcel->lent);
}

static const crl_parcel_ops shared_ops = {.start = shared_start,
                                          .advance = shared_advance,
                                          .detach = shared_detach,
                                          .release = shared_release};

static crl_status shared_usable(const crl_wire_config *config) {
    if (!config->host->transport->share) {
        return CRL_FAIL(UNSUPPORTED,
                        "wire shared: ranks of transport %s do not live in one process",
                        config->host->transport->name);
    }
    return CRL_STATUS_OK;
}

static void hall_init(void *memory, int ranks) {
    hall *hall = memory;
    hall->ranks = ranks;
    pthread_mutex_init(&hall->lock, NULL);
    for (int rank = 0; rank < ranks; rank++) {
        pthread_mutex_init(&hall->door[rank].lock, NULL);
    }
}

static void hall_fini(void *memory) {
    hall *hall = memory;
    crl_parcel_blocks_free(hall->device, hall->blocks);
    for (int rank = 0; rank < hall->ranks; rank++) {
        pthread_mutex_destroy(&hall->door[rank].lock);
    }
    pthread_mutex_destroy(&hall->lock);
}

static void set_door(crl_wire *w, bool closed) {
    door *door = &w->hall->door[w->base.config.host->rank];
    pthread_mutex_lock(&door->lock);
    door->closed = closed;
    pthread_mutex_unlock(&door->lock);
}

static void shared_abort(crl_wire *w) {
    w->base.over = true;
    if (w->hall) {
        set_door(w, true);
    }
}

/* What others are still copying from here was queued: a stream of this rank waits for it. */
static crl_status await_takers(crl_wire *w) {
    for (crl_parcel *parcel = w->base.first; parcel; parcel = parcel->next) {
        if (!parcel->receiving && !parcel->detached && parcel->bytes > 0 &&
            atomic_load(&parcel->taken)) {
            CRL_TRY(crl_device_event_follow(w->base.config.device, w->in[0], parcel->taker->own));
        }
    }
    return CRL_STATUS_OK;
}

static void shared_destroy(crl_wire *w) {
    if (!w) {
        return;
    }
    if (w->hall) {
        if (w->base.first) { /* still under way, if the job is over */
            shared_abort(w);
            (void)await_takers(w); /* a device that fails copies nothing any more */
        }
        pthread_mutex_lock(&w->hall->lock);
        w->hall->device = w->base.config.device;
        crl_parcel_blocks_move(&w->base, &w->hall->blocks);
        pthread_mutex_unlock(&w->hall->lock);
    }
    for (int i = 0; i < STREAMS; i++) {
        crl_device_stream_destroy(w->base.config.device, w->in[i]);
    }
    crl_wire_base_fini(&w->base);
    crl_free(w);
}

static crl_status shared_create(crl_wire **out, const crl_wire_config *config) {
    const crl_comm *host = config->host;
    const crl_share share = {.bytes = sizeof(hall) + (size_t)host->ranks * sizeof(door),
                             .init = hall_init,
                             .fini = hall_fini};
    crl_wire *w = NULL;
    void *common = NULL;
    crl_status status;
    CRL_TRY_OUT(crl_alloc(&w, 1, sizeof *w));
    CRL_TRY_OUT(crl_wire_base_init(&w->base, config, &shared_ops));
    for (int i = 0; i < STREAMS; i++) {
        CRL_TRY_OUT(crl_device_stream_create(config->device, &w->in[i]));
    }
    CRL_TRY_OUT(host->transport->share(host->endpoint, &share, &common));
    w->hall = common;
    set_door(w, false); /* a wire before this one may have closed it */
    *out = w;
    w = NULL;
out:
    shared_destroy(w);
    return status;
}

const crl_wire_kind crl_wire_shared = {
    .name = "shared",
    .help = "from device to device, between ranks of one process",
    .usable = shared_usable,
    .create = shared_create,
    .destroy = shared_destroy,
    .send = crl_wire_send,
    .recv = crl_wire_recv,
    .test = crl_wire_test,
    .progress = crl_wire_progress,
    .abort = shared_abort,
};
