/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Optimal stages of a chain with a number of replicas each: cuts × widths × memory. The caller says
 * what a stage and a boundary take. Pure. Explained in docs/planner.md.
 */
#pragma once

#include "engine/base/status.h"

#ifdef __cplusplus
extern "C" {
#endif

enum { CRL_WIDTHS_MAX_UNITS = 8192, CRL_WIDTHS_MAX_DEVICES = 4096 };

/* Units [first, last) and their sums. */
typedef struct crl_width_stage {
    int first, last;
    double time_s, parameter_bytes, state_bytes, active_bytes;
} crl_width_stage;

/* Seconds and bytes, 0 or more. NULL functions: nothing. */
typedef struct crl_width_costs {
    const void *context;
    /* Of a stage on `replicas` devices; never less for a stage with more units. */
    double (*stage_s)(const void *context, const crl_width_stage *stage, int replicas);
    /* Of the cut after `unit`, as the stage with `replicas` beside it has it: the one after it when
     * `entering`, else the one before it. What counts is the larger. */
    double (*boundary_s)(const void *context, int unit, int replicas, bool entering);
    /* Of a device of a stage with `stages_left` stages from it to the end, itself included; never
     * less for more units or more stages. */
    double (*bytes)(const void *context, const crl_width_stage *stage, int replicas,
                    int stages_left);
} crl_width_costs;

typedef struct crl_width_problem {
    int units, devices;
    bool all_devices;              /* every one has to be used; false: at most so many */
    int most_replicas;             /* of a stage; 0: as many as there are devices */
    int most_stages;               /* 0: as many as can be */
    const double *time_s;          /* (units) each, or NULL: all 0 */
    const double *parameter_bytes; /* (units) */
    const double *state_bytes;     /* (units) */
    const double *active_bytes;    /* (units) */
    const bool *may_cut_before;    /* (units) NULL: everywhere */
    crl_width_costs costs;
    double limit_bytes; /* of a device; 0: none */
} crl_width_problem;

typedef struct crl_width_plan {
    int stages, devices;
    int *first;    /* (min(units, devices)) caller's */
    int *replicas; /* (min(units, devices)) caller's */
    double bottleneck_s;
    double peak_bytes;
} crl_width_plan;

/* The least largest time of a stage or boundary; of equal ones the fewest stages, then (at most so
 * many devices) the fewest devices. UNSUPPORTED "<name>: ...": nothing fits, with the limit and the
 * least change that does; INVALID: sizes; NOMEM. */
CRL_NODISCARD crl_status crl_widths_solve(crl_width_plan *inout, const char *name,
                                          const crl_width_problem *problem);
/* The least limit that something fits in; INFINITY: nothing does, whatever the limit. INVALID,
 * NOMEM. */
CRL_NODISCARD crl_status crl_widths_least_bytes(double *out, const char *name,
                                                const crl_width_problem *problem);

#ifdef __cplusplus
}
#endif
