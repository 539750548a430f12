/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Messages in the sender's order are dealt out to channels such that on each the receiver's order
 * ascends too: the fewest ascending sequences that a permutation is made of, by patience sorting.
 *
 *   receiver's order   0 3 1 4 2      last of each channel, descending:
 *   channel            0 0 1 0 1      [0] [3] [3,1] [4,1] [4,2]
 *
 * As many channels as the longest descending run of messages are needed, since no two of those can
 * share one, and no more are made: the first channel whose last message is below this one is taken.
 */
#include "engine/comm/route.h"

#include <stdlib.h>

#include "engine/base/alloc.h"

typedef struct post {
    int sent, received, message;
} post;

static int by_sender(const void *a, const void *b) {
    const post *x = a, *y = b;
    return (x->sent > y->sent) - (x->sent < y->sent);
}

/* The first channel whose last is below `received`; lasts descend. */
static int find_channel(const int *last, int channels, int received) {
    int low = 0, high = channels;
    while (low < high) {
        const int middle = (low + high) / 2;
        if (last[middle] < received) {
            high = middle;
        } else {
            low = middle + 1;
        }
    }
    return low;
}

crl_status crl_routes_assign(int *channel, int *channels, const int *sender_order,
                             const int *receiver_order, int messages) {
    post *posts = NULL;
    int *last = NULL, used = 0;
    crl_status status;
    CRL_TRY_OUT(crl_alloc(&posts, (size_t)messages, sizeof *posts));
    CRL_TRY_OUT(crl_alloc(&last, (size_t)messages, sizeof *last));
    for (int i = 0; i < messages; i++) {
        posts[i] = (post){sender_order[i], receiver_order[i], i};
    }
    qsort(posts, (size_t)messages, sizeof *posts, by_sender);
    for (int i = 0; i < messages; i++) {
        const int c = find_channel(last, used, posts[i].received);
        last[c] = posts[i].received;
        channel[posts[i].message] = c;
        used += c == used;
    }
    *channels = used;
out:
    crl_free(posts);
    crl_free(last);
    return status;
}
