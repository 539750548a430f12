/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The pipeline as its schedule orders it, and the sums of gradients after it. A stage's sum may
 * begin when its last weight gradients are made; how much of that backward it can use is the
 * machine's sum_overlap. The sums of a position go one after the other.
 *
 *     row  ... F7 B6 F8 |--- B7 of stage 2 ---|--- B7 of stage 0 ---|
 *     link                    overlap 1: [ sum of 2 ]     [ sum of 0 ]
 *                                                  overlap 0: [ sum of 2 ][ sum of 0 ]
 */
#include "partition/predict_internal.h"

#include <math.h>

#include "engine/base/alloc.h"
#include "partition/group_sum.h"

static crl_schedule_request request_of(const predictor *self) {
    const crl_hybrid *layout = self->layout;
    bool far = false;
    for (int r = 1; r < self->rows; r++) {
        far = far || self->node[r] != self->node[r - 1];
    }
    double bytes = 0;
    for (int s = 0; s < layout->stages; s++) {
        bytes = fmax(bytes, self->cost[s].output_bytes);
    }
    const crl_link *link = far ? &self->machine->between : &self->machine->within;
    return (crl_schedule_request){
        .positions = layout->positions,
        .stages = layout->stages,
        .micro_batches = self->micro_batches,
        .widths = self->rows > layout->positions ? layout->widths : NULL,
        .group = layout->group,
        .cost = self->cost,
        .message_s =
            layout->positions > 1 ? crl_link_s(link, bytes) + 2 * self->machine->message_s : 0};
}

/* A schedule is asked with the costs of halves. What they take longer, whole backwards save: all of
 * a stage's or, where it has both, their share. */
static crl_status join_halves(predictor *self) {
    int *whole = NULL; /* (S) */
    CRL_TRY(crl_alloc(&whole, (size_t)self->layout->stages, sizeof *whole));
    for (int r = 0; r < self->program->positions; r++) {
        const crl_action_list *list = &self->program->position[r];
        for (int i = 0; i < list->count; i++) {
            whole[list->action[i].stage] += list->action[i].kind == CRL_ACTION_BACKWARD;
        }
    }
    for (int s = 0; s < self->layout->stages; s++) {
        self->cost[s].weight_s -= self->sums[s].split_s * whole[s] / self->micro_batches;
    }
    crl_free(whole);
    return CRL_STATUS_OK;
}

crl_status crl_predict_run(predictor *self) {
    const crl_hybrid *layout = self->layout;
    self->request = request_of(self);
    CRL_TRY(crl_alloc(&self->position, (size_t)layout->stages, sizeof *self->position));
    for (int s = 0; s < layout->stages; s++) {
        self->position[s] = crl_schedule_position(layout->schedule, &self->request, s);
    }
    CRL_TRY(layout->schedule->build(&self->program, &self->request));
    CRL_TRY(join_halves(self));
    if (self->rows > layout->positions) {
        CRL_TRY(crl_program_deal(self->program, self->first_row, self->range));
    }
    return crl_simulate(&self->simulation, self->program,
                        &(crl_simulation_config){.stage = self->cost,
                                                 .link = self->machine->within,
                                                 .between = self->machine->between,
                                                 .node = self->node,
                                                 .message_s = self->machine->message_s});
}

/* All replicas of a position hold the same stages. */
static crl_sum_group replicas_of(const predictor *self, int position) {
    const crl_hybrid *layout = self->layout;
    crl_sum_group group = {0};
    int64_t last = -1;
    for (int d = 0; d < layout->pipelines; d++) {
        for (int r = self->first_row[position]; r < self->first_row[position + 1]; r++) {
            const int64_t rank = ((int64_t)d * self->rows + r) * layout->tensor;
            const int64_t node = rank / self->machine->devices_per_node;
            group.members++;
            group.nodes += node != last;
            last = node;
        }
    }
    return group;
}

/* The last action of a row that makes weight gradients of `stage`; -1: it has none. */
static int last_weight(const crl_program *program, int row, int stage) {
    const crl_action_list *list = &program->position[row];
    for (int i = list->count - 1; i >= 0; i--) {
        const crl_action *action = &list->action[i];
        if (action->stage == stage &&
            (action->kind == CRL_ACTION_BACKWARD || action->kind == CRL_ACTION_WEIGHT)) {
            return i;
        }
    }
    return -1;
}

static double row_end_s(const predictor *self, int row) {
    const int count = self->program->position[row].count;
    return count > 0 ? self->simulation->end_s[row][count - 1] : 0;
}

/* What of the sums of a position the next step's first forward hides: a ring's second half only
 * hands out what the first half has summed. */
static double gathered_s(const predictor *self, int position, double sums_s) {
    double forward = 0;
    for (int s = 0; s < self->layout->stages; s++) {
        forward += self->position[s] == position ? self->cost[s].forward_s : 0;
    }
    return fmin(sums_s / 2, self->machine->gather_overlap * forward);
}

/* When the last sum of a row is over. Stages finish in descending order, as backward does. */
static double row_summed_s(const predictor *self, int position, int row, crl_sum_group group) {
    const double overlap = self->machine->sum_overlap;
    const int lanes = (self->lanes + group.members - 1) / group.members;
    const double end = row_end_s(self, row);
    double free_at = 0, sums_s = 0;
    for (int s = self->layout->stages - 1; s >= 0; s--) {
        const stage_sums *sums = &self->sums[s];
        const int at = self->position[s] == position ? last_weight(self->program, row, s) : -1;
        if (at < 0) {
            continue;
        }
        const double sum_s = crl_group_sum_s(self->machine, group, sums->parameter_bytes);
        const double took = sum_s + (lanes - 1) * sums->add_s;
        const double begin = self->simulation->start_s[row][at];
        free_at = fmax(free_at, end - overlap * (end - begin)) + took;
        /* The last bucket is made at the end of the backward. */
        const double done = self->simulation->end_s[row][at] + took / sums->units;
        free_at = fmax(free_at, overlap > 0 && group.members > 1 ? done : 0);
        sums_s += sum_s;
    }
    return fmax(end, free_at - gathered_s(self, position, sums_s));
}

double crl_predict_reduce_s(const predictor *self) {
    double last = self->simulation->makespan_s;
    for (int p = 0; p < self->layout->positions; p++) {
        const crl_sum_group group = replicas_of(self, p);
        for (int r = self->first_row[p]; r < self->first_row[p + 1]; r++) {
            last = fmax(last, row_summed_s(self, p, r, group));
        }
    }
    return last - self->simulation->makespan_s;
}
