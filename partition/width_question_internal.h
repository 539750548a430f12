/* SPDX-License-Identifier: Apache-2.0 */
/* One question about a chain: is there a plan whose stages keep a time and a memory? */
#pragma once

#include <stdint.h>

#include "partition/widths.h"

typedef struct width_question {
    const crl_width_problem *problem;
    int replicas, stages;           /* the most of each */
    double time_s, bytes;           /* to be kept */
    int16_t *fewest;                /* (units + 1)(devices + 1) stages, see width_question.c */
    double next_time_s, next_bytes; /* the least that was refused */
} width_question;

/* INVALID: sizes; NOMEM. `name` begins messages. */
crl_status crl_width_question_init(width_question *self, const char *name,
                                   const crl_width_problem *problem);
/* Frees it; zero-initialised is fine. */
void crl_width_question_fini(width_question *self);
/* True when a plan keeps both. Sets next_time_s, next_bytes where the answer is false. */
bool crl_width_question_ask(width_question *self, double time_s, double bytes);
/* The plan of a question answered with true, with its figures: the shortest stages first, of the
 * fewest replicas. */
void crl_width_question_trace(crl_width_plan *plan, width_question *self);
