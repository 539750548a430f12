/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The search for hybrid layouts: which pipelines, widths, cuts, schedule, recomputation and
 * micro-batches make a step the shortest within a device's memory. Pure: the same request gives the
 * same answer on every rank. Explained in docs/planner.md.
 */
#pragma once

#include "partition/predict.h"

#ifdef __cplusplus
extern "C" {
#endif

/* crl_predict, or a stand-in. */
typedef crl_status crl_predict_fn(crl_prediction *out, double *position_bytes,
                                  const crl_hybrid *layout, const crl_profile *profile,
                                  const crl_machine *machine);

enum { CRL_SEARCH_KEEPS = 10, CRL_SEARCH_REFUSED = 2, CRL_SEARCH_WHY_BYTES = 128 };

/* 0 and NULL: free to choose, unless said otherwise. */
typedef struct crl_search_request {
    const crl_profile *const *profile; /* of one model, a micro-batch size each */
    int profiles;
    const crl_machine *machine;
    crl_predict_fn *predict;
    const void *const *schedules; /* registry of crl_schedule */
    int devices;                  /* all are used */
    int tensor;                   /* devices of a tensor group, as the profiles say; 0: 1 */
    int64_t global_batch;         /* samples of a step */
    double memory_limit_bytes;    /* of a device; 0: what the machine has */
    const char *schedule;         /* only this one */
    int positions;                /* exactly so many */
    int most_positions;
    int virtual_stages;   /* exactly so many per position */
    int lanes;            /* exactly so many; has to be a power of two */
    int recompute;        /* 0: any; else 1 + the only mode */
    bool equal_widths;    /* no pipeline with a wider position */
    int64_t most_actions; /* simulated in all, 0: 6 million, of many devices more */
} crl_search_request;

/* One layout; what it points to lives in the search. */
typedef struct crl_found {
    crl_hybrid layout;
    const crl_profile *profile; /* lent: one of the request */
    crl_prediction prediction;
    double *position_bytes; /* (P) */
    bool fits;
    char why[CRL_SEARCH_WHY_BYTES]; /* it loses to the best; "" for that one */
} crl_found;

typedef struct crl_search {
    crl_arena arena;
    int count;   /* that fit, best first */
    int refused; /* after those: would be faster than the best, but do not fit */
    crl_found found[CRL_SEARCH_KEEPS + CRL_SEARCH_REFUSED];
    int64_t candidates, predicted; /* how many there were, how many were simulated */
} crl_search;

/* INVALID: a wrong request. UNSUPPORTED "plan: ...": nothing fits; says which limit stands in the
 * way and the least change that was found to help. NOMEM. */
CRL_NODISCARD crl_status crl_search_layouts(crl_search **out, const crl_search_request *request);
/* NULL is fine. */
void crl_search_destroy(crl_search *search);

/* The least number of lanes, a power of two not below the widest position, with which M
 * micro-batches are dealt out as evenly as any number of lanes can. `widths` (P) of the whole job.
 */
int crl_search_lanes(int micro_batches, int positions, const int *widths);
/* Most micro-batches that any of `replicas` has, of M in L lanes. */
int crl_search_most_micro_batches(int micro_batches, int lanes, int replicas);

#ifdef __cplusplus
}
#endif
