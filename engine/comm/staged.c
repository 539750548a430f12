/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Tensors through pinned memory and the transport: the wire that always works.
 *
 *   sender    stream ──work──posted─>                       message of the host
 *             out         └─follow─copy──own─> pinned memory ───────┐
 *   receiver  stream ──posted──────────────────────follow──work─>   │
 *             in         └──────follow─copy──own────┘ <─────────────┘
 *
 * The host's message of a send starts when its copy is done, in the order of the sends; that of a
 * receive at once. A send is done with its message: as slow as its receiver, so that what is staged
 * stays as little as what the program has under way. Pinned memory comes in sizes of at most a
 * quarter too much and is kept, so it is asked for in the first steps only.
 *
 * cost: two copies beside the message's own · pinned bytes: twice those under way
 */
#include <string.h>

#include "engine/base/alloc.h"
#include "engine/comm/wire_internal.h"

enum { SMALLEST_SHIFT = 12, CLASSES = 4 * (44 - SMALLEST_SHIFT) };

/* A piece of pinned memory. */
typedef struct crl_staging {
    struct crl_staging *next; /* of its class, free */
    struct crl_staging *all;
    int class;
    void *memory;
} crl_staging;

/* All of a class. */
typedef struct stock {
    crl_staging *free;
    int used, most; /* by requests: now, and at a time so far */
} stock;

struct crl_wire {
    crl_wire_base base;
    crl_stream *out, *in;
    stock stock[CLASSES];
    crl_staging *all;
    bool held; /* a send before is not copied yet: those after it have to wait */
};

enum { COPYING = 0, SENDING };

/* Sizes 4096 · 2^k · {1, 5/4, 6/4, 7/4}. */
static size_t class_bytes(int class) {
    return ((size_t)(4 + class % 4) << (class / 4)) << (SMALLEST_SHIFT - 2);
}

static int class_of(size_t bytes) {
    int class = 0;
    while (class < CLASSES - 1 && class_bytes(class) < bytes) {
        class ++;
    }
    return class;
}

static crl_status add_staging(crl_wire *w, int class) {
    crl_staging *staging = NULL;
    crl_status status;
    CRL_TRY_OUT(crl_alloc(&staging, 1, sizeof *staging));
    staging->class = class;
    CRL_TRY_OUT(crl_device_host_alloc(w->base.config.device, &staging->memory, class_bytes(class)));
    staging->all = w->all;
    staging->next = w->stock[class].free;
    w->all = w->stock[class].free = staging;
    staging = NULL;
out:
    crl_free(staging);
    return status;
}

typedef struct staging_wait {
    crl_wire *wire;
    const stock *stock;
} staging_wait;

static crl_status poll_staging(void *argument, crl_poll_result *result) {
    const staging_wait *wait = argument;
    crl_comm *host = wait->wire->base.config.host;
    bool busy;
    result->peer = host->rank;
    result->receiving = result->soon = true;
    CRL_TRY(crl_wire_staged.progress(wait->wire, &busy));
    result->done = wait->stock->free != NULL;
    return CRL_STATUS_OK;
}

/* There are twice as many as requests that had one at a time: the other half drains. */
static crl_status take_staging(crl_wire *w, crl_parcel *parcel) {
    const int class = class_of(parcel->bytes);
    stock *stock = &w->stock[class];
    if (++stock->used > stock->most) {
        stock->most = stock->used;
        CRL_TRY(add_staging(w, class));
        CRL_TRY(add_staging(w, class));
    }
    staging_wait wait = {w, stock};
    CRL_TRY(crl_comm_wait_poll(w->base.config.host, "copies", poll_staging, &wait));
    parcel->staging = stock->free;
    stock->free = stock->free->next;
    return CRL_STATUS_OK;
}

static void staged_detach(crl_wire *w, crl_parcel *parcel) {
    if (parcel->staging) {
        w->stock[parcel->staging->class].used--;
    }
}

static bool staged_release(crl_wire *w, crl_parcel *parcel) {
    crl_staging *staging = parcel->staging;
    if (staging) {
        staging->next = w->stock[staging->class].free;
        w->stock[staging->class].free = staging;
        parcel->staging = NULL;
    }
    return true;
}

static void *memory_of(const crl_parcel *parcel) {
    return parcel->staging ? parcel->staging->memory : NULL;
}

static crl_status send_message(crl_wire *w, crl_parcel *parcel) {
    parcel->phase = SENDING;
    return crl_comm_send(w->base.config.host, parcel->peer, parcel->tag, memory_of(parcel),
                         parcel->bytes, &parcel->host);
}

