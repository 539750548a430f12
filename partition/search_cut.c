/* SPDX-License-Identifier: Apache-2.0 */
/* Cuts for the layout search: even stages of a given number, and stages with widths of their own.
 */
#include <math.h>

#include "engine/base/alloc.h"
#include "partition/chain_internal.h"
#include "partition/order.h"
#include "partition/search_internal.h"
#include "partition/widths.h"

struct search_cut {
    int profile, mode, stages;
    const int *first;
};

enum { MOST_ROWS = 32, MOST_UNEQUAL_STAGES = 6, MOST_BLOCKS = 48 };

double crl_search_unit_s(const crl_profile_unit *unit, int mode) {
    return unit->forward_s + unit->input_s + unit->weight_s + unit->recompute_s[mode];
}

search_totals crl_search_totals(const crl_profile *profile, int mode) {
    search_totals out = {0};
    for (int u = 0; u < profile->units; u++) {
        const crl_profile_unit *unit = &profile->unit[u];
        const double time_s = crl_search_unit_s(unit, mode);
        out.time_s += time_s;
        out.through_s += unit->forward_s + unit->input_s + unit->recompute_s[mode];
        out.largest_s = fmax(out.largest_s, time_s);
        out.state_bytes += unit->state_bytes;
        out.parameter_bytes += unit->parameter_bytes;
        out.kept_bytes += unit->kept_bytes[mode];
    }
    return out;
}

/* A profile's units as columns of numbers, one block. */
typedef struct columns {
    double *time_s, *parameter_bytes, *state_bytes, *active_bytes, *crossing_s;
} columns;

static void columns_fini(columns *self) {
    crl_free(self->time_s);
}

static crl_status columns_init(columns *self, const crl_search_request *request, int profile,
                               int mode) {
    const crl_profile *p = request->profile[profile];
    const size_t units = (size_t)p->units;
    const double rate = request->machine->within.bytes_per_s;
    crl_status status = CRL_STATUS_OK;
    int *order = NULL;
    CRL_TRY_OUT(crl_alloc(&self->time_s, 5 * units, sizeof(double)));
    self->parameter_bytes = self->time_s + units;
    self->state_bytes = self->time_s + 2 * units;
    self->active_bytes = self->time_s + 3 * units;
    self->crossing_s = self->time_s + 4 * units;
    CRL_TRY_OUT(crl_alloc(&order, units, sizeof *order));
    for (int u = 0; u < p->units; u++) {
        self->time_s[u] = crl_search_unit_s(&p->unit[u], mode);
        self->parameter_bytes[u] = p->unit[u].parameter_bytes;
        self->state_bytes[u] = p->unit[u].state_bytes;
        self->active_bytes[u] = p->unit[u].kept_bytes[mode];
        order[u] = u;
    }
    CRL_TRY_OUT(crl_order_crossing(self->crossing_s, p, order));
    for (int u = 0; u < p->units; u++) {
        self->crossing_s[u] = rate > 0 ? 2 * self->crossing_s[u] / rate : 0;
    }
out:
    crl_free(order);
    return status;
}

/* first (S) of a partition into the arena. */
static crl_status keep_first(const int **out, crl_arena *arena, const crl_partition *partition) {
    int *first = NULL;
    CRL_TRY(crl_arena_alloc(arena, &first, (size_t)partition->stages, sizeof *first));
    for (int s = 0; s < partition->stages; s++) {
        first[s] = partition->first[s];
    }
    *out = first;
    return CRL_STATUS_OK;
}

