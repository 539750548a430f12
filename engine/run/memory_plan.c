/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Greedy by size: the largest first, each at the lowest offset that is free for its whole life. For
 * things of one size this is interval colouring and so optimal; in general it stays close
 * [pisarchyk20].
 *
 * cost: n things in k different places: n k log(n/k). A pipeline of thousands of micro-batches has
 * few places, those of the micro-batches in flight.
 */
#include "engine/run/memory_plan.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "engine/base/alloc.h"

size_t crl_memory_round(size_t bytes) {
    return (bytes + (CRL_ALIGN_BYTES - 1)) / CRL_ALIGN_BYTES * CRL_ALIGN_BYTES;
}

static int by_size(const void *left, const void *right) {
    const crl_lifetime *a = *(crl_lifetime *const *)left, *b = *(crl_lifetime *const *)right;
    const size_t a_bytes = crl_memory_round(a->bytes), b_bytes = crl_memory_round(b->bytes);
    if (a_bytes != b_bytes) {
        return a_bytes > b_bytes ? -1 : 1;
    }
    if (a->first != b->first) {
        return a->first < b->first ? -1 : 1;
    }
    return a < b ? -1 : a > b;
}

/*
 * Things of one size at one offset: their lives follow each other. They arrive in the order of
 * their `first` (by_size), so `item` is sorted by time.
 */
typedef struct slot {
    size_t offset, end;
    crl_lifetime **item; /* (capacity) of the pool */
    int items, capacity;
} slot;

/* Slots by ascending offset; their lists come from one pool. A list that doubles when it is full
 * takes less than 4 places of the pool per item. */
typedef struct plan {
    slot *slot;
    int slots;
    crl_lifetime **pool;
    size_t pool_used;
} plan;

enum { POOL_PER_ITEM = 4 };

/* Does one of the slot's things live while `other` does? */
static bool meets(const slot *s, const crl_lifetime *other) {
    int low = 0, high = s->items; /* the first thing that does not end before `other` begins */
    while (low < high) {
        const int middle = low + (high - low) / 2;
        if (s->item[middle]->last < other->first) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    return low < s->items && s->item[low]->first <= other->last;
}

/* Walks up, hopping over what is in the way. */
static size_t lowest_offset(const plan *p, const crl_lifetime *item, size_t bytes) {
    size_t offset = 0;
    for (int i = 0; i < p->slots && p->slot[i].offset < offset + bytes; i++) {
        if (p->slot[i].end > offset && meets(&p->slot[i], item)) {
            offset = p->slot[i].end;
        }
    }
    return offset;
}

static void append(plan *p, slot *s, crl_lifetime *item) {
    if (s->items == s->capacity) {
        const int capacity = s->capacity > 0 ? 2 * s->capacity : 1;
        crl_lifetime **room = p->pool + p->pool_used;
        p->pool_used += (size_t)capacity;
        for (int i = 0; i < s->items; i++) {
            room[i] = s->item[i];
        }
        s->item = room;
        s->capacity = capacity;
    }
    s->item[s->items++] = item;
}

/* Puts the item into the slot of its offset and size, a new one if need be. */
static void place(plan *p, crl_lifetime *item, size_t bytes) {
    int at = p->slots;
    while (at > 0 && p->slot[at - 1].offset > item->offset) {
        at--;
    }
    for (int i = at; i > 0 && p->slot[i - 1].offset == item->offset; i--) {
        if (p->slot[i - 1].end == item->offset + bytes) {
            append(p, &p->slot[i - 1], item);
            return;
        }
    }
    memmove(&p->slot[at + 1], &p->slot[at], (size_t)(p->slots++ - at) * sizeof *p->slot);
    p->slot[at] = (slot){.offset = item->offset, .end = item->offset + bytes};
    append(p, &p->slot[at], item);
}

crl_status crl_memory_plan(crl_lifetime *item, int count, size_t *out_peak_bytes) {
    crl_status status = CRL_STATUS_OK;
    crl_lifetime **order = NULL;
    plan p = {0};
    size_t total = 0, peak = 0;
    for (int i = 0; i < count; i++) {
        CRL_TRY(crl_size_add(&total, total, item[i].bytes, "memory plan"));
        CRL_TRY(crl_size_add(&total, total, CRL_ALIGN_BYTES, "memory plan"));
    }
    CRL_TRY_OUT(crl_alloc(&order, (size_t)count, sizeof *order));
    CRL_TRY_OUT(crl_alloc(&p.slot, (size_t)count, sizeof *p.slot));
    CRL_TRY_OUT(crl_alloc(&p.pool, (size_t)count, POOL_PER_ITEM * sizeof(crl_lifetime *)));
    for (int i = 0; i < count; i++) {
        order[i] = &item[i];
    }
    qsort(order, (size_t)count, sizeof *order, by_size);
    for (int i = 0; i < count; i++) {
        crl_lifetime *next = order[i];
        const size_t bytes = crl_memory_round(next->bytes);
        next->offset = 0;
        if (bytes == 0) {
            continue;
        }
        next->offset = lowest_offset(&p, next, bytes);
        place(&p, next, bytes);
        if (next->offset + bytes > peak) {
            peak = next->offset + bytes;
        }
    }
    *out_peak_bytes = peak;
out:
    crl_free(order);
    crl_free(p.slot);
    crl_free(p.pool);
    return status;
}
