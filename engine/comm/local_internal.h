/* SPDX-License-Identifier: Apache-2.0 */
/* Messages between threads that have not met yet, in queues of a mailbox; see local.c. */
#pragma once

#include "engine/base/alloc.h"

typedef struct crl_local_op {
    struct crl_local_op *next; /* in a mailbox queue or in the free list */
    void *data;
    size_t bytes;
    int peer, tag;
    bool receiving;
    bool queued;           /* under the lock of the mailbox */
    CRL_ATOMIC(bool) open; /* false: the copy is done, or the slot is free */
} crl_local_op;

typedef struct crl_local_queue {
    crl_local_op *first, *last;
} crl_local_queue;

void crl_local_queue_append(crl_local_queue *to, crl_local_op *item);
/* Takes out the first item with `tag`, or just `only` when that is given; NULL: there is none. */
crl_local_op *crl_local_queue_take(crl_local_queue *from, int tag, const crl_local_op *only);
