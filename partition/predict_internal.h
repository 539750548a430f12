/* SPDX-License-Identifier: Apache-2.0 */
/* The steps of a prediction. */
#pragma once

#include "engine/ir/simulate.h"
#include "partition/predict.h"

/* What a stage holds and sends once, whatever its micro-batches. */
typedef struct stage_sums {
    double parameter_bytes, state_bytes, workspace_bytes;
    double add_s, update_s;
    double split_s; /* what I and W apart take longer than B */
    int units;
} stage_sums;

typedef struct predictor {
    const crl_hybrid *layout;
    const crl_profile *profile;
    const crl_machine *machine;
    int lanes, rows;      /* L; replicas of all positions in one pipeline */
    int pipeline;         /* the one that is simulated: no other takes longer */
    int micro_batches;    /* of that pipeline */
    int *first_row;       /* (P + 1) */
    crl_range *range;     /* (rows) micro-batches, counted from the pipeline's first */
    int *node;            /* (rows) of the cluster */
    int *position;        /* (S) */
    crl_stage_cost *cost; /* (S) */
    stage_sums *sums;     /* (S) */
    crl_schedule_request request;
    crl_program *program;
    crl_simulation *simulation;
} predictor;

/* INVALID: a layout that does not suit the profile or the machine. */
crl_status crl_predict_check(const crl_hybrid *layout, const crl_profile *profile,
                             const crl_machine *machine);
/* Rows, their nodes and micro-batches. `self` has layout, profile, machine. NOMEM. */
crl_status crl_predict_place(predictor *self);
/* Costs and sums of every stage. */
crl_status crl_predict_stages(predictor *self);
/* The program of the pipeline, timed. */
crl_status crl_predict_run(predictor *self);
/* Seconds from the end of the pipeline until the last gradients are summed. */
double crl_predict_reduce_s(const predictor *self);
/* Bytes of a device of position p. */
double crl_predict_bytes(const predictor *self, int position);
/* The least power of two that is not below any width. */
int crl_predict_lanes(const crl_hybrid *layout);
/* Replicas of a position in one pipeline. */
int crl_predict_width(const crl_hybrid *layout, int position);
