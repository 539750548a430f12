/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A request as the list scheduler reads it. Refuses memory limits that one micro-batch exceeds.
 *
 * Room that F of stage s leaves on its server: what its later stages there keep, and what an I adds
 * where it holds more than it frees. Whoever runs the last F of an unfinished micro-batch leaves
 * that room, so the oldest one can always go on, and so can all.
 */
#include "schedules/list_internal.h"

#include <math.h>

/* Floating-point sums of bytes differ in the last places by their order. */
static const double ROUNDING = 1 + 1e-9;

static crl_status allocate(list_problem *self) {
    const size_t stages = (size_t)self->stages, positions = (size_t)self->positions;
    double **const of_stage[] = {&self->arrive_s, &self->return_s, &self->kept,
                                 &self->held,     &self->reserve,  &self->round_trip};
    for (size_t i = 0; i < sizeof of_stage / sizeof *of_stage; i++) {
        CRL_TRY(crl_arena_alloc(&self->arena, of_stage[i], stages, sizeof **of_stage[i]));
    }
    CRL_TRY(crl_arena_alloc(&self->arena, &self->duration_s, stages, sizeof *self->duration_s));
    CRL_TRY(crl_arena_alloc(&self->arena, &self->position_of, stages, sizeof(int)));
    CRL_TRY(crl_arena_alloc(&self->arena, &self->stage, stages, sizeof(int)));
    CRL_TRY(crl_arena_alloc(&self->arena, &self->first_stage, positions + 1, sizeof(int)));
    return crl_arena_alloc(&self->arena, &self->first_server, positions + 1, sizeof(int));
}

static void place(list_problem *self, const crl_schedule *schedule,
                  const crl_schedule_request *request) {
    int placed = 0;
    for (int p = 0; p < self->positions; p++) {
        self->first_server[p + 1] =
            self->first_server[p] + (request->widths ? request->widths[p] : 1);
    }
    self->servers = self->first_server[self->positions];
    for (int s = 0; s < self->stages; s++) {
        self->position_of[s] = crl_schedule_position(schedule, request, s);
    }
    for (int p = 0; p < self->positions; p++) {
        for (int s = 0; s < self->stages; s++) {
            if (self->position_of[s] == p) {
                self->stage[placed++] = s;
            }
        }
        self->first_stage[p + 1] = placed;
    }
}

static bool has_bytes(const crl_schedule_request *request) {
    bool any = request->memory_limit_bytes > 0;
    for (int s = 0; s < request->stages; s++) {
        any = any || request->cost[s].kept_bytes > 0 || request->cost[s].held_bytes > 0;
    }
    return any;
}

crl_stage_cost crl_list_cost(const crl_schedule_request *request, int stage) {
    static const crl_stage_cost unit = {
        .forward_s = 1, .input_s = 1, .weight_s = 1, .kept_bytes = 1, .held_bytes = 1};
    crl_stage_cost cost = request->cost ? request->cost[stage] : unit;
    if (request->cost && !has_bytes(request)) {
        cost.kept_bytes = cost.held_bytes = 1;
    }
    return cost;
}

static void copy_costs(list_problem *self, const crl_schedule_request *request) {
    for (int s = 0; s < self->stages; s++) {
        const crl_stage_cost cost = crl_list_cost(request, s);
        const bool apart = s > 0 && self->position_of[s] != self->position_of[s - 1];
        self->duration_s[s][LIST_FORWARD] = cost.forward_s;
        self->duration_s[s][LIST_INPUT] = cost.input_s;
        self->duration_s[s][LIST_WEIGHT] = cost.weight_s;
        self->kept[s] = cost.kept_bytes;
        self->held[s] = cost.held_bytes;
        self->arrive_s[s] = apart ? request->message_s : 0;
        if (s > 0) {
            self->return_s[s - 1] = self->arrive_s[s];
        }
    }
}

/* Shares of the micro-batches that differ by at most one, dealt out as crl_program_deal does. */
static crl_status assign_servers(list_problem *self) {
    const int M = self->micro_batches;
    crl_range *share = NULL;
    int *order = NULL;
    CRL_TRY(crl_arena_alloc(&self->arena, &order, (size_t)M, sizeof *order));
    CRL_TRY(crl_arena_alloc(&self->arena, &share, (size_t)self->servers, sizeof *share));
    CRL_TRY(crl_arena_alloc(&self->arena, &self->server, (size_t)self->positions * (size_t)M,
                            sizeof *self->server));
    for (int p = 0; p < self->positions; p++) {
        const int first = self->first_server[p], width = self->first_server[p + 1] - first;
        for (int r = 0; r < width; r++) {
            share[first + r] =
                (crl_range){(int)((int64_t)r * M / width), (int)((int64_t)(r + 1) * M / width)};
        }
    }
    CRL_TRY(crl_program_deal_order(order, self->positions, self->first_server, share, M));
    for (int i = 0; i < self->positions * M; i++) {
        int server = self->first_server[i / M];
        while (order[i % M] >= share[server].last) {
            server++;
        }
        self->server[i] = server;
    }
    return CRL_STATUS_OK;
}

