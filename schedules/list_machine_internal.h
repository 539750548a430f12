/* SPDX-License-Identifier: Apache-2.0 */
/* The state of one run of a policy: list_machine.c makes it, list.c runs it. */
#pragma once

#include "schedules/list_internal.h"

struct list_machine {
    const list_problem *problem;
    const list_policy *policy;
    double *end_s;        /* (tasks) < 0: not begun */
    double *free_s;       /* (servers) when it decides again */
    double *begin_s;      /* (servers) of its first action; < 0: none */
    double *last_s;       /* (servers) end of its last action */
    double *left_s;       /* (servers) work to do */
    double *used;         /* (servers) bytes */
    bool *asleep;         /* (servers) */
    int *position;        /* (servers) */
    int *next;            /* (S x kinds) micro-batch that comes next */
    int *in_flight, *due; /* (stages of a server, all servers) between F and I; W to do */
    int *slot;            /* (servers + 1) first of its stages in the two above */
    int *inputs;          /* (servers) I to do */
    int *last_kind;       /* (servers) of F and I */
    int done;
    int *sequence;
};
