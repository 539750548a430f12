/* SPDX-License-Identifier: Apache-2.0 */
/* The queues of local.c. Refuses to lock: that is the mailbox's. */
#include "engine/comm/local_internal.h"

void crl_local_queue_append(crl_local_queue *to, crl_local_op *item) {
    item->next = NULL;
    if (to->last != NULL) {
        to->last->next = item;
    } else {
        to->first = item;
    }
    to->last = item;
    item->queued = true;
}

crl_local_op *crl_local_queue_take(crl_local_queue *from, int tag, const crl_local_op *only) {
    crl_local_op *before = NULL;
    for (crl_local_op *item = from->first; item != NULL; before = item, item = item->next) {
        if (only != NULL ? item != only : item->tag != tag) {
            continue;
        }
        *(before != NULL ? &before->next : &from->first) = item->next;
        if (from->last == item) {
            from->last = before;
        }
        item->queued = false;
        return item;
    }
    return NULL;
}
