/* SPDX-License-Identifier: Apache-2.0 */
/* The table of wires, the choice of one, and the life of parcels; see wire_internal.h. */
#include "engine/comm/wire.h"

#include <string.h>

#include "engine/base/alloc.h"
#include "engine/base/registry.h"
#include "engine/comm/wire_internal.h"

#define CRL_WIRE(name) &crl_wire_##name,
const void *const crl_wires[] = {
#include "engine/comm/wires.def"
    NULL,
};

crl_status crl_wire_find(const crl_wire_kind **out, const char *name,
                         const crl_wire_config *config) {
    const void *found = NULL;
    const bool any = strcmp(name, "auto") == 0;
    if (!any) {
        CRL_TRY(crl_registry_find(&found, crl_wires, "wire", name));
    }
    const crl_wire_kind *kind = found;
    if (crl_device_is_host(config->device)) {
        *out = NULL;
        return CRL_STATUS_OK;
    }
    if (!any) {
        CRL_TRY(kind->usable(config));
        *out = kind;
        return CRL_STATUS_OK;
    }
    crl_status status = CRL_STATUS_UNSUPPORTED;
    for (int i = 0; crl_wires[i] && status == CRL_STATUS_UNSUPPORTED; i++) {
        crl_error_clear(); /* why the one before is not usable */
        kind = crl_wires[i];
        status = kind->usable(config);
    }
    CRL_TRY(status);
    *out = kind;
    return CRL_STATUS_OK;
}

enum { BLOCK_PARCELS = 32, MOST_BEFOREHAND = 512 };

struct crl_parcel_block {
    struct crl_parcel_block *next;
    crl_parcel parcel[BLOCK_PARCELS];
};

void crl_parcel_blocks_free(const crl_device *device, crl_parcel_block *blocks) {
    while (blocks) {
        crl_parcel_block *block = blocks;
        blocks = block->next;
        for (int i = 0; i < BLOCK_PARCELS; i++) {
            crl_device_event_destroy(device, block->parcel[i].posted);
            crl_device_event_destroy(device, block->parcel[i].own);
        }
        crl_free(block);
    }
}

void crl_parcel_blocks_move(crl_wire_base *base, crl_parcel_block **chain) {
    crl_parcel_block **end = chain;
    while (*end) {
        end = &(*end)->next;
    }
    *end = base->blocks;
    base->blocks = NULL;
    base->first = base->last = base->free = NULL;
}

static crl_status add_block(crl_wire_base *base) {
    const crl_device *device = base->config.device;
    crl_parcel_block *block = NULL;
    crl_status status;
    CRL_TRY_OUT(crl_alloc(&block, 1, sizeof *block));
    for (int i = 0; i < BLOCK_PARCELS; i++) {
        CRL_TRY_OUT(crl_device_event_create(device, &block->parcel[i].posted));
        CRL_TRY_OUT(crl_device_event_create(device, &block->parcel[i].own));
    }
    for (int i = BLOCK_PARCELS - 1; i >= 0; i--) {
        block->parcel[i].next = base->free;
        base->free = &block->parcel[i];
    }
    block->next = base->blocks;
    base->blocks = block;
    block = NULL;
out:
    crl_parcel_blocks_free(device, block);
    return status;
}

crl_status crl_wire_base_init(crl_wire_base *base, const crl_wire_config *config,
                              const crl_parcel_ops *ops) {
    base->config = *config;
    base->ops = ops;
    /* Those that drain need some more. */
    const int wanted = config->requests < MOST_BEFOREHAND ? config->requests : MOST_BEFOREHAND;
    for (int parcels = 0; parcels < wanted + BLOCK_PARCELS; parcels += BLOCK_PARCELS) {
        CRL_TRY(add_block(base));
    }
    return CRL_STATUS_OK;
}

void crl_wire_base_fini(crl_wire_base *base) {
    crl_parcel_blocks_free(base->config.device, base->blocks);
}

static crl_status take_parcel(crl_wire_base *base, crl_parcel **out) {
    if (!base->free) {
        CRL_TRY(add_block(base));
    }
    crl_parcel *parcel = base->free;
    base->free = parcel->next;
    parcel->next = NULL;
    parcel->through = NULL;
    parcel->state = CRL_PARCEL_MOVING;
    parcel->detached = false;
    parcel->phase = 0;
    *out = parcel;
    return CRL_STATUS_OK;
}

