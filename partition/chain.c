/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Cuts of a chain. Works from the end, because the memory of a stage depends on how many stages
 * follow it: with k stages for the units from i on,
 *
 *     best[k][i] = min over j of max(time(i..j-1) / width, boundary(j-1), best[k-1][j])
 *
 * among the j whose stage fits: one table answers for every number of stages. Stage sums grow with
 * j, so the search over j ends at the first that cannot be better. A second pass chooses, among all
 * cuts with that optimum, those of least sum of squared stage times, and of equal ones the
 * leftmost; with a free number of stages the smallest that reaches the optimum. Costs are summed
 * from left to right, as a caller would.
 *
 * Beside width_question.c, which finds the replicas too: here the number of stages, each stage's
 * replicas and what it holds in flight are given, in any order, and ties have an order of their own
 * that written layouts rely on.
 *
 * cost card: time O(units² · stages) at worst · memory 12 · units · stages bytes
 */
#include "partition/chain_internal.h"

#include <math.h>

#include "engine/base/alloc.h"

typedef struct table {
    const chain_problem *problem;
    double *value; /* (stages)(units): row k-1 for k stages */
    int *next;     /* (stages)(units): first unit of the following stage */
} table;

/* Sums of one stage while it grows to the right. */
typedef struct stage_sum {
    double time, state, active;
} stage_sum;

static void extend(const chain_problem *problem, stage_sum *sum, int unit) {
    sum->time += problem->time ? problem->time[unit] : 0;
    sum->state += problem->state_bytes ? problem->state_bytes[unit] : 0;
    sum->active += problem->active_bytes ? problem->active_bytes[unit] : 0;
}

static double bytes_of(const chain_problem *problem, const stage_sum *sum, int stages_left) {
    const int stage = problem->stages - stages_left;
    return sum->state +
           sum->active * (problem->in_flight ? problem->in_flight[stage] : stages_left);
}

static double time_of(const chain_problem *problem, const stage_sum *sum, int stages_left) {
    return problem->widths ? sum->time / problem->widths[problem->stages - stages_left] : sum->time;
}

static bool may_cut(const chain_problem *problem, int unit) {
    return !problem->may_cut_before || problem->may_cut_before[unit];
}

static double *row_of(const table *self, int stages_left) {
    return self->value + (size_t)(stages_left - 1) * (size_t)self->problem->units;
}

/* What a pass minimises: how a stage and its boundary combine with the rest of the chain. */
typedef struct measure {
    /* Value of a stage of `sum` followed by a rest of value `rest`; INFINITY: not allowed. */
    double (*join)(const table *self, const stage_sum *sum, double boundary, double rest,
                   int stages_left, double bound);
    /* No larger stage can beat `best`. */
    bool (*hopeless)(const table *self, const stage_sum *sum, double best, int stages_left,
                     double bound);
    double bound;
} measure;

static double join_time(const table *self, const stage_sum *sum, double boundary, double rest,
                        int stages_left, double bound) {
    (void)bound;
    return fmax(fmax(time_of(self->problem, sum, stages_left), boundary), rest);
}

static bool hopeless_time(const table *self, const stage_sum *sum, double best, int stages_left,
                          double bound) {
    (void)bound;
    return time_of(self->problem, sum, stages_left) >= best ||
           bytes_of(self->problem, sum, stages_left) > self->problem->limit_bytes;
}

static double join_squares(const table *self, const stage_sum *sum, double boundary, double rest,
                           int stages_left, double bound) {
    const double time = time_of(self->problem, sum, stages_left);
    return boundary > bound ? INFINITY : time * time + rest;
}

static bool hopeless_squares(const table *self, const stage_sum *sum, double best, int stages_left,
                             double bound) {
    const double time = time_of(self->problem, sum, stages_left);
    return time > bound || time * time >= best ||
           bytes_of(self->problem, sum, stages_left) > self->problem->limit_bytes;
}

static double join_bytes(const table *self, const stage_sum *sum, double boundary, double rest,
                         int stages_left, double bound) {
    (void)boundary, (void)bound;
    return fmax(bytes_of(self->problem, sum, stages_left), rest);
}

