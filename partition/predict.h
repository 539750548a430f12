/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The cost model: how long a step of a whole hybrid layout takes on a machine, and what it needs.
 * Pure. Explained, with units and an example, in docs/planner.md.
 */
#pragma once

#include "engine/ir/machine.h"
#include "engine/ir/profile.h"
#include "engine/ir/schedule.h"

#ifdef __cplusplus
extern "C" {
#endif

/* A whole layout. Ranks are placed as engine/comm/mesh.h does: tensor shards closest, then the
 * positions of a pipeline, then pipelines. */
typedef struct crl_hybrid {
    int tensor;        /* devices of a tensor group; the profile's costs are already divided */
    int pipelines;     /* D: equal pipelines side by side */
    int positions;     /* P */
    int stages;        /* S */
    const int *widths; /* (P) replicas of a position inside one pipeline; NULL: 1 each */
    const int *first;  /* (S) first unit of each stage */
    const unsigned char *recompute; /* (S) mode of each stage; NULL: none */
    const crl_schedule *schedule;
    int group;         /* for the schedule; 0: P */
    int micro_batches; /* M of a step, over all pipelines */
    int lanes;         /* L; 0: the least power of two not below the widths */
} crl_hybrid;

typedef struct crl_prediction {
    double step_s;     /* pipeline_s + reduce_s + update_s */
    double pipeline_s; /* first action to last, simulated action by action */
    double reduce_s;   /* of the gradient sums, what backward does not hide */
    double update_s;   /* optimizer */
    double bubble;     /* idle share of the pipeline */
    double exposed_s;  /* communication that computing does not hide, messages and sums */
    double peak_bytes; /* of the position that needs the most */
    int peak_position;
    double tokens_per_s, samples_per_s;
    double price_per_billion_tokens; /* 0: the machine has no price */
} crl_prediction;

/* INVALID: a layout that does not suit the profile or the machine; what the schedule reports.
 * NOMEM. `position_bytes` (P, may be NULL) gets the memory of each position. Whether that fits is
 * for the caller to say. The profile is one that crl_profile_check accepts. */
CRL_NODISCARD crl_status crl_predict(crl_prediction *out, double *position_bytes,
                                     const crl_hybrid *layout, const crl_profile *profile,
                                     const crl_machine *machine);

#ifdef __cplusplus
}
#endif
