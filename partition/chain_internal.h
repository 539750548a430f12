/* SPDX-License-Identifier: Apache-2.0 */
/* Optimal cuts of a chain of units into stages, by dynamic programming. */
#pragma once

#include "engine/ir/partitioner.h"

/* Minimised: the largest time of a stage or boundary. Arrays may be NULL: all zero. */
typedef struct chain_problem {
    int units, stages;          /* <= units */
    bool fewer_stages;          /* at most so many */
    const double *time;         /* (units) */
    const double *state_bytes;  /* (units) held once */
    const double *active_bytes; /* (units) held once per micro-batch in flight */
    const int *in_flight;       /* (stages) of the request; NULL: as many as stages to the end */
    const int *widths;          /* (stages) that a stage's time is shared by; NULL: 1 each */
    const double *boundary;     /* (units) cost of the cut after unit j */
    const bool *may_cut_before; /* (units) NULL: everywhere */
    double limit_bytes;         /* INFINITY: none */
} chain_problem;

/* Sets out->stages and out->first; *feasible is false when no cut keeps the limit. NOMEM. */
crl_status crl_chain_solve(crl_partition *out, bool *feasible, const chain_problem *problem);
/* The least, over all cuts, of the largest stage memory. NOMEM. */
crl_status crl_chain_least_bytes(double *out, const chain_problem *problem);
