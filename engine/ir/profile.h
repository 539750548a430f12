/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A profile: what a model's units cost on one device, as the planner reads it. Units are nodes of
 * the graph or groups of them, in a topological order; they may branch and skip. Where the numbers
 * come from (counted, measured, written by hand, converted) makes no difference.
 */
#pragma once

#include <stdint.h>

#include "engine/base/arena.h"
#include "engine/ir/recompute.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Costs are of one micro-batch on one device; a tensor-parallel group counts as one device. */
typedef struct crl_profile_unit {
    const char *name;
    double forward_s, input_s, weight_s;
    double split_s; /* what I and W apart take longer than B, which takes input + weight */
    double recompute_s[CRL_RECOMPUTES]; /* what backward takes longer, by mode; [NONE] is 0 */
    double kept_bytes[CRL_RECOMPUTES];  /* from forward until backward, by mode */
    double held_bytes;                  /* from the input gradient until the weight gradient */
    double workspace_bytes;             /* while it runs */
    double parameter_bytes;             /* as they are sent when gradients are summed */
    double state_bytes;                 /* weights, gradients and optimizer state on a device */
    double add_s;                       /* adding its gradients of one lane to those of another */
    double update_s;                    /* norm and optimizer of its parameters, once a step */
    double output_bytes;                /* of its result: sent where it crosses a cut */
    bool no_gradient;                   /* its result needs no gradient: it crosses one way only */
    int inputs;
    const int *input; /* units whose results it reads, ascending, all before it */
} crl_profile_unit;

typedef struct crl_profile {
    crl_arena arena;    /* all texts and arrays */
    const char *source; /* where the numbers come from, in words */
    int64_t micro_batch;
    double tokens_per_sample; /* 1 where samples have no tokens */
    int units;
    crl_profile_unit *unit;
} crl_profile;

/* A profile of `units` units that cost nothing and have neither names nor inputs, of 1 sample of 1
 * token, its source "". To be filled, then checked. INVALID: units < 1; NOMEM. */
CRL_NODISCARD crl_status crl_profile_create(crl_profile **out, int units);
/* NULL is fine. */
void crl_profile_destroy(crl_profile *profile);
/* Gives a unit copies of its name and of the units it reads. INVALID: no such unit; NOMEM. */
CRL_NODISCARD crl_status crl_profile_name_unit(crl_profile *profile, int unit, const char *name,
                                               int inputs, const int *input);
/* The unit called `name`, or -1. */
int crl_profile_find(const crl_profile *profile, const char *name);
/* INVALID "profile unit x: ...": no name or a second one of that name, a number that is negative or
 * not finite, an input that does not come before its reader or is given twice. NOMEM. */
CRL_NODISCARD crl_status crl_profile_check(const crl_profile *profile);

/* The numbers of a unit in the order files have them: one list for reader, writer and check. */
typedef struct crl_profile_number {
    const char *name; /* "forward", "kept", "kept_full" */
    size_t offset;    /* of the double in crl_profile_unit */
    bool seconds;     /* false: bytes */
} crl_profile_number;
/* Ends with a row whose name is NULL. */
extern const crl_profile_number crl_profile_numbers[];

#ifdef __cplusplus
}
#endif
