/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Tensors through NCCL: every directed pair of ranks has channels, each a communicator of those two
 * with a stream of its own. A message is ncclSend on the one side and ncclRecv on the other.
 *
 *   rank 1  stream ──work──posted─>                      rank 2  stream ──posted─────────follow──>
 *           channel 0 of 1->2  └─follow─ncclSend─own─>           channel 0 of 1->2  └─ncclRecv─own┘
 *
 * No deadlock, by construction: a channel is first in, first out, and its routes are such that both
 * ends post its messages in the same order (route.h). A program that the checker accepts comes to
 * its end when every send is a rendezvous, each message by itself. Here a message has to wait for
 * those before it on its channel too; but both ends have posted them before, so they need nothing
 * that comes later, and by induction they get through. Streams of computing follow a receive where
 * the program waits for it, and not before.
 *
 * Communicators do not block: an operation may be under way to its stream for a while
 * (ncclInProgress), during which the next one of the same channel is held back here. All are asked
 * for errors whenever somebody waits; any failure, deadline or end of the job aborts them all,
 * which also ends kernels that wait for a dead peer. Refuses messages without a route, and several
 * ranks on one GPU, which NCCL does not serve.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/base/alloc.h"
#include "engine/comm/nccl_internal.h"

static int compare_ends(int from, int to, int other_from, int other_to) {
    return from != other_from ? (from < other_from ? -1 : 1) : (to > other_to) - (to < other_to);
}

static int by_channel(const void *a, const void *b) {
    const crl_route *x = a, *y = b;
    const int ends = compare_ends(x->from, x->to, y->from, y->to);
    return ends ? ends : (x->channel > y->channel) - (x->channel < y->channel);
}

static int by_tag(const void *a, const void *b) {
    const crl_route *x = a, *y = b;
    const int ends = compare_ends(x->from, x->to, y->from, y->to);
    return ends ? ends : (x->tag > y->tag) - (x->tag < y->tag);
}

/* Every channel once, ascending: the order in which all ranks make them, so that each is waited for
 * by both of its ranks sooner or later. Routes come out ascending by tag. */
static crl_status list_channels(crl_wire *w) {
    const crl_wire_config *config = &w->base.config;
    const size_t routes = (size_t)config->routes;
    CRL_TRY(crl_alloc(&w->route, routes, sizeof *w->route));
    CRL_TRY(crl_alloc(&w->channel, routes, sizeof *w->channel));
    if (routes == 0) {
        return CRL_STATUS_OK;
    }
    memcpy(w->route, config->route, routes * sizeof *w->route);
    qsort(w->route, routes, sizeof *w->route, by_channel);
    for (size_t i = 0; i < routes; i++) {
        const crl_route *r = &w->route[i];
        if (i > 0 && by_channel(r, r - 1) == 0) {
            continue;
        }
        crl_nccl_channel *c = &w->channel[w->channels++];
        c->from = r->from;
        c->to = r->to;
        c->number = r->channel;
        c->line.peer = r->from == config->host->rank ? r->to : r->from;
        snprintf(c->line.name, sizeof c->line.name, "channel %d from rank %d to rank %d",
                 r->channel, r->from, r->to);
    }
    qsort(w->route, routes, sizeof *w->route, by_tag);
    return CRL_STATUS_OK;
}

static crl_status connect_channel(crl_wire *w, crl_nccl_channel *c) {
    crl_comm *host = w->base.config.host;
    const bool sends = c->from == host->rank;
    ncclUniqueId id;
    if (sends) {
        CRL_TRY(crl_nccl_check(w, w->nccl.get_unique_id(&id), "an id"));
        CRL_TRY(crl_comm_send_wait(host, c->to, CRL_TAG_CLOSING, &id, sizeof id, c->line.name));
    } else {
        CRL_TRY(crl_comm_recv_wait(host, c->from, CRL_TAG_CLOSING, &id, sizeof id, c->line.name));
    }
    return crl_nccl_connect(w, &c->line, &id, sends ? 0 : 1, 2);
}

static crl_nccl_channel *channel_of(const crl_wire *w, const crl_parcel *parcel) {
    const int rank = w->base.config.host->rank;
    const crl_route wanted = {.tag = parcel->tag,
                              .from = parcel->receiving ? parcel->peer : rank,
                              .to = parcel->receiving ? rank : parcel->peer};
    const crl_route *route =
        w->base.config.routes == 0
            ? NULL
            : bsearch(&wanted, w->route, (size_t)w->base.config.routes, sizeof *w->route, by_tag);
    for (int c = 0; route && c < w->channels; c++) {
        crl_nccl_channel *channel = &w->channel[c];
        if (channel->from == route->from && channel->to == route->to &&
            channel->number == route->channel) {
            return channel;
        }
    }
    return NULL;
}

enum { HELD = 0, ISSUED };

static crl_status issue(crl_wire *w, crl_nccl_channel *c, crl_parcel *parcel) {
    const crl_nccl *n = &w->nccl;
    const cudaStream_t stream = crl_nccl_stream(&c->line);
    CRL_TRY(crl_device_event_follow(w->base.config.device, c->line.stream, parcel->posted));
    parcel->phase = ISSUED;
    c->line.owner = parcel;
    const ncclResult_t result =
        parcel->receiving
            ? n->recv(parcel->data, parcel->bytes, ncclUint8, 0, c->line.comm, stream)
            : n->send(parcel->data, parcel->bytes, ncclUint8, 1, c->line.comm, stream);
    return crl_nccl_check(w, result, c->line.name);
}

