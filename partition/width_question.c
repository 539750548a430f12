/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Is there a plan whose every stage and boundary takes at most T and every device holds at most B?
 * Because a device holds the more the more stages follow, and so wants few of them, one number per
 * state answers:
 *
 *     fewest[i][d] = least number of stages for the units from i on, on d devices
 *                  = min over the end j and replicas r of a stage i..j-1 that keeps T
 *                    of 1 + fewest[j][d-r], if the stage keeps B with so many stages left
 *
 * Costs are summed from left to right, as a caller would.
 *
 * cost card: units² · replicas · devices steps of 16-bit numbers, side by side in vectors ·
 * memory 2 · units · devices bytes
 */
#include "partition/width_question_internal.h"

#include <math.h>

#include "engine/base/alloc.h"

enum { NO_PLAN = 32000 };

static int16_t *row_of(const width_question *self, int unit) {
    return self->fewest + (size_t)unit * (size_t)(self->problem->devices + 1);
}

static double at(const double *value, int unit) {
    return value ? value[unit] : 0;
}

static void extend(const crl_width_problem *problem, crl_width_stage *stage) {
    const int unit = stage->last++;
    stage->time_s += at(problem->time_s, unit);
    stage->parameter_bytes += at(problem->parameter_bytes, unit);
    stage->state_bytes += at(problem->state_bytes, unit);
    stage->active_bytes += at(problem->active_bytes, unit);
}

static double stage_time(const crl_width_problem *problem, const crl_width_stage *stage,
                         int replicas) {
    const crl_width_costs *costs = &problem->costs;
    return costs->stage_s ? costs->stage_s(costs->context, stage, replicas) : 0;
}

static double boundary_time(const crl_width_problem *problem, int unit, int replicas,
                            bool entering) {
    const crl_width_costs *costs = &problem->costs;
    const bool inside = unit >= 0 && unit + 1 < problem->units;
    return inside && costs->boundary_s ? costs->boundary_s(costs->context, unit, replicas, entering)
                                       : 0;
}

static double stage_bytes(const crl_width_problem *problem, const crl_width_stage *stage,
                          int replicas, int stages_left) {
    const crl_width_costs *costs = &problem->costs;
    return costs->bytes ? costs->bytes(costs->context, stage, replicas, stages_left) : 0;
}

/* Keeps T, or notes what would be needed. */
static bool keeps_time(width_question *self, double time_s) {
    if (time_s <= self->time_s) {
        return true;
    }
    self->next_time_s = fmin(self->next_time_s, time_s);
    return false;
}

static bool keeps_bytes(width_question *self, double bytes) {
    if (bytes <= self->bytes) {
        return true;
    }
    self->next_bytes = fmin(self->next_bytes, bytes);
    return false;
}

/* fewest[i] from fewest[j] with a stage of r replicas between, when at most `most` stages may be
 * left. The loop that all time goes into. */
static void join(int16_t *restrict into, const int16_t *restrict rest, int count, int most) {
    const int16_t limit = (int16_t)(most - 1);
    for (int d = 0; d < count; d++) {
        const int16_t with = rest[d] <= limit ? (int16_t)(rest[d] + 1) : (int16_t)NO_PLAN;
        into[d] = with < into[d] ? with : into[d];
    }
}

/* Visits every allowed stage that begins at `unit` with `replicas` and keeps T and B: `most` is the
 * most stages that may be left then. Ends when `visit` says so. */
typedef bool visit_fn(void *context, const crl_width_stage *stage, int replicas, int most);

static bool visit_stages(width_question *self, int unit, int replicas, visit_fn *visit,
                         void *context) {
    const crl_width_problem *problem = self->problem;
    crl_width_stage stage = {.first = unit, .last = unit};
    int most = self->stages;
    if (!keeps_time(self, boundary_time(problem, unit - 1, replicas, true))) {
        return false;
    }
    while (stage.last < problem->units) {
        extend(problem, &stage);
        if (!keeps_time(self, stage_time(problem, &stage, replicas))) {
            return false;
        }
        while (most > 0 && !keeps_bytes(self, stage_bytes(problem, &stage, replicas, most))) {
            most--;
        }
        if (most == 0) {
            return false;
        }
        const bool cut = stage.last == problem->units || !problem->may_cut_before ||
                         problem->may_cut_before[stage.last];
        if (cut && keeps_time(self, boundary_time(problem, stage.last - 1, replicas, false)) &&
            visit(context, &stage, replicas, most)) {
            return true;
        }
    }
    return false;
}

static bool join_stage(void *context, const crl_width_stage *stage, int replicas, int most) {
    width_question *self = context;
    join(row_of(self, stage->first) + replicas, row_of(self, stage->last),
         self->problem->devices + 1 - replicas, most);
    return false;
}

