/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A profile: what a model's units cost on one device, as the planner reads it. Units are nodes of
 * the graph or groups of them, in a topological order; they may branch and skip. Where the numbers
 * come from (counted, measured, written by hand, converted) makes no difference.
 */
#pragma once

#include "engine/base/arena.h"
#include "engine/ir/recompute.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Costs are of one micro-batch on one device; a tensor-parallel group counts as one device. */
typedef struct crl_profile_unit {
    const char *name;
    double forward_s, input_s, weight_s;
    double recompute_s[CRL_RECOMPUTES]; /* what backward takes longer, by mode; [NONE] is 0 */
    double kept_bytes[CRL_RECOMPUTES];  /* from forward until backward, by mode */
    double held_bytes;                  /* from the input gradient until the weight gradient */
    double workspace_bytes;             /* while it runs */
    double parameter_bytes;             /* as they are sent when gradients are summed */
    double state_bytes;                 /* weights, gradients and optimizer state on a device */
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

#ifdef __cplusplus
}
#endif