static crl_status advance_on(crl_wire *w, crl_nccl_channel *c, crl_parcel *parcel) {
    if (parcel->phase == HELD) {
        if (c->line.owner) {
            w->base.busy = true;
            return CRL_STATUS_OK;
        }
        CRL_TRY(issue(w, c, parcel));
    }
    bool settled;
    CRL_TRY(crl_nccl_settled(w, &c->line, &settled));
    if (!settled) {
        w->base.busy = true;
        return CRL_STATUS_OK;
    }
    c->line.owner = NULL;
    return crl_parcel_queued(&w->base, parcel, c->line.stream);
}

static crl_status nccl_advance(crl_wire *w, crl_parcel *parcel) {
    return advance_on(w, parcel->way, parcel);
}

static crl_status nccl_start(crl_wire *w, crl_parcel *parcel) {
    crl_nccl_channel *c = channel_of(w, parcel);
    if (!c) {
        return CRL_FAIL(INVALID, "wire nccl: message with rank %d, tag %d has no route",
                        parcel->peer, parcel->tag);
    }
    parcel->way = c;
    if (parcel->bytes == 0) {
        parcel->state = CRL_PARCEL_QUEUED; /* both ends know that there is nothing */
        return CRL_STATUS_OK;
    }
    return advance_on(w, c, parcel); /* one that is held keeps the line owned */
}

static const crl_parcel_ops nccl_ops = {.start = nccl_start, .advance = nccl_advance};

/* In one group: ending a communicator waits for its kernels, and those may stand behind a kernel of
 * another one. In a group all are told to end before any is waited for. */
static void nccl_abort(crl_wire *w) {
    if (w->base.over) {
        return;
    }
    w->base.over = true;
    if (!w->nccl.group_start) { /* the library was not opened */
        return;
    }
    (void)w->nccl.group_start();
    for (int c = 0; c < w->channels; c++) {
        crl_nccl_disconnect(w, &w->channel[c].line, true);
    }
    crl_nccl_teams_end(w, true);
    (void)w->nccl.group_end();
}

/* All ranks have posted all messages once all are here: what is queued comes to an end. */
static crl_status part(crl_wire *w) {
    crl_comm *host = w->base.config.host;
    const crl_group world = {.comm = host, .size = host->ranks, .me = host->rank};
    CRL_TRY(crl_barrier(&world));
    for (int c = 0; c < w->channels; c++) {
        crl_nccl_line *line = &w->channel[c].line;
        CRL_TRY(crl_nccl_check(w, w->nccl.finalize(line->comm), line->name));
    }
    for (crl_nccl_team *team = w->team; team; team = team->next) {
        CRL_TRY(crl_nccl_check(w, w->nccl.finalize(team->line.comm), team->line.name));
    }
    for (int c = 0; c < w->channels; c++) {
        CRL_TRY(crl_nccl_settle(w, &w->channel[c].line, "the end of a channel"));
    }
    for (const crl_nccl_team *team = w->team; team; team = team->next) {
        CRL_TRY(crl_nccl_settle(w, &team->line, "the end of a group"));
    }
    return CRL_STATUS_OK;
}

static void nccl_destroy(crl_wire *w) {
    if (!w) {
        return;
    }
    if (!w->base.over && part(w) != CRL_STATUS_OK) {
        nccl_abort(w);
    }
    for (int c = 0; c < w->channels; c++) {
        crl_nccl_disconnect(w, &w->channel[c].line, false);
    }
    crl_nccl_teams_end(w, false);
    crl_nccl_teams_free(w);
    crl_wire_base_fini(&w->base);
    crl_free(w->channel);
    crl_free(w->route);
    crl_free(w);
}

static crl_status nccl_create(crl_wire **out, const crl_wire_config *config) {
    crl_wire *w = NULL;
    crl_status status;
    CRL_TRY_OUT(crl_alloc(&w, 1, sizeof *w));
    CRL_TRY_OUT(crl_wire_base_init(&w->base, config, &nccl_ops));
    CRL_TRY_OUT(crl_nccl_load(&w->nccl));
    CRL_TRY_OUT(list_channels(w));
    for (int c = 0; c < w->channels; c++) {
        CRL_TRY_OUT(connect_channel(w, &w->channel[c]));
    }
    *out = w;
    w = NULL;
out:
    if (w) {
        nccl_abort(w);
    }
    nccl_destroy(w);
    return status;
}

static crl_status ask_for_errors(const crl_wire *w) {
    bool settled;
    for (int c = 0; c < w->channels; c++) {
        CRL_TRY(crl_nccl_settled(w, &w->channel[c].line, &settled));
    }
    for (const crl_nccl_team *team = w->team; team; team = team->next) {
        CRL_TRY(crl_nccl_settled(w, &team->line, &settled));
    }
    return CRL_STATUS_OK;
}

static crl_status nccl_progress(crl_wire *w, bool *busy) {
    CRL_TRY(crl_wire_progress(w, busy));
    CRL_TRY(crl_nccl_teams_advance(w, busy));
    return ask_for_errors(w);
}

const crl_wire_kind crl_wire_nccl = {
    .name = "nccl",
    .help = "NCCL between GPUs, one rank each",
    .uses_routes = true,
    .usable = crl_nccl_usable,
    .create = nccl_create,
    .destroy = nccl_destroy,
    .send = crl_wire_send,
    .recv = crl_wire_recv,
    .test = crl_wire_test,
    .progress = nccl_progress,
    .abort = nccl_abort,
    .tree = &crl_allreduce_nccl_tree,
    .sum = &crl_allreduce_nccl_sum,
    .all_gather = crl_nccl_all_gather,
    .reduce_scatter = crl_nccl_reduce_scatter,
};