bool crl_width_question_ask(width_question *self, double time_s, double bytes) {
    const crl_width_problem *problem = self->problem;
    self->time_s = time_s;
    self->bytes = bytes;
    self->next_time_s = self->next_bytes = INFINITY;
    for (int d = 0; d <= problem->devices; d++) {
        row_of(self, problem->units)[d] = d > 0 && problem->all_devices ? NO_PLAN : 0;
    }
    for (int i = problem->units - 1; i >= 0; i--) {
        for (int d = 0; d <= problem->devices; d++) {
            row_of(self, i)[d] = NO_PLAN;
        }
        for (int r = 1; r <= self->replicas; r++) {
            visit_stages(self, i, r, join_stage, self);
        }
    }
    return row_of(self, 0)[problem->devices] <= self->stages;
}

/* One stage of a plan that `fewest` promises. */
typedef struct search_stage {
    const width_question *question;
    int devices; /* left from this stage on */
    int stages;
    crl_width_stage found;
    int replicas;
} search_stage;

static bool take_stage(void *context, const crl_width_stage *stage, int replicas, int most) {
    search_stage *self = context;
    const int16_t rest = row_of(self->question, stage->last)[self->devices - replicas];
    if (self->stages > most || rest != self->stages - 1) {
        return false;
    }
    self->found = *stage;
    self->replicas = replicas;
    return true;
}

static void measure(crl_width_plan *plan, const crl_width_problem *problem,
                    const search_stage *step) {
    const crl_width_stage *stage = &step->found;
    const int r = step->replicas;
    const double time_s = stage_time(problem, stage, r);
    const double enter_s = boundary_time(problem, stage->first - 1, r, true);
    const double leave_s = boundary_time(problem, stage->last - 1, r, false);
    plan->bottleneck_s = fmax(plan->bottleneck_s, fmax(time_s, fmax(enter_s, leave_s)));
    plan->peak_bytes = fmax(plan->peak_bytes, stage_bytes(problem, stage, r, step->stages));
}

void crl_width_question_trace(crl_width_plan *plan, width_question *self) {
    const crl_width_problem *problem = self->problem;
    int devices = problem->devices;
    while (!problem->all_devices && devices > 1 &&
           row_of(self, 0)[devices - 1] == row_of(self, 0)[devices]) {
        devices--;
    }
    plan->stages = row_of(self, 0)[devices];
    plan->devices = devices;
    plan->bottleneck_s = plan->peak_bytes = 0;
    search_stage step = {.question = self, .devices = devices, .stages = plan->stages};
    for (int s = 0; s < plan->stages; s++) {
        bool found = false;
        const int unit = step.found.last;
        const int most = step.devices < self->replicas ? step.devices : self->replicas;
        for (int r = 1; r <= most && !found; r++) {
            found = visit_stages(self, unit, r, take_stage, &step);
        }
        CRL_ASSERT(found);
        measure(plan, problem, &step);
        plan->first[s] = step.found.first;
        plan->replicas[s] = step.replicas;
        step.devices -= step.replicas;
        step.stages--;
    }
}

crl_status crl_width_question_init(width_question *self, const char *name,
                                   const crl_width_problem *problem) {
    if (problem->units < 1 || problem->units > CRL_WIDTHS_MAX_UNITS) {
        return CRL_FAIL(INVALID, "%s: %d units, expected 1 to %d", name, problem->units,
                        CRL_WIDTHS_MAX_UNITS);
    }
    if (problem->devices < 1 || problem->devices > CRL_WIDTHS_MAX_DEVICES) {
        return CRL_FAIL(INVALID, "%s: %d devices, expected 1 to %d", name, problem->devices,
                        CRL_WIDTHS_MAX_DEVICES);
    }
    if (problem->most_replicas < 0 || problem->most_stages < 0) {
        return CRL_FAIL(INVALID, "%s: at most %d replicas and %d stages, expected 0 or more", name,
                        problem->most_replicas, problem->most_stages);
    }
    const int devices = problem->devices, replicas = problem->most_replicas;
    self->problem = problem;
    self->replicas = replicas > 0 && replicas < devices ? replicas : devices;
    self->stages = problem->units < devices ? problem->units : devices;
    if (problem->most_stages > 0 && problem->most_stages < self->stages) {
        self->stages = problem->most_stages;
    }
    return crl_alloc(&self->fewest, (size_t)(problem->units + 1) * (size_t)(devices + 1),
                     sizeof *self->fewest);
}

void crl_width_question_fini(width_question *self) {
    crl_free(self->fewest);
    self->fewest = NULL;
}
