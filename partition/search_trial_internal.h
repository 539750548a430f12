/* SPDX-License-Identifier: Apache-2.0 */
/* Trying candidates: from a layout without cuts to a prediction that is kept or not. */
#pragma once

#include "partition/search_internal.h"

typedef struct search_trial {
    const crl_search_request *request;
    crl_search *search; /* what is kept so far */
    double limit_bytes; /* INFINITY: none */
    int64_t actions;    /* that may still be simulated */
    int64_t effort;     /* of those, for schedules that take long to build */
    search_cuts cuts;
    double least_bytes; /* of all that did not fit */
    char least_layout[96];
} search_trial;

/* What predicting a layout takes of the actions. */
int64_t crl_search_actions(const crl_hybrid *layout);
/* Cuts and predicts a candidate, and keeps it where it is among the best. What the schedule or the
 * cost model refuses is passed over. NOMEM, INTERNAL. */
crl_status crl_search_try(search_trial *trial, const search_candidate *candidate);
/* Moves cuts of one that was found by single units, as long as the step gets shorter and fits. */
crl_status crl_search_polish(search_trial *trial, int index);
/* Puts the found ones in order. */
void crl_search_sort(crl_search *search);
void crl_search_trial_fini(search_trial *trial);
