/* SPDX-License-Identifier: Apache-2.0 */
/* What the files of the layout search share. */
#pragma once

#include "partition/search.h"

/* A layout before it is cut; `layout.first` NULL. */
typedef struct search_candidate {
    crl_hybrid layout;
    int profile;       /* of the request */
    int mode;          /* recomputation of all stages */
    int busiest;       /* micro-batches of the busiest pipeline */
    double bound_s;    /* no step is shorter */
    double estimate_s; /* decides the order of trying */
    int index;         /* as enumerated: makes the order whole */
} search_candidate;

typedef struct search_list {
    search_candidate *item;
    int count;
} search_list;

/* The sums of a profile's units under a recomputation mode. */
typedef struct search_totals {
    double time_s;    /* of all units, forward and backward */
    double through_s; /* forward and input gradient: one micro-batch from end to end */
    double largest_s; /* of one unit */
    double state_bytes, parameter_bytes, kept_bytes;
} search_totals;

/* The limit of a request: its own, or the machine's memory; INFINITY: none. */
double crl_search_limit(const crl_search_request *request);
/* Forward, backward and what it makes again. */
double crl_search_unit_s(const crl_profile_unit *unit, int mode);
/* Sums over a profile. */
search_totals crl_search_totals(const crl_profile *profile, int mode);

/* Every candidate, by estimate. Widths live in `arena`. NOMEM. */
crl_status crl_search_enumerate(search_list *out, crl_arena *arena,
                                const crl_search_request *request);
/* The candidates of one profile and mode with unequal widths, for crl_search_enumerate: calls `add`
 * with widths (P), cuts (P) in `arena`. */
typedef crl_status search_add_fn(void *context, int pipelines, int positions, const int *widths,
                                 const int *first);
crl_status crl_search_unequal(crl_arena *arena, const crl_search_request *request, int profile,
                              int mode, search_add_fn *add, void *context);

/* Cuts of equal widths, found once for each (profile, mode, stages). Zero-initialise. */
typedef struct search_cuts {
    const crl_search_request *request;
    struct search_cut *item;
    int count;
} search_cuts;
/* first (S) lives in `arena`; NULL: no such cut. NOMEM. */
crl_status crl_search_cut(const int **out, search_cuts *cuts, crl_arena *arena, int profile,
                          int mode, int stages);
/* A cut whose stages keep the limit with what the schedule holds; NULL: there is none. */
crl_status crl_search_cut_within(const int **out, crl_arena *arena,
                                 const crl_search_request *request,
                                 const search_candidate *candidate, double limit_bytes);
void crl_search_cuts_fini(search_cuts *cuts);

/* Fills `why` of all that were found. */
void crl_search_explain(crl_search *search, double limit_bytes);
