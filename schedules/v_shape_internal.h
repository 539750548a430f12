/* SPDX-License-Identifier: Apache-2.0 */
/* Schedules on a V: position p runs stages p and 2P-p-1, so the last stage meets the first. */
#pragma once

#include "engine/ir/schedule.h"

/* What a position does with a micro-batch, in the order that the micro-batch needs. */
enum {
    V_FORWARD_DOWN = 0, /* of stage p */
    V_FORWARD_UP,       /* of stage 2P-p-1 */
    V_INPUT_DOWN,       /* of stage 2P-p-1 */
    V_INPUT_UP,         /* of stage p */
    V_PASSES,
    V_WEIGHT_DOWN = V_PASSES, /* of stage 2P-p-1 */
    V_WEIGHT_UP,              /* of stage p */
    V_KINDS,
    V_PERIOD = V_KINDS
};

static inline bool v_is_forward(int kind) {
    return kind == V_FORWARD_DOWN || kind == V_FORWARD_UP;
}

/* 1: of stage 2P-p-1, where forward goes up and backward comes down. */
static inline int v_leg(int kind) {
    return kind == V_FORWARD_UP || kind == V_INPUT_DOWN || kind == V_WEIGHT_DOWN;
}

/*
 * The repeated pattern [qi24] of a schedule: the time, with F = I = W = 1, at which `position` runs
 * the four passes of micro-batch 0. Micro-batch m runs the same 6m later, so the four differ modulo
 * 6; the two times left over are for W.
 */
typedef void (*crl_v_pattern_fn)(int positions, int position, int start[V_PASSES]);

/* The pattern of one position, with its W, and what it holds. */
typedef struct v_pattern {
    int start[V_KINDS];    /* of micro-batch 0 */
    int kind_at[V_PERIOD]; /* which kind has a unit modulo the period */
    int most_kept[2];      /* micro-batches from F to I: of stage p, of stage 2P-p-1 */
    int most_held;         /* from F to W, of both */
} v_pattern;

/* Fills all of it from the passes. */
void crl_v_pattern_init(v_pattern *self, const int start[V_PASSES]);

/* p for stages p and 2P-p-1, or for stage p alone where S = P. */
int crl_v_shape_position(const crl_schedule_request *request, int stage);
/* Runs the pattern as tightly as its own peaks of memory allow. From a valid request; NOMEM. */
crl_status crl_v_shape_build(crl_program **out, const crl_schedule_request *request,
                             crl_v_pattern_fn pattern);
/* Upper bound of the micro-batches that `stage` holds from F to I, reached when M is large. */
int crl_v_shape_peak(const crl_schedule_request *request, int stage, crl_v_pattern_fn pattern);
