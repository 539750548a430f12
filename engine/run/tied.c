/* SPDX-License-Identifier: Apache-2.0 */
/* See tied.h. A message per use and receiver; receivers of one position are served by the replicas
 * of the sender's in turn. */
#include "engine/run/tied.h"

#include "engine/base/alloc.h"
#include "engine/run/memory_plan.h"

enum { MAX_USES = 64 };

/* One use of a tied parameter as this rank sees it. */
typedef struct tied_use {
    int param, use;
    int local;           /* index of the local use; -1: received */
    int position;        /* that holds it */
    size_t offset_bytes; /* of the received copy */
    float *data;
} tied_use;

struct crl_tied {
    crl_grad_sync_config config;
    crl_comm *comm;
    int uses;
    tied_use *use; /* grouped by parameter, uses ascending */
    int exchanges;
    crl_route *exchange;  /* (exchanges) messages with other ranks, in the order of their start */
    int *exchanged;       /* (exchanges) the use that is sent or received */
    crl_request *request; /* (exchanges) */
    size_t received_bytes;
};

/* Does this rank need the uses of the parameter? */
static bool is_tied_here(const crl_params *params, int param) {
    return params->graph->param[param].uses > 1 && params->weight_offset[param] >= 0;
}

static int local_use_of(const crl_params *params, int param, int use) {
    for (int u = 0; u < params->uses; u++) {
        if (params->use[u].param == param && params->use[u].use == use) {
            return u;
        }
    }
    return -1;
}

static crl_status allocate(crl_tied *tied) {
    const crl_params *params = tied->config.params;
    size_t total = 0;
    for (int p = 0; p < params->graph->params; p++) {
        const crl_param *param = &params->graph->param[p];
        if (param->uses > MAX_USES) {
            return CRL_FAIL(UNSUPPORTED, "parameter %s is used by %d nodes, expected at most %d",
                            param->name, param->uses, MAX_USES);
        }
        total += is_tied_here(params, p) ? (size_t)param->uses : 0;
    }
    const size_t most = total * (size_t)crl_mesh_rows(tied->config.mesh) + total;
    CRL_TRY(crl_alloc(&tied->use, total, sizeof *tied->use));
    CRL_TRY(crl_alloc(&tied->request, most, sizeof *tied->request));
    CRL_TRY(crl_alloc(&tied->exchange, most, sizeof *tied->exchange));
    return crl_alloc(&tied->exchanged, most, sizeof *tied->exchanged);
}

static void list_uses(crl_tied *tied) {
    const crl_params *params = tied->config.params;
    const crl_plan *plan = tied->config.plan;
    for (int p = 0; p < params->graph->params; p++) {
        const crl_param *param = &params->graph->param[p];
        for (int u = 0; is_tied_here(params, p) && u < param->uses; u++) {
            const int stage = crl_plan_stage_of(plan, param->use[u].node);
            const int local = local_use_of(params, p, u);
            tied->use[tied->uses++] = (tied_use){.param = p,
                                                 .use = u,
                                                 .local = local,
                                                 .position = plan->stage[stage].position,
                                                 .offset_bytes = tied->received_bytes};
            if (local < 0) {
                tied->received_bytes += crl_memory_round((size_t)param->elements * sizeof(float));
            }
        }
    }
}

static int tag_of(const tied_use *use) {
    return CRL_TAG_USER | (use->param * MAX_USES + use->use);
}

/* A position that holds several uses of a parameter is sent to once. */
static bool first_of_position(const crl_tied *tied, int t) {
    for (int o = t - tied->use[t].use; o < t; o++) {
        if (tied->use[o].position == tied->use[t].position) {
            return false;
        }
    }
    return true;
}

/* Whom a replica of position `to` gets the uses of position `from` from: of its own pipeline, in
 * turn where that has several. */
static int source_replica(const crl_mesh *mesh, int from, int to, int replica) {
    const int rows_from = crl_mesh_width(mesh, from) / mesh->data;
    const int rows_to = crl_mesh_width(mesh, to) / mesh->data;
    return replica / rows_to * rows_from + replica % rows_to % rows_from;
}

static void add_exchange(crl_tied *tied, int t, int from, int to) {
    tied->exchange[tied->exchanges] =
        (crl_route){.tag = tag_of(&tied->use[t]), .from = from, .to = to};
    tied->exchanged[tied->exchanges++] = t;
}

static int rank_of(const crl_tied *tied, int position, int replica) {
    return crl_mesh_rank(tied->config.mesh, (crl_coordinates){position, replica, 0});
}

