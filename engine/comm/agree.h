/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Agreeing on a few numbers without blocking: every member gives a vector of doubles and gets the
 * sum of all, the same bits on all members. It is moved on between kernels, so that nobody waits
 * for the slowest before it has to.
 *
 * The additions follow the tree of messages, not the members' order: give parts that do not overlap
 * (everybody else's is 0) or whole numbers, whose sums are exact in any order. Refuses nothing
 * else: what does not fit is the caller's error.
 *
 *   sums go up          0            the result comes down the same way
 *   by binomial       / | \          (here 6 members; member m's parent is m without its
 *   tree             1  2  4          lowest bit)
 *                       |  |
 *                       3  5
 *
 * cost per member, W members, n doubles: at most 2 ceil(log2 W) messages of n, ceil(log2 W) deep
 * each way · memory 2 n
 */
#pragma once

#include "engine/comm/collective.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef enum crl_agree_phase {
    CRL_AGREE_REST = 0, /* nothing under way */
    CRL_AGREE_GATHER,   /* adding the children's sums */
    CRL_AGREE_UP,       /* giving this subtree's sum to the parent */
    CRL_AGREE_DOWN,     /* getting the result from the parent */
    CRL_AGREE_HAND_ON   /* giving it to the children */
} crl_agree_phase;

/* One vector, reusable: one sum at a time. All zero: nothing to release. */
typedef struct crl_agree {
    crl_group group;
    int channel;
    int64_t count;
    double *data;    /* (count) at rest the caller's: this member's part, then the sum */
    double *partial; /* (count) a child's sum */
    crl_agree_phase phase;
    int bit;                 /* GATHER, HAND_ON: the child is member me + bit */
    crl_request request;     /* the one message under way of all phases but the last */
    crl_request hand_on[32]; /* to child me + 2^i */
} crl_agree;

/* Memory for `count` doubles, zeroed. `group` is copied, its members are lent. `channel`: 0..65533,
 * unique among what the group may have in flight, all-reduces too. NOMEM. */
CRL_NODISCARD crl_status crl_agree_init(crl_agree *agree, const crl_group *group, int channel,
                                        int64_t count);
/* Aborts the job when in flight. One that is all zero is fine. */
void crl_agree_fini(crl_agree *agree);
/* Begins the sum of what is in `data`, which is not to be touched until done. Collective: group,
 * but never blocks. INVALID: in flight. */
CRL_NODISCARD crl_status crl_agree_start(crl_agree *agree);
/* Moves on without blocking. *done: at rest, and what was started last is summed. */
CRL_NODISCARD crl_status crl_agree_progress(crl_agree *agree, bool *done);
/* Blocks until done, with the deadline; `progress` (may be NULL) moves other work on meanwhile.
 * TIMEOUT as crl_comm_wait. */
CRL_NODISCARD crl_status crl_agree_wait(crl_agree *agree, const char *what,
                                        crl_progress_fn progress, void *argument);
/* The same at once for `count` doubles in `data`. Collective: group. Blocking. NOMEM, and as
 * crl_agree_wait. */
CRL_NODISCARD crl_status crl_agree_sum(const crl_group *group, int channel, double *data,
                                       int64_t count, const char *what);

#ifdef __cplusplus
}
#endif
