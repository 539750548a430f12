/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Routes from programs. Programs follow each other as wholes on both ends of a channel, and the
 * exchange of tied uses follows training's, so channels may be numbered for each by itself.
 */
#include "engine/run/routes.h"

#include <string.h>

#include "engine/base/alloc.h"

/* A program as one of its rows sees it. */
typedef struct view {
    const crl_program *program;
    const crl_mesh *mesh;
    int pipeline, row, first_tag;
    int *sent, *received; /* (messages) place in the sender's and the receiver's list */
    int *pick;            /* (messages) those of one directed pair, and for them: */
    int *sender_order, *receiver_order, *channel;
} view;

static void find_places(const view *v) {
    for (int row = 0; row < v->program->positions; row++) {
        const crl_action_list *list = &v->program->position[row];
        for (int i = 0; i < list->count; i++) {
            const crl_action *action = &list->action[i];
            if (action->kind == CRL_ACTION_SEND) {
                v->sent[action->message] = i;
            } else if (action->kind == CRL_ACTION_RECV) {
                v->received[action->message] = i;
            }
        }
    }
}

/* The messages from one row to another. */
static crl_status add_pair(crl_routes *routes, const view *v, int from, int to) {
    int picked = 0, channels;
    for (int m = 0; m < v->program->messages; m++) {
        const crl_message *message = &v->program->message[m];
        if (message->from == from && message->to == to) {
            v->pick[picked] = m;
            v->sender_order[picked] = v->sent[m];
            v->receiver_order[picked] = v->received[m];
            picked++;
        }
    }
    CRL_TRY(crl_routes_assign(v->channel, &channels, v->sender_order, v->receiver_order, picked));
    for (int i = 0; i < picked; i++) {
        routes->route[routes->count++] =
            (crl_route){.tag = CRL_TAG_ACTION | (v->first_tag + v->pick[i]),
                        .from = crl_mesh_rank_of_row(v->mesh, v->pipeline, from),
                        .to = crl_mesh_rank_of_row(v->mesh, v->pipeline, to),
                        .channel = v->channel[i]};
    }
    return CRL_STATUS_OK;
}

static crl_status add_program(crl_routes *routes, view v) {
    crl_status status;
    int *memory = NULL;
    const size_t messages = (size_t)v.program->messages;
    CRL_TRY_OUT(crl_alloc(&memory, 6 * messages, sizeof *memory));
    int **const part[] = {&v.sent,         &v.received,       &v.pick,
                          &v.sender_order, &v.receiver_order, &v.channel};
    for (size_t i = 0; i < 6; i++) {
        *part[i] = memory + i * messages;
    }
    find_places(&v);
    for (int other = 0; other < v.program->positions; other++) {
        if (other != v.row) {
            CRL_TRY_OUT(add_pair(routes, &v, v.row, other));
            CRL_TRY_OUT(add_pair(routes, &v, other, v.row));
        }
    }
out:
    crl_free(memory);
    return status;
}

crl_status crl_routes_create(crl_routes *out, const crl_rank *r) {
    const crl_mesh *mesh = &r->layout->mesh;
    crl_routes routes = {0};
    crl_status status;
    const crl_route *exchange = NULL;
    const int exchanges = r->sync ? crl_grad_sync_exchange(r->sync, &exchange) : 0;
    const int training = r->program ? r->program->messages : 0;
    view v = {.program = r->evaluate_program,
              .mesh = mesh,
              .pipeline = r->pipeline,
              .row = crl_mesh_row(mesh, r->at.position, r->at.replica),
              .first_tag = training};
    CRL_TRY_OUT(crl_alloc(
        &routes.route, (size_t)exchanges + (size_t)training + (size_t)r->evaluate_program->messages,
        sizeof *routes.route));
    CRL_TRY_OUT(add_program(&routes, v));
    if (r->program) {
        v.program = r->program;
        v.first_tag = 0;
        CRL_TRY_OUT(add_program(&routes, v));
    }
    if (exchanges > 0) {
        memcpy(routes.route + routes.count, exchange, (size_t)exchanges * sizeof *exchange);
        routes.count += exchanges;
    }
    *out = routes;
    routes = (crl_routes){0};
out:
    crl_routes_fini(&routes);
    return status;
}

void crl_routes_fini(crl_routes *routes) {
    crl_free(routes->route);
    *routes = (crl_routes){0};
}