static bool hopeless_bytes(const table *self, const stage_sum *sum, double best, int stages_left,
                           double bound) {
    (void)bound;
    return bytes_of(self->problem, sum, stages_left) >= best;
}

static const measure least_bytes = {join_bytes, hopeless_bytes, 0};

/* The last stage: everything from `unit` on. */
static double last_stage(const table *self, const measure *measure, int unit) {
    stage_sum sum = {0};
    for (int j = unit; j < self->problem->units; j++) {
        extend(self->problem, &sum, j);
        if (measure->hopeless(self, &sum, INFINITY, 1, measure->bound)) {
            return INFINITY;
        }
    }
    return measure->join(self, &sum, 0, 0, 1, measure->bound);
}

static void fill_cell(const table *self, const measure *measure, int stages_left, int unit) {
    const chain_problem *problem = self->problem;
    const double *rest = row_of(self, stages_left - 1);
    double best = INFINITY;
    int choice = -1;
    stage_sum sum = {0};
    for (int j = unit + 1; j + stages_left - 1 <= problem->units; j++) {
        extend(problem, &sum, j - 1);
        if (measure->hopeless(self, &sum, best, stages_left, measure->bound)) {
            break;
        }
        if (!may_cut(problem, j)) {
            continue;
        }
        const double boundary = problem->boundary ? problem->boundary[j - 1] : 0;
        const double value =
            measure->join(self, &sum, boundary, rest[j], stages_left, measure->bound);
        if (value < best) {
            best = value;
            choice = j;
        }
    }
    row_of(self, stages_left)[unit] = best;
    self->next[(size_t)(stages_left - 1) * (size_t)problem->units + (size_t)unit] = choice;
}

static void fill(const table *self, const measure *measure) {
    for (int i = 0; i < self->problem->units; i++) {
        row_of(self, 1)[i] = last_stage(self, measure, i);
    }
    for (int k = 2; k <= self->problem->stages; k++) {
        for (int i = 0; i < self->problem->units; i++) {
            fill_cell(self, measure, k, i);
        }
    }
}

/* The number of stages with the least value; of equal ones the smallest. */
static int best_stages(const table *self) {
    const chain_problem *problem = self->problem;
    int best = problem->stages;
    for (int k = problem->stages - 1; k >= 1 && problem->fewer_stages; k--) {
        if (row_of(self, k)[0] <= row_of(self, best)[0]) {
            best = k;
        }
    }
    return best;
}

static crl_status table_create(table *self, const chain_problem *problem) {
    const size_t cells = (size_t)problem->stages * (size_t)problem->units;
    self->problem = problem;
    CRL_TRY(crl_alloc(&self->value, cells, sizeof *self->value));
    return crl_alloc(&self->next, cells, sizeof *self->next);
}

static void table_destroy(table *self) {
    crl_free(self->value);
    crl_free(self->next);
}

static void trace(crl_partition *out, const table *self, int stages) {
    int unit = 0;
    out->stages = stages;
    for (int s = 0; s < stages; s++) {
        out->first[s] = unit;
        unit = self->next[(size_t)(stages - s - 1) * (size_t)self->problem->units + (size_t)unit];
    }
}

crl_status crl_chain_solve(crl_partition *out, bool *feasible, const chain_problem *problem) {
    crl_status status = CRL_STATUS_OK;
    table self = {0};
    const measure least_time = {join_time, hopeless_time, 0};
    CRL_TRY_OUT(table_create(&self, problem));
    fill(&self, &least_time);
    const int stages = best_stages(&self);
    const double optimum = row_of(&self, stages)[0];
    *feasible = isfinite(optimum);
    if (*feasible) {
        const measure least_squares = {join_squares, hopeless_squares, optimum};
        fill(&self, &least_squares);
        trace(out, &self, stages);
    }
out:
    table_destroy(&self);
    return status;
}

crl_status crl_chain_least_bytes(double *out, const chain_problem *problem) {
    crl_status status = CRL_STATUS_OK;
    table self = {0};
    CRL_TRY_OUT(table_create(&self, problem));
    fill(&self, &least_bytes);
    *out = row_of(&self, best_stages(&self))[0];
out:
    table_destroy(&self);
    return status;
}