static int own_rank(const crl_tied *tied) {
    return rank_of(tied, tied->config.position, tied->config.replica);
}

/* To all replicas of `position` that get a use from here. */
static void plan_sends(crl_tied *tied, int t, int position) {
    const crl_mesh *mesh = tied->config.mesh;
    for (int r = 0; r < crl_mesh_width(mesh, position); r++) {
        if (source_replica(mesh, tied->use[t].position, position, r) == tied->config.replica) {
            add_exchange(tied, t, own_rank(tied), rank_of(tied, position, r));
        }
    }
}

/* This rank's uses to, and the others' from, the positions that share a parameter. */
static void plan_exchange(crl_tied *tied) {
    const int position = tied->config.position, replica = tied->config.replica;
    for (int t = 0; t < tied->uses; t++) {
        const tied_use *mine = &tied->use[t];
        if (mine->local < 0) {
            const int source = source_replica(tied->config.mesh, mine->position, position, replica);
            add_exchange(tied, t, rank_of(tied, mine->position, source), own_rank(tied));
            continue;
        }
        for (int o = 0; o < tied->uses; o++) {
            const tied_use *other = &tied->use[o];
            if (other->param == mine->param && other->local < 0 && first_of_position(tied, o)) {
                plan_sends(tied, t, other->position);
            }
        }
    }
}

crl_status crl_tied_create(crl_tied **out, const crl_grad_sync_config *config) {
    crl_status status = CRL_STATUS_OK;
    crl_tied *tied = NULL;
    CRL_TRY_OUT(crl_alloc(&tied, 1, sizeof *tied));
    tied->config = *config;
    CRL_TRY_OUT(allocate(tied));
    list_uses(tied);
    plan_exchange(tied);
    *out = tied;
    tied = NULL;
out:
    crl_tied_destroy(tied);
    return status;
}

void crl_tied_destroy(crl_tied *tied) {
    if (tied) {
        crl_free(tied->use);
        crl_free(tied->request);
        crl_free(tied->exchange);
        crl_free(tied->exchanged);
        crl_free(tied);
    }
}

size_t crl_tied_bytes(const crl_tied *tied) {
    return tied->received_bytes;
}

int crl_tied_routes(const crl_tied *tied, const crl_route **out) {
    *out = tied->exchange;
    return tied->exchanges;
}

void crl_tied_bind(crl_tied *tied, crl_comm *comm, void *memory) {
    const crl_params *params = tied->config.params;
    tied->comm = comm;
    for (int t = 0; t < tied->uses; t++) {
        tied_use *use = &tied->use[t];
        use->data = use->local >= 0 ? params->gradients + params->use[use->local].offset
                                    : (float *)(void *)((char *)memory + use->offset_bytes);
    }
}

float *crl_tied_sum(const crl_tied *tied, int param) {
    for (int t = 0; t < tied->uses; t++) {
        if (tied->use[t].param == param) {
            return tied->use[t].data; /* of use 0 */
        }
    }
    return NULL;
}

static int64_t elements_of(const crl_tied *tied, const tied_use *use) {
    return tied->config.params->graph->param[use->param].elements;
}

static crl_status post(crl_tied *tied) {
    const int own = own_rank(tied);
    for (int e = 0; e < tied->exchanges; e++) {
        const crl_route *way = &tied->exchange[e];
        const tied_use *use = &tied->use[tied->exchanged[e]];
        const size_t bytes = (size_t)elements_of(tied, use) * sizeof(float);
        CRL_TRY(way->to == own ? crl_comm_recv(tied->comm, way->from, way->tag, use->data, bytes,
                                               &tied->request[e])
                               : crl_comm_send(tied->comm, way->to, way->tag, use->data, bytes,
                                               &tied->request[e]));
    }
    return CRL_STATUS_OK;
}

crl_status crl_tied_add(crl_tied *tied) {
    CRL_TRY(post(tied));
    for (int e = 0; e < tied->exchanges; e++) {
        CRL_TRY(crl_comm_wait(tied->comm, &tied->request[e], "gradient of a tied parameter", NULL,
                              NULL));
    }
    for (int t = 0; t < tied->uses; t++) {
        const tied_use *use = &tied->use[t];
        if (use->use > 0) {
            CRL_TRY(tied->config.reduce->add(tied->config.stream, tied->use[t - use->use].data,
                                             use->data, elements_of(tied, use)));
        }
    }
    return CRL_STATUS_OK;
}