static crl_status staged_start(crl_wire *w, crl_parcel *parcel) {
    const crl_device *device = w->base.config.device;
    parcel->staging = NULL;
    if (parcel->bytes > 0) {
        CRL_TRY(take_staging(w, parcel));
    }
    if (parcel->receiving) {
        return crl_comm_recv(w->base.config.host, parcel->peer, parcel->tag, memory_of(parcel),
                             parcel->bytes, &parcel->host);
    }
    if (parcel->bytes > 0) {
        CRL_TRY(crl_device_event_follow(device, w->out, parcel->posted));
        CRL_TRY(crl_device_copy(device, w->out, memory_of(parcel), parcel->data, parcel->bytes));
    }
    return crl_device_event_record(device, parcel->own, w->out);
}

static crl_status advance_send(crl_wire *w, crl_parcel *parcel) {
    bool done = false;
    if (parcel->phase == COPYING) {
        if (!w->held) {
            CRL_TRY(crl_device_event_query(w->base.config.device, parcel->own, &done));
        }
        w->held = w->held || !done;
        w->base.busy = w->base.busy || !done;
        return done ? send_message(w, parcel) : CRL_STATUS_OK;
    }
    CRL_TRY(crl_comm_test(w->base.config.host, &parcel->host, &done));
    parcel->state = done ? CRL_PARCEL_DONE : CRL_PARCEL_MOVING;
    return CRL_STATUS_OK;
}

static crl_status staged_advance(crl_wire *w, crl_parcel *parcel) {
    if (!parcel->receiving) {
        return advance_send(w, parcel);
    }
    const crl_device *device = w->base.config.device;
    bool done = false;
    CRL_TRY(crl_comm_test(w->base.config.host, &parcel->host, &done));
    if (!done || parcel->bytes == 0) {
        parcel->state = done ? CRL_PARCEL_DONE : CRL_PARCEL_MOVING;
        return CRL_STATUS_OK;
    }
    CRL_TRY(crl_device_event_follow(device, w->in, parcel->posted));
    CRL_TRY(crl_device_copy(device, w->in, parcel->data, memory_of(parcel), parcel->bytes));
    return crl_parcel_queued(&w->base, parcel, w->in);
}

static const crl_parcel_ops staged_ops = {.start = staged_start,
                                          .advance = staged_advance,
                                          .detach = staged_detach,
                                          .release = staged_release};

static crl_status staged_usable(const crl_wire_config *config) {
    (void)config;
    return CRL_STATUS_OK;
}

/* Whoever comes here has ended the job or all messages: the transport touches nothing any more. */
static void staged_destroy(crl_wire *w) {
    if (!w) {
        return;
    }
    const crl_device *device = w->base.config.device;
    crl_device_stream_destroy(device, w->out);
    crl_device_stream_destroy(device, w->in);
    while (w->all) {
        crl_staging *staging = w->all;
        w->all = staging->all;
        crl_device_host_free(device, staging->memory);
        crl_free(staging);
    }
    crl_wire_base_fini(&w->base);
    crl_free(w);
}

static crl_status staged_create(crl_wire **out, const crl_wire_config *config) {
    crl_wire *w = NULL;
    crl_status status;
    CRL_TRY_OUT(crl_alloc(&w, 1, sizeof *w));
    CRL_TRY_OUT(crl_wire_base_init(&w->base, config, &staged_ops));
    CRL_TRY_OUT(crl_device_stream_create(config->device, &w->out));
    CRL_TRY_OUT(crl_device_stream_create(config->device, &w->in));
    *out = w;
    w = NULL;
out:
    staged_destroy(w);
    return status;
}

static void staged_abort(crl_wire *w) {
    w->base.over = true;
}

static crl_status staged_progress(crl_wire *w, bool *busy) {
    w->held = false;
    return crl_wire_progress(w, busy);
}

static crl_status staged_test(crl_wire *w, crl_request *request, bool follow, bool *done) {
    w->held = false;
    return crl_wire_test(w, request, follow, done);
}

const crl_wire_kind crl_wire_staged = {
    .name = "staged",
    .help = "through pinned memory of the host and the transport",
    .usable = staged_usable,
    .create = staged_create,
    .destroy = staged_destroy,
    .send = crl_wire_send,
    .recv = crl_wire_recv,
    .test = staged_test,
    .progress = staged_progress,
    .abort = staged_abort,
};
