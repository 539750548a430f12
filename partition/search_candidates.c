/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Every layout worth a thought, before any is simulated: micro-batch size × recomputation ×
 * pipelines × positions (× widths) × schedule × virtual stages, each with a time that no step of it
 * can be shorter than, and an estimate that decides when it is its turn.
 *
 *     bound     the larger of: the work of the busiest pipeline, spread evenly over its devices;
 *               one micro-batch from end to end
 *     estimate  that work, as even as the largest unit allows, in a pipeline with the bubble that
 *               the schedule declares, and the gradients over the slower link, half of it hidden;
 *               later the more memory is likely to be over
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "engine/base/alloc.h"
#include "partition/search_internal.h"

enum { MOST_VIRTUAL = 8 };

typedef struct builder {
    const crl_search_request *request;
    crl_arena *arena;
    search_list list;
    int profile, mode;
    search_totals totals;
    int micro_batches; /* of a step */
    int groups;        /* devices / tensor */
} builder;

int crl_search_most_micro_batches(int micro_batches, int lanes, int replicas) {
    int most = 0;
    for (int r = 0; r < replicas; r++) {
        const crl_range range = crl_replica_micro_batches(r, replicas, lanes, micro_batches);
        most = range.last - range.first > most ? range.last - range.first : most;
    }
    return most;
}

/* How uneven lanes are: what the busiest replica of every position has, weighed by its width. */
static double unevenness(int micro_batches, int lanes, int positions, const int *widths) {
    double worst = 0;
    for (int p = 0; p < positions; p++) {
        const bool again = p > 0 && widths[p] == widths[p - 1];
        worst = again ? worst
                      : fmax(worst, (double)widths[p] * crl_search_most_micro_batches(
                                                            micro_batches, lanes, widths[p]));
    }
    return worst;
}

int crl_search_lanes(int micro_batches, int positions, const int *widths) {
    int least = 1;
    for (int p = 0; p < positions; p++) {
        while (least < widths[p]) {
            least *= 2;
        }
    }
    int best = least;
    double even = unevenness(micro_batches, least, positions, widths);
    for (int lanes = 2 * least; lanes <= micro_batches && lanes <= 64 * least; lanes *= 2) {
        const double value = unevenness(micro_batches, lanes, positions, widths);
        if (value < even) {
            even = value;
            best = lanes;
        }
    }
    return best;
}

static crl_status append(search_list *list, const search_candidate *candidate) {
    const size_t count = (size_t)list->count;
    if ((count & (count - 1)) == 0) {
        CRL_TRY(crl_realloc(&list->item, count, count == 0 ? 1 : 2 * count, sizeof *list->item));
    }
    list->item[list->count] = *candidate;
    list->item[list->count].index = list->count;
    list->count++;
    return CRL_STATUS_OK;
}

double crl_search_limit(const crl_search_request *request) {
    const double bytes = request->memory_limit_bytes > 0 ? request->memory_limit_bytes
                                                         : request->machine->memory_bytes;
    return bytes > 0 ? bytes : INFINITY;
}

/* How far the first position would be over the limit if stages were even: 1: it fits .. 4. */
static double overweight(const search_candidate *c, const builder *self,
                         const crl_schedule_request *asked) {
    const crl_hybrid *layout = &c->layout;
    double held = 0, stages = 0;
    for (int s = 0; s < layout->stages; s++) {
        if (crl_schedule_position(layout->schedule, asked, s) == 0) {
            held += layout->schedule->peak_activations(asked, s);
            stages++;
        }
    }
    const double bytes =
        (stages * self->totals.state_bytes + held * self->totals.kept_bytes) / layout->stages;
    return fmin(4, fmax(1, bytes / crl_search_limit(self->request)));
}

static void fill_times(search_candidate *c, const builder *self) {
    const crl_hybrid *layout = &c->layout;
    const crl_machine *machine = self->request->machine;
    int rows = 0;
    for (int p = 0; p < layout->positions; p++) {
        rows += layout->widths ? layout->widths[p] : 1;
    }
    const crl_schedule_request asked = {.positions = layout->positions,
                                        .stages = layout->stages,
                                        .micro_batches = c->busiest,
                                        .widths = layout->widths,
                                        .group = layout->group};
    const double work_s = c->busiest * self->totals.time_s / rows;
    const int each = layout->stages / layout->positions;
    const double even_s =
        layout->widths ? work_s : fmax(work_s, c->busiest * each * self->totals.largest_s);
    const double bubble = fmin(0.99, fmax(0, layout->schedule->bubble(&asked)));
    const bool leaves = layout->pipelines * rows * layout->tensor > machine->devices_per_node;
    const double rate = leaves ? machine->between.bytes_per_s : machine->within.bytes_per_s;
    const double sum_s = layout->pipelines > 1 && rate > 0
                             ? 2.0 * (layout->pipelines - 1) / layout->pipelines *
                                   self->totals.parameter_bytes / layout->positions / rate
                             : 0;
    c->bound_s = fmax(work_s, self->totals.through_s);
    c->estimate_s = (fmax(even_s, self->totals.through_s / rows) / (1 - bubble) + sum_s / 2) *
                    overweight(c, self, &asked);
}