static crl_status solve(const int **out, crl_arena *arena, const crl_search_request *request,
                        const search_candidate *candidate, const int *in_flight,
                        double limit_bytes) {
    crl_status status = CRL_STATUS_OK;
    columns c = {0};
    crl_partition partition;
    bool feasible = false;
    *out = NULL;
    CRL_TRY_OUT(columns_init(&c, request, candidate->profile, candidate->mode));
    const chain_problem problem = {.units = request->profile[candidate->profile]->units,
                                   .stages = candidate->layout.stages,
                                   .time = c.time_s,
                                   .state_bytes = c.state_bytes,
                                   .active_bytes = c.active_bytes,
                                   .in_flight = in_flight,
                                   .boundary = c.crossing_s,
                                   .limit_bytes = limit_bytes};
    CRL_TRY_OUT(crl_chain_solve(&partition, &feasible, &problem));
    if (feasible) {
        CRL_TRY_OUT(keep_first(out, arena, &partition));
    }
out:
    columns_fini(&c);
    return status;
}

crl_status crl_search_cut(const int **out, search_cuts *cuts, crl_arena *arena, int profile,
                          int mode, int stages) {
    for (int i = 0; i < cuts->count; i++) {
        const struct search_cut *cut = &cuts->item[i];
        if (cut->profile == profile && cut->mode == mode && cut->stages == stages) {
            *out = cut->first;
            return CRL_STATUS_OK;
        }
    }
    const search_candidate candidate = {
        .layout = {.stages = stages}, .profile = profile, .mode = mode};
    CRL_TRY(
        crl_realloc(&cuts->item, (size_t)cuts->count, (size_t)cuts->count + 1, sizeof *cuts->item));
    CRL_TRY(solve(out, arena, cuts->request, &candidate, NULL, INFINITY));
    cuts->item[cuts->count++] = (struct search_cut){profile, mode, stages, *out};
    return CRL_STATUS_OK;
}

crl_status crl_search_cut_within(const int **out, crl_arena *arena,
                                 const crl_search_request *request,
                                 const search_candidate *candidate, double limit_bytes) {
    crl_status status = CRL_STATUS_OK;
    const crl_hybrid *layout = &candidate->layout;
    int *in_flight = NULL;
    const crl_schedule_request asked = {.positions = layout->positions,
                                        .stages = layout->stages,
                                        .micro_batches = candidate->busiest,
                                        .widths = layout->widths,
                                        .group = layout->group};
    CRL_TRY_OUT(crl_alloc(&in_flight, (size_t)layout->stages, sizeof *in_flight));
    for (int s = 0; s < layout->stages; s++) {
        in_flight[s] = layout->schedule->peak_activations(&asked, s);
    }
    CRL_TRY_OUT(solve(out, arena, request, candidate, in_flight, limit_bytes));
out:
    crl_free(in_flight);
    return status;
}

void crl_search_cuts_fini(search_cuts *cuts) {
    crl_free(cuts->item);
    cuts->item = NULL;
    cuts->count = 0;
}

/* Costs of a stage with replicas, per micro-batch of the pipeline. */
typedef struct width_model {
    const double *crossing_s;
    double rate;          /* bytes/s of a device's link */
    double micro_batches; /* of a pipeline */
    int pipelines;
} width_model;

/* Computing is shared by the replicas; the sum of gradients comes once a step. */
static double stage_s(const void *context, const crl_width_stage *stage, int replicas) {
    const width_model *self = context;
    const double members = (double)replicas * self->pipelines;
    const double sum_s =
        self->rate > 0 ? 2 * (members - 1) / members * stage->parameter_bytes / self->rate : 0;
    return stage->time_s / replicas + sum_s / self->micro_batches;
}

static double boundary_s(const void *context, int unit, int replicas, bool entering) {
    const width_model *self = context;
    (void)entering;
    return self->crossing_s[unit] / replicas;
}

/* Units to blocks of about equal time, in place: what is cut with widths is moved by single units
 * later. block[b] is the first unit of block b. Returns their number. */
