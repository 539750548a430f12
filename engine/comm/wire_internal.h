/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What all wires have in common: a message under way is a parcel, with two events and a place in
 * the list of those that are moved on by every test of any of them. A kind says how a parcel starts
 * and what moves it on.
 *
 *   MOVING ──all of it is queued──> QUEUED ──the device has passed `through`──> DONE
 *
 * A request may leave its parcel in QUEUED, when the stream follows `through`, or in DONE; a parcel
 * without a request is used again once it is DONE. They are made in blocks and never given back
 * before the end.
 */
#pragma once

#include <pthread.h>

#include "engine/base/alloc.h"
#include "engine/comm/comm_internal.h"
#include "engine/comm/wire.h"

typedef enum crl_parcel_state {
    CRL_PARCEL_MOVING = 0,
    CRL_PARCEL_QUEUED,
    CRL_PARCEL_DONE
} crl_parcel_state;

typedef struct crl_parcel {
    struct crl_parcel *next; /* under way, or free */
    crl_event *posted;       /* on the stream, when the message was started */
    crl_event *own;          /* on a stream of the kind's, when this rank's part is queued */
    crl_event *through;      /* QUEUED: what to wait for; NULL: nothing */
    crl_parcel_state state;
    bool detached; /* its request is at rest */
    int peer, tag;
    bool receiving;
    void *data;
    size_t bytes;
    crl_request host; /* a message of the host's comm, for the kind */
    int phase;        /* the kind's */
    void *way;        /* the kind's */
    struct crl_staging *staging;
    struct crl_parcel *remote; /* shared: the sender's, as it came in */
    struct crl_parcel *self;   /* what is sent for that */
    struct crl_parcel *taker;  /* shared, sender's: the receiver's, which lends its event */
    CRL_ATOMIC(bool) taken;    /* shared, sender's: `taker` is valid */
    CRL_ATOMIC(bool) lent;     /* shared, receiver's: the sender still needs its event */
} crl_parcel;

typedef struct crl_parcel_block crl_parcel_block;

typedef struct crl_parcel_ops {
    /* Begins; the parcel is not in the list yet. */
    crl_status (*start)(crl_wire *wire, crl_parcel *parcel);
    /* MOVING: moves on if it can. */
    crl_status (*advance)(crl_wire *wire, crl_parcel *parcel);
    /* The request has left. NULL: nothing to do. */
    void (*detach)(crl_wire *wire, crl_parcel *parcel);
    /* DONE and detached: may it be used again? Gives back what it holds then. NULL: yes. */
    bool (*release)(crl_wire *wire, crl_parcel *parcel);
} crl_parcel_ops;

/* The first member of every kind's crl_wire. */
typedef struct crl_wire_base {
    crl_wire_config config;
    const crl_parcel_ops *ops;
    crl_parcel *first, *last; /* under way, in the order of their start */
    crl_parcel *free;
    crl_parcel_block *blocks;
    bool busy; /* the device is at work on some */
    bool over;
} crl_wire_base;

/* Makes parcels for config->requests. Local. */
CRL_NODISCARD crl_status crl_wire_base_init(crl_wire_base *base, const crl_wire_config *config,
                                            const crl_parcel_ops *ops);
/* Parcels and events; nothing may be queued any more that uses them. */
void crl_wire_base_fini(crl_wire_base *base);
/* The blocks alone, for wires whose parcels others may still look at. */
void crl_parcel_blocks_free(const crl_device *device, crl_parcel_block *blocks);
/* Hands base's blocks over, to the front of *chain. */
void crl_parcel_blocks_move(crl_wire_base *base, crl_parcel_block **chain);

/* The entries of every kind, over its ops. */
CRL_NODISCARD crl_status crl_wire_send(crl_wire *wire, int peer, int tag, const void *data,
                                       size_t bytes, crl_request *request);
CRL_NODISCARD crl_status crl_wire_recv(crl_wire *wire, int peer, int tag, void *data, size_t bytes,
                                       crl_request *request);
CRL_NODISCARD crl_status crl_wire_test(crl_wire *wire, crl_request *request, bool follow,
                                       bool *done);
CRL_NODISCARD crl_status crl_wire_progress(crl_wire *wire, bool *busy);
/* Records `own` on the stream and makes it what the parcel waits for. */
CRL_NODISCARD crl_status crl_parcel_queued(crl_wire_base *base, crl_parcel *parcel,
                                           crl_stream *stream);

static inline crl_wire_base *crl_wire_base_of(crl_wire *wire) {
    return (crl_wire_base *)(void *)wire;
}