static crl_status measure_work(list_problem *self) {
    const size_t servers = (size_t)self->servers;
    CRL_TRY(crl_arena_alloc(&self->arena, &self->work_s, servers, sizeof *self->work_s));
    CRL_TRY(crl_arena_alloc(&self->arena, &self->inputs, servers, sizeof *self->inputs));
    for (int i = 0; i < self->stages * self->micro_batches; i++) {
        const int stage = i / self->micro_batches;
        const int server = crl_list_server(self, stage, i % self->micro_batches);
        const double *duration = self->duration_s[stage];
        self->work_s[server] +=
            duration[LIST_FORWARD] + duration[LIST_INPUT] + duration[LIST_WEIGHT];
        self->inputs[server]++;
    }
    return CRL_STATUS_OK;
}

static double through_s(const list_problem *self, int stage) {
    return self->duration_s[stage][LIST_FORWARD] + self->duration_s[stage][LIST_INPUT];
}

/* F and I of the later stages with their messages, in those that a server of stage s can do. */
static void measure_round_trips(list_problem *self) {
    double later = 0;
    for (int s = self->stages - 1; s >= 0; s--) {
        const int *server = &self->first_server[self->position_of[s]];
        const double own = through_s(self, s);
        self->round_trip[s] =
            own > 0 ? later * (server[1] - server[0]) / own : self->stages - 1 - s;
        later += own + 2 * self->arrive_s[s];
    }
}

/* Fills `reserve`; what one micro-batch needs of position p. */
static double reserve_of(list_problem *self, int p) {
    double growth = 0, later = 0;
    for (int i = self->first_stage[p]; i < self->first_stage[p + 1]; i++) {
        growth = fmax(growth, self->held[self->stage[i]] - self->kept[self->stage[i]]);
    }
    for (int i = self->first_stage[p + 1] - 1; i >= self->first_stage[p]; i--) {
        self->reserve[self->stage[i]] = later + growth;
        later += self->kept[self->stage[i]];
    }
    return later + growth;
}

double crl_list_limit(const crl_schedule *schedule, const crl_schedule_request *request,
                      double pipelines) {
    double most = 0;
    if (request->memory_limit_bytes > 0) {
        return request->memory_limit_bytes;
    }
    for (int p = 0; p < request->positions; p++) {
        double kept = 0;
        for (int s = 0; s < request->stages; s++) {
            kept += crl_schedule_position(schedule, request, s) == p
                        ? crl_list_cost(request, s).kept_bytes
                        : 0;
        }
        most = fmax(most, kept);
    }
    return pipelines * request->positions * most;
}

static crl_status set_limit(list_problem *self, const crl_schedule *schedule,
                            const crl_schedule_request *request, double pipelines) {
    double least = 0;
    int where = 0;
    for (int p = 0; p < self->positions; p++) {
        const double needed = reserve_of(self, p);
        where = needed > least ? p : where;
        least = fmax(least, needed);
    }
    self->limit = crl_list_limit(schedule, request, pipelines) * ROUNDING;
    if (self->limit < least && request->memory_limit_bytes > 0) {
        return CRL_FAIL(UNSUPPORTED,
                        "%s: memory limit is %.12g bytes, expected %.12g or more: what one "
                        "micro-batch needs on position %d",
                        schedule->name, request->memory_limit_bytes, ceil(least), where);
    }
    self->limit = fmax(self->limit, least);
    return CRL_STATUS_OK;
}

/* Bounds: a server has its work to do and begins after what comes before it; between the first F
 * and the last I of a server lie all others, and the micro-batch's way from and to stage 0. */
static void bound(list_problem *self) {
    const bool alone =
        self->first_server[self->position_of[0] + 1] - self->first_server[self->position_of[0]] ==
        1;
    double before = 0, after = 0;
    for (int s = 0; s < self->stages; s++) {
        const int p = self->position_of[s];
        const int width = self->first_server[p + 1] - self->first_server[p];
        const int each = (self->micro_batches + width - 1) / width;
        const bool first = self->stage[self->first_stage[p]] == s;
        double work = 0, through = 0;
        for (int i = self->first_stage[p]; first && i < self->first_stage[p + 1]; i++) {
            through += through_s(self, self->stage[i]);
            work += through_s(self, self->stage[i]) + self->duration_s[self->stage[i]][LIST_WEIGHT];
        }
        before += self->arrive_s[s];
        through = each * fmax(through, through_s(self, s));
        const double whole = before + through + after + self->duration_s[0][LIST_WEIGHT];
        self->least_s = fmax(self->least_s, fmax(before + each * work, whole));
        self->least_span_s = fmax(self->least_span_s, fmax(each * work, alone ? whole : 0));
        before += self->duration_s[s][LIST_FORWARD];
        after += self->duration_s[s][LIST_INPUT] + self->return_s[s];
    }
}

crl_status crl_list_problem_init(list_problem *self, const crl_schedule *schedule,
                                 const crl_schedule_request *request, double pipelines) {
    *self = (list_problem){.positions = request->positions,
                           .stages = request->stages,
                           .micro_batches = request->micro_batches,
                           .tasks = LIST_KINDS * request->stages * request->micro_batches};
    CRL_TRY(allocate(self));
    place(self, schedule, request);
    copy_costs(self, request);
    CRL_TRY(assign_servers(self));
    CRL_TRY(measure_work(self));
    measure_round_trips(self);
    bound(self);
    return set_limit(self, schedule, request, pipelines);
}

void crl_list_problem_fini(list_problem *self) {
    crl_arena_fini(&self->arena);
}
