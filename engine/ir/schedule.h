/* SPDX-License-Identifier: Apache-2.0 */
/* Schedule contract: a pure function from sizes to a program of compute actions. */
#pragma once

#include "engine/ir/program.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct crl_schedule_request {
    int positions;     /* P, devices of the pipeline */
    int stages;        /* S, a multiple of P */
    int micro_batches; /* M of this pipeline; may be fewer than stages */
    const int *widths; /* (S) replicas per stage; NULL: all equal */
} crl_schedule_request;

typedef struct crl_schedule {
    const char *name;
    const char *help;
    bool needs_virtual_stages; /* S > P is what it is for; false: refuses S != P */
    /* INVALID when the sizes do not suit it. */
    crl_status (*build)(crl_program **out, const crl_schedule_request *request);
    /* Declared: idle share of the makespan when F = 1, B = 2 for every stage, and the most
     * micro-batches a stage holds at once. The conformance suite holds every program to them. */
    double (*bubble)(const crl_schedule_request *request);
    int (*peak_activations)(const crl_schedule_request *request, int stage);
} crl_schedule;

#ifdef __cplusplus
}
#endif