/* One candidate, if its numbers suit the request. */
static crl_status add_candidate(builder *self, const crl_hybrid *layout) {
    const crl_search_request *request = self->request;
    search_candidate c = {.layout = *layout, .profile = self->profile, .mode = self->mode};
    int *total = NULL;
    CRL_TRY(crl_alloc(&total, (size_t)layout->positions, sizeof *total));
    int widest = 1;
    for (int p = 0; p < layout->positions; p++) {
        total[p] = layout->pipelines * (layout->widths ? layout->widths[p] : 1);
        widest = total[p] > widest ? total[p] : widest;
    }
    c.layout.lanes = request->lanes > 0
                         ? request->lanes
                         : crl_search_lanes(self->micro_batches, layout->positions, total);
    crl_free(total);
    while (c.layout.lanes > self->micro_batches) {
        c.layout.lanes /= 2; /* what a run does with them */
    }
    if (widest > c.layout.lanes) {
        return CRL_STATUS_OK; /* replicas without work */
    }
    c.busiest =
        crl_search_most_micro_batches(self->micro_batches, c.layout.lanes, layout->pipelines);
    fill_times(&c, self);
    return append(&self->list, &c);
}

/* One device alone is never idle: all that schedules differ in is what they hold. */
static const crl_schedule *lone_schedule(const builder *self) {
    const crl_schedule_request asked = {
        .positions = 1, .stages = 1, .micro_batches = self->micro_batches};
    const crl_schedule *best = NULL;
    for (int i = 0; self->request->schedules[i]; i++) {
        const crl_schedule *schedule = self->request->schedules[i];
        if (schedule->least_virtual == 1 &&
            (!best || schedule->peak_activations(&asked, 0) < best->peak_activations(&asked, 0))) {
            best = schedule;
        }
    }
    return best;
}

static bool wants(const builder *self, const crl_schedule *schedule, int positions) {
    const crl_search_request *request = self->request;
    if (request->schedule) {
        return strcmp(request->schedule, schedule->name) == 0;
    }
    return positions > 1 || request->virtual_stages > 1 || schedule == lone_schedule(self);
}

/* All schedules and numbers of virtual stages for a grid of devices. */
static crl_status add_schedules(builder *self, int pipelines, int positions, const int *widths,
                                const int *first) {
    const crl_search_request *request = self->request;
    const int units = request->profile[self->profile]->units;
    for (int i = 0; request->schedules[i]; i++) {
        const crl_schedule *schedule = request->schedules[i];
        if (!wants(self, schedule, positions)) {
            continue;
        }
        const int most = schedule->most_virtual > 0 ? schedule->most_virtual : MOST_VIRTUAL;
        for (int v = schedule->least_virtual; v <= most && (int64_t)v * positions <= units; v++) {
            const bool asked = request->virtual_stages == v;
            if ((request->virtual_stages > 0 && !asked) || (widths && v > 1) ||
                (v > 1 && positions == 1 && !asked)) {
                continue; /* several stages on one device alone only divide it */
            }
            CRL_TRY(add_candidate(self, &(crl_hybrid){.tensor = request->tensor,
                                                      .pipelines = pipelines,
                                                      .positions = positions,
                                                      .stages = v * positions,
                                                      .widths = widths,
                                                      .first = first,
                                                      .schedule = schedule,
                                                      .micro_batches = self->micro_batches}));
        }
    }
    return CRL_STATUS_OK;
}

static crl_status add_unequal(void *context, int pipelines, int positions, const int *widths,
                              const int *first) {
    const builder *self = context;
    const crl_search_request *request = self->request;
    if ((request->positions > 0 && positions != request->positions) ||
        (request->most_positions > 0 && positions > request->most_positions)) {
        return CRL_STATUS_OK;
    }
    return add_schedules(context, pipelines, positions, widths, first);
}

static crl_status add_grids(builder *self) {
    const crl_search_request *request = self->request;
    const crl_profile *profile = request->profile[self->profile];
    self->totals = crl_search_totals(profile, self->mode);
    for (int positions = 1; positions <= self->groups && positions <= profile->units; positions++) {
        if (self->groups % positions != 0 ||
            (request->positions > 0 && positions != request->positions) ||
            (request->most_positions > 0 && positions > request->most_positions)) {
            continue;
        }
        CRL_TRY(add_schedules(self, self->groups / positions, positions, NULL, NULL));
    }
    return request->equal_widths ? CRL_STATUS_OK
                                 : crl_search_unequal(self->arena, request, self->profile,
                                                      self->mode, add_unequal, self);
}

static int by_estimate(const void *left, const void *right) {
    const search_candidate *a = left, *b = right;
    return a->estimate_s != b->estimate_s ? (a->estimate_s > b->estimate_s ? 1 : -1)
                                          : (a->index > b->index) - (a->index < b->index);
}

crl_status crl_search_enumerate(search_list *out, crl_arena *arena,
                                const crl_search_request *request) {
    crl_status status = CRL_STATUS_OK;
    builder self = {
        .request = request, .arena = arena, .groups = request->devices / request->tensor};
    for (self.profile = 0; self.profile < request->profiles; self.profile++) {
        const int64_t size = request->profile[self.profile]->micro_batch;
        const int64_t micro_batches = (request->global_batch + size - 1) / size;
        if (size > request->global_batch || micro_batches > 65535) {
            continue;
        }
        self.micro_batches = (int)micro_batches;
        for (self.mode = 0; self.mode < CRL_RECOMPUTES; self.mode++) {
            if (request->recompute == 0 || request->recompute == self.mode + 1) {
                CRL_TRY_OUT(add_grids(&self));
            }
        }
    }
    if (self.list.count > 0) {
        qsort(self.list.item, (size_t)self.list.count, sizeof *self.list.item, by_estimate);
    }
    *out = self.list;
    self.list.item = NULL;
out:
    crl_free(self.list.item);
    return status;
}
