/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Greedy by size: the largest first, each at the lowest offset that is free for its whole life. For
 * things of one size this is interval colouring and so optimal; in general it stays close
 * [pisarchyk20].
 */
#include "engine/run/memory_plan.h"

#include <stdint.h>
#include <stdlib.h>

#include "engine/base/alloc.h"

size_t crl_memory_round(size_t bytes) {
    return (bytes + (CRL_ALIGN_BYTES - 1)) / CRL_ALIGN_BYTES * CRL_ALIGN_BYTES;
}

static int by_size(const void *left, const void *right) {
    const crl_lifetime *a = *(crl_lifetime *const *)left, *b = *(crl_lifetime *const *)right;
    if (a->bytes != b->bytes) {
        return a->bytes > b->bytes ? -1 : 1;
    }
    if (a->first != b->first) {
        return a->first < b->first ? -1 : 1;
    }
    return a < b ? -1 : a > b;
}

static bool meet(const crl_lifetime *a, const crl_lifetime *b) {
    return a->first <= b->last && b->first <= a->last;
}

/* `placed` is sorted by offset: walk up, hopping over what is in the way. */
static size_t lowest_offset(crl_lifetime *const *placed, int count, const crl_lifetime *item,
                            size_t bytes) {
    size_t offset = 0;
    for (int i = 0; i < count; i++) {
        const crl_lifetime *other = placed[i];
        if (other->offset >= offset + bytes) {
            break;
        }
        const size_t end = other->offset + crl_memory_round(other->bytes);
        if (end > offset && meet(other, item)) {
            offset = end;
        }
    }
    return offset;
}

static void insert_by_offset(crl_lifetime **placed, int count, crl_lifetime *item) {
    int at = count;
    while (at > 0 && placed[at - 1]->offset > item->offset) {
        placed[at] = placed[at - 1];
        at--;
    }
    placed[at] = item;
}

crl_status crl_memory_plan(crl_lifetime *item, int count, size_t *out_peak_bytes) {
    crl_status status = CRL_STATUS_OK;
    crl_lifetime **order = NULL, **placed = NULL;
    size_t total = 0, peak = 0;
    int placed_count = 0;
    for (int i = 0; i < count; i++) {
        CRL_TRY(crl_size_add(&total, total, item[i].bytes, "memory plan"));
        CRL_TRY(crl_size_add(&total, total, CRL_ALIGN_BYTES, "memory plan"));
    }
    CRL_TRY_OUT(crl_alloc(&order, (size_t)count, sizeof *order));
    CRL_TRY_OUT(crl_alloc(&placed, (size_t)count, sizeof *placed));
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
        next->offset = lowest_offset(placed, placed_count, next, bytes);
        insert_by_offset(placed, placed_count++, next);
        if (next->offset + bytes > peak) {
            peak = next->offset + bytes;
        }
    }
    *out_peak_bytes = peak;
out:
    crl_free(order);
    crl_free(placed);
    return status;
}