static crl_status post(crl_wire *wire, const crl_request *what, void *data, size_t bytes,
                       crl_request *request) {
    crl_wire_base *base = crl_wire_base_of(wire);
    crl_parcel *parcel = NULL;
    CRL_TRY(crl_comm_attend(base->config.host));
    CRL_TRY(take_parcel(base, &parcel));
    parcel->peer = what->peer;
    parcel->tag = what->tag;
    parcel->receiving = what->receiving;
    parcel->data = data;
    parcel->bytes = bytes;
    if (bytes > 0) {
        CRL_TRY(crl_device_event_record(base->config.device, parcel->posted, base->config.stream));
    }
    CRL_TRY(base->ops->start(wire, parcel)); /* one that fails is left to the end of the job */
    *(base->last ? &base->last->next : &base->first) = parcel;
    base->last = parcel;
    *request = *what;
    request->slot = parcel;
    request->active = true;
    return CRL_STATUS_OK;
}

crl_status crl_wire_send(crl_wire *wire, int peer, int tag, const void *data, size_t bytes,
                         crl_request *request) {
    const crl_request what = {.peer = peer, .tag = tag};
    return post(wire, &what, (void *)(uintptr_t)data, bytes, request);
}

crl_status crl_wire_recv(crl_wire *wire, int peer, int tag, void *data, size_t bytes,
                         crl_request *request) {
    const crl_request what = {.peer = peer, .tag = tag, .receiving = true};
    return post(wire, &what, data, bytes, request);
}

crl_status crl_parcel_queued(crl_wire_base *base, crl_parcel *parcel, crl_stream *stream) {
    CRL_TRY(crl_device_event_record(base->config.device, parcel->own, stream));
    parcel->through = parcel->own;
    parcel->state = CRL_PARCEL_QUEUED;
    return CRL_STATUS_OK;
}

static crl_status move(crl_wire *wire, crl_parcel *parcel) {
    crl_wire_base *base = crl_wire_base_of(wire);
    const crl_parcel_state state = parcel->state;
    const int phase = parcel->phase;
    if (parcel->state == CRL_PARCEL_MOVING) {
        CRL_TRY(base->ops->advance(wire, parcel));
    }
    if (parcel->state == CRL_PARCEL_QUEUED) {
        bool passed = !parcel->through;
        if (!passed) {
            CRL_TRY(crl_device_event_query(base->config.device, parcel->through, &passed));
        }
        parcel->state = passed ? CRL_PARCEL_DONE : CRL_PARCEL_QUEUED;
        base->busy = base->busy || !passed;
    }
    /* What has moved may move on at once, and nobody will bring news of that. */
    base->busy = base->busy || parcel->state != state || parcel->phase != phase;
    return CRL_STATUS_OK;
}

static bool is_free(crl_wire *wire, crl_parcel *parcel) {
    const crl_parcel_ops *ops = crl_wire_base_of(wire)->ops;
    return parcel->state == CRL_PARCEL_DONE && parcel->detached &&
           (!ops->release || ops->release(wire, parcel));
}

static crl_status move_all(crl_wire *wire) {
    crl_wire_base *base = crl_wire_base_of(wire);
    crl_parcel **link = &base->first;
    base->busy = false;
    base->last = NULL;
    crl_status status = CRL_STATUS_OK;
    while (*link) {
        crl_parcel *parcel = *link;
        status = status ? status : move(wire, parcel);
        if (!status && is_free(wire, parcel)) {
            *link = parcel->next;
            parcel->next = base->free;
            base->free = parcel;
        } else {
            base->last = parcel;
            link = &parcel->next;
        }
    }
    return status;
}

crl_status crl_wire_progress(crl_wire *wire, bool *busy) {
    CRL_TRY(crl_comm_attend(crl_wire_base_of(wire)->config.host));
    CRL_TRY(move_all(wire));
    *busy = crl_wire_base_of(wire)->busy;
    return CRL_STATUS_OK;
}

crl_status crl_wire_test(crl_wire *wire, crl_request *request, bool follow, bool *done) {
    crl_wire_base *base = crl_wire_base_of(wire);
    crl_parcel *parcel = request->slot;
    CRL_TRY(crl_comm_attend(base->config.host));
    CRL_TRY(move_all(wire));
    *done = parcel->state == CRL_PARCEL_DONE || (follow && parcel->state == CRL_PARCEL_QUEUED);
    if (!*done) {
        return CRL_STATUS_OK;
    }
    if (parcel->state == CRL_PARCEL_QUEUED) {
        CRL_TRY(crl_device_event_follow(base->config.device, base->config.stream, parcel->through));
    }
    if (base->ops->detach) {
        base->ops->detach(wire, parcel);
    }
    parcel->detached = true;
    request->slot = NULL;
    request->active = false;
    return CRL_STATUS_OK;
}
