/* SPDX-License-Identifier: Apache-2.0 */
/* What `schedule compare` found, and its picture. */
#pragma once

#include <stdio.h>

#include "engine/base/status.h"

/* One schedule. Times and memory in the user's units, of a whole position. */
typedef struct crl_comparison_row {
    const char *name;
    const char *label; /* the name, and the stages per position where it stands there twice */
    int virtual_stages;
    const char *refused; /* why it does not serve; NULL: it does */
    double makespan, bubble;
    double span; /* of the longest position, from its first action to its last */
    double least_activations, most_activations; /* of the positions, in micro-batches */
    double peak_memory;                         /* of the fullest position */
    long long messages;
} crl_comparison_row;

/* A schedule over memory limits: peak_memory and bubble of each. */
typedef struct crl_comparison_curve {
    const char *label;
    int points;
    double *memory, *bubble;
} crl_comparison_curve;

/* Bubble over peak memory: a labelled point per schedule that serves, and the curves as far as they
 * lie near them. */
void crl_comparison_write_svg(const char *title, const crl_comparison_row *row, int rows,
                              const crl_comparison_curve *curve, int curves, FILE *out);
