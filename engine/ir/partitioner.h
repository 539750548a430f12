/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Partitioner contract: a pure function from costs to cuts. The units are the graph's nodes in
 * order (or anything else that forms a chain).
 */
#pragma once

#include "engine/base/option.h"

#ifdef __cplusplus
extern "C" {
#endif

enum { CRL_PARTITION_MAX_STAGES = 1024 };

typedef struct crl_partition_request {
    int units;
    const double *compute_s;        /* (units) forward + backward of one micro-batch */
    const double *state_bytes;      /* (units) weights, gradients, optimizer state: held once */
    const double *activation_bytes; /* (units) held per micro-batch in flight */
    const double *boundary_s;       /* (units) time of the cut after unit j, both directions */
    const bool *may_cut_before;     /* (units) NULL: everywhere */
    int stages;                     /* how many to make */
    bool fewer_stages;              /* true: at most that many */
    double memory_limit_bytes;      /* per device; 0: none */
    /* (stages) micro-batches that stage s holds at once, as the schedule declares; only without
     * fewer_stages. NULL: S - s, as in 1F1B */
    const int *in_flight;
    /* (stages) replicas that share the time of stage s; only without fewer_stages. NULL: 1 each */
    const int *widths;
    const char *const *unit_name; /* (units) for manual cuts and messages; may be NULL */
    crl_text_list cuts;           /* manual: name or index of the first unit of stages 1.. */
} crl_partition_request;

typedef struct crl_partition {
    int stages;
    int first[CRL_PARTITION_MAX_STAGES]; /* first unit of each stage */
    double bottleneck_s;                 /* largest stage or boundary time */
    double peak_bytes;                   /* largest stage memory */
} crl_partition;

typedef struct crl_partitioner {
    const char *name;
    const char *help;
    bool uses_cuts; /* false: cuts in the request would be ignored, so a config with some is refused
                     */
    /* INVALID: bad request. UNSUPPORTED: no cut keeps the limit; the message gives the limit and
     * the least memory that would fit. */
    crl_status (*cut)(crl_partition *out, const crl_partition_request *request);
} crl_partitioner;

#ifdef __cplusplus
}
#endif