static int make_blocks(columns *c, int *block, int units) {
    double total_s = 0, filled_s = 0;
    int blocks = 0;
    for (int u = 0; u < units; u++) {
        total_s += c->time_s[u];
    }
    for (int u = 0; u < units; u++) {
        const bool begins = u == 0 || units <= MOST_BLOCKS ||
                            filled_s + c->time_s[u] / 2 > total_s * blocks / MOST_BLOCKS;
        filled_s += c->time_s[u];
        if (begins) {
            block[blocks] = u;
            c->time_s[blocks] = c->time_s[u];
            c->parameter_bytes[blocks] = c->parameter_bytes[u];
            blocks++;
        } else {
            c->time_s[blocks - 1] += c->time_s[u];
            c->parameter_bytes[blocks - 1] += c->parameter_bytes[u];
        }
        c->crossing_s[blocks - 1] = c->crossing_s[u];
    }
    return blocks;
}

/* What crl_search_unequal does for one number of pipelines. */
typedef struct unequal {
    crl_arena *arena;
    columns columns;
    int *block, blocks;
    width_model model;
    search_add_fn *add;
    void *context;
} unequal;

static int common_divisor(const int *value, int count) {
    int divisor = 0;
    for (int i = 0; i < count; i++) {
        int a = value[i], b = divisor;
        while (b != 0) {
            const int rest = a % b;
            a = b;
            b = rest;
        }
        divisor = a;
    }
    return divisor;
}

/* Solves with at most `stages` stages, and adds the result where its widths differ. A common
 * divisor would mean more pipelines, which is another candidate. */
static crl_status add_plan(const unequal *self, int rows, int stages) {
    crl_width_plan plan = {0};
    const crl_width_problem problem = {.units = self->blocks,
                                       .devices = rows,
                                       .all_devices = true,
                                       .most_stages = stages,
                                       .time_s = self->columns.time_s,
                                       .parameter_bytes = self->columns.parameter_bytes,
                                       .costs = {&self->model, stage_s, boundary_s, NULL}};
    CRL_TRY(crl_arena_alloc(self->arena, &plan.first, (size_t)rows, sizeof *plan.first));
    CRL_TRY(crl_arena_alloc(self->arena, &plan.replicas, (size_t)rows, sizeof *plan.replicas));
    CRL_TRY(crl_widths_solve(&plan, "plan", &problem));
    for (int p = 0; p < plan.stages; p++) {
        plan.first[p] = self->block[plan.first[p]];
    }
    return common_divisor(plan.replicas, plan.stages) == 1 && plan.stages < rows
               ? self->add(self->context, self->model.pipelines, plan.stages, plan.replicas,
                           plan.first)
               : CRL_STATUS_OK;
}

crl_status crl_search_unequal(crl_arena *arena, const crl_search_request *request, int profile,
                              int mode, search_add_fn *add, void *context) {
    crl_status status = CRL_STATUS_OK;
    const int groups = request->devices / request->tensor;
    const crl_profile *p = request->profile[profile];
    unequal self = {.arena = arena, .add = add, .context = context};
    CRL_TRY_OUT(columns_init(&self.columns, request, profile, mode));
    CRL_TRY_OUT(crl_alloc(&self.block, (size_t)p->units, sizeof *self.block));
    self.blocks = make_blocks(&self.columns, self.block, p->units);
    for (int pipelines = 1; pipelines <= groups; pipelines++) {
        const int rows = groups / pipelines;
        if (groups % pipelines != 0 || rows < 3 || rows > MOST_ROWS) {
            continue;
        }
        self.model = (width_model){.crossing_s = self.columns.crossing_s,
                                   .rate = request->machine->within.bytes_per_s,
                                   .micro_batches = fmax(1, (double)request->global_batch /
                                                                (double)p->micro_batch / pipelines),
                                   .pipelines = pipelines};
        const int most = rows - 1 < MOST_UNEQUAL_STAGES ? rows - 1 : MOST_UNEQUAL_STAGES;
        for (int stages = 2; stages <= most && stages <= self.blocks; stages++) {
            CRL_TRY_OUT(add_plan(&self, rows, stages));
        }
    }
out:
    columns_fini(&self.columns);
    crl_free(self.block);
    return status;
}
