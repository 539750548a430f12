/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Follows one policy: the server that is free first decides what it does next, in the order of
 * time, until all is done. Refuses nothing: a problem that has been accepted ends. Knows no best
 * policy.
 *
 *     an F or I can start?  both: by the policy's order; an F: unless an I comes so soon that it
 *            | no           would be late, and the target leaves time to wait for it
 *     a W is due?           unless an F or I comes that soon
 *            | no
 *     sleep until an input arrives
 *
 * What memory allows is decided here: an F starts only when its server keeps room for all that has
 * been begun to end (problem.reserve), a W goes first when an I needs its room.
 *
 * cost card: tasks · (servers + stages of a position)
 */
#include "schedules/list_machine_internal.h"

#include <math.h>
#include <string.h>

/* Sums of times differ in the last places by their order. */
static const double ROUNDING = 1e-9;

/* A choice of a server. `ready_s` INFINITY: nothing known. */
typedef struct list_choice {
    int stage;
    double ready_s;
} list_choice;

static int task_of(const list_problem *problem, int kind, int stage, int micro_batch) {
    return (LIST_KINDS * stage + kind) * problem->micro_batches + micro_batch;
}

static int *next_of(const list_machine *self, int kind, int stage) {
    return &self->next[LIST_KINDS * stage + kind];
}

/* When the input of a stage's next action is there; INFINITY: its producer has not begun. */
static double ready_of(const list_machine *self, int kind, int stage) {
    const list_problem *problem = self->problem;
    const int m = *next_of(self, kind, stage);
    if (m >= problem->micro_batches) {
        return INFINITY;
    }
    const double own = kind == LIST_FORWARD ? 0 : self->end_s[task_of(problem, kind - 1, stage, m)];
    const int from = kind == LIST_FORWARD ? stage - 1 : stage + 1;
    const double delay = kind == LIST_FORWARD ? problem->arrive_s[stage] : problem->return_s[stage];
    if (own < 0 || kind == LIST_WEIGHT || from < 0 || from == problem->stages) {
        return own < 0 ? INFINITY : own;
    }
    const double before = self->end_s[task_of(problem, kind, from, m)];
    return before < 0 ? INFINITY : fmax(own, before + delay);
}

static int slot_of(const list_machine *self, int server, int stage) {
    const list_problem *problem = self->problem;
    const int *stages = &problem->stage[problem->first_stage[problem->position_of[stage]]];
    int i = 0;
    while (stages[i] != stage) {
        i++;
    }
    return self->slot[server] + i;
}

static bool may_forward(const list_machine *self, int server, int stage) {
    const list_problem *problem = self->problem;
    const int width = problem->first_server[problem->position_of[stage] + 1] -
                      problem->first_server[problem->position_of[stage]];
    const double lead = self->policy->lead;
    const int in_flight = self->in_flight[slot_of(self, server, stage)];
    if (lead > 0 && in_flight > 0 &&
        in_flight >= 1 + (int)ceil(lead * problem->round_trip[stage] / width - 1e-9)) {
        return false;
    }
    return self->used[server] + problem->kept[stage] + problem->reserve[stage] <= problem->limit;
}

static bool may_input(const list_machine *self, int server, int stage) {
    const list_problem *problem = self->problem;
    return self->used[server] + problem->held[stage] - problem->kept[stage] <= problem->limit;
}

/* The F or I that this server runs first, of those that memory allows. */
static list_choice choose(const list_machine *self, int server, int position, int kind) {
    const list_problem *problem = self->problem;
    list_choice best = {-1, INFINITY};
    const double now = self->free_s[server];
    for (int i = problem->first_stage[position]; i < problem->first_stage[position + 1]; i++) {
        const int stage = problem->stage[i];
        const int m = *next_of(self, kind, stage);
        const double ready = ready_of(self, kind, stage);
        if (ready == INFINITY || crl_list_server(problem, stage, m) != server ||
            !(kind == LIST_FORWARD ? may_forward : may_input)(self, server, stage)) {
            continue;
        }
        const bool both = ready <= now && best.ready_s <= now;
        const bool better = both ? self->policy->deep_first || m < *next_of(self, kind, best.stage)
                                 : ready < best.ready_s;
        if (better) {
            best = (list_choice){stage, ready};
        }
    }
    return best;
}

/* The stage whose W is due: the one with most of them; -1: none. `least`: how many count. */
static int choose_weight(const list_machine *self, int server, int position, int least) {
    const list_problem *problem = self->problem;
    const int first = problem->first_stage[position];
    int best = -1, most = least - 1;
    for (int i = first; i < problem->first_stage[position + 1]; i++) {
        const int due = self->due[self->slot[server] + i - first];
        const int stage = problem->stage[i];
        if (due > most &&
            crl_list_server(problem, stage, *next_of(self, LIST_WEIGHT, stage)) == server) {
            most = due;
            best = stage;
        }
    }
    return best;
}

/* A sleeping server looks up when the next action of a stage can start, `now` at the earliest. */
static void wake(list_machine *self, int kind, int stage, double now) {
    const double ready =
        stage >= 0 && stage < self->problem->stages ? ready_of(self, kind, stage) : INFINITY;
    if (ready == INFINITY) {
        return;
    }
    const int server = crl_list_server(self->problem, stage, *next_of(self, kind, stage));
    if (self->asleep[server]) {
        self->free_s[server] = fmin(self->free_s[server], fmax(now, ready));
    }
}

static void start(list_machine *self, int server, int kind, int stage) {
    const list_problem *problem = self->problem;
    const int m = (*next_of(self, kind, stage))++;
    const int task = task_of(problem, kind, stage, m);
    const int slot = slot_of(self, server, stage);
    const double now = self->free_s[server];
    self->begin_s[server] = self->begin_s[server] < 0 ? now : self->begin_s[server];
    self->free_s[server] = self->last_s[server] = self->end_s[task] =
        now + problem->duration_s[stage][kind];
    self->left_s[server] -= problem->duration_s[stage][kind];
    self->sequence[self->done++] = task;
    self->in_flight[slot] += (kind == LIST_FORWARD) - (kind == LIST_INPUT);
    self->inputs[server] -= kind == LIST_INPUT;
    self->due[slot] += (kind == LIST_INPUT) - (kind == LIST_WEIGHT);
    if (kind == LIST_FORWARD) {
        self->used[server] += problem->kept[stage];
    } else {
        self->used[server] += kind == LIST_INPUT ? problem->held[stage] - problem->kept[stage]
                                                 : -problem->held[stage];
    }
    if (kind != LIST_WEIGHT) {
        self->last_kind[server] = kind;
        wake(self, kind, kind == LIST_FORWARD ? stage + 1 : stage - 1, now);
    }
    wake(self, kind, stage, now); /* its next micro-batch may be another server's turn */
}

/* Waiting is worth it up to `most_s`, and allowed while the target can still be kept. */
static bool may_wait(const list_machine *self, int server, double from_s, double until_s,
                     double most_s) {
    const double begin = self->policy->of_span ? fmax(self->begin_s[server], 0) : 0;
    return until_s - from_s < most_s * (1 - ROUNDING) &&
           until_s - begin + self->left_s[server] <= self->policy->target_s;
}

/* With an I that can start: false when the policy prefers a W for the room it makes. */
static bool prefers_room(const list_machine *self, int server, int position) {
    return self->policy->make_room && self->last_kind[server] == LIST_INPUT &&
           choose_weight(self, server, position, 1) >= 0;
}

/* The next F, unless an I comes so soon that the policy keeps the time free for it. */
static list_choice choose_forward(const list_machine *self, int server, int position,
                                  double input_s) {
    list_choice forward = choose(self, server, position, LIST_FORWARD);
    if (forward.stage < 0) {
        return forward;
    }
    const double begin = fmax(self->free_s[server], forward.ready_s);
    const double most =
        self->policy->wait_f * self->problem->duration_s[forward.stage][LIST_FORWARD];
    if (input_s > begin && may_wait(self, server, begin, input_s, most)) {
        forward.ready_s = INFINITY;
    }
    return forward;
}

static bool is_turn_of_forward(const list_machine *self, int server) {
    const list_order order = self->policy->order;
    return order == LIST_FORWARD_FIRST ||
           (order == LIST_ALTERNATE && self->last_kind[server] == LIST_INPUT);
}

static void decide(list_machine *self, int server, int position) {
    const list_policy *policy = self->policy;
    const double now = self->free_s[server];
    const list_choice input = choose(self, server, position, LIST_INPUT);
    const list_choice forward = choose_forward(self, server, position, input.ready_s);
    const int due = policy->debt > 0 ? choose_weight(self, server, position, policy->debt) : -1;
    const int weight = due >= 0 ? due : choose_weight(self, server, position, 1);
    const bool input_now = input.ready_s <= now, forward_now = forward.ready_s <= now;
    const double soon = fmin(input.ready_s, forward.ready_s);
    const double share = self->inputs[server] > policy->end_inputs ? policy->wait_w : 1;
    const double most =
        weight >= 0 ? share * self->problem->duration_s[weight][LIST_WEIGHT] : INFINITY;
    self->asleep[server] = false;
    if (due >= 0 || (input_now && !forward_now && prefers_room(self, server, position))) {
        start(self, server, LIST_WEIGHT, weight);
    } else if (input_now && !(forward_now && is_turn_of_forward(self, server))) {
        start(self, server, LIST_INPUT, input.stage);
    } else if (forward_now) {
        start(self, server, LIST_FORWARD, forward.stage);
    } else if (weight >= 0 && !may_wait(self, server, now, soon, most)) {
        start(self, server, LIST_WEIGHT, weight);
    } else {
        self->asleep[server] = true;
        self->free_s[server] = soon;
    }
}

static void reset(list_machine *self, const list_policy *policy, int *sequence) {
    const list_problem *problem = self->problem;
    const int slots = self->slot[problem->servers];
    self->policy = policy;
    self->sequence = sequence;
    self->done = 0;
    memset(self->next, 0, (size_t)(LIST_KINDS * problem->stages) * sizeof *self->next);
    memset(self->in_flight, 0, (size_t)slots * sizeof *self->in_flight);
    memset(self->due, 0, (size_t)slots * sizeof *self->due);
    for (int t = 0; t < problem->tasks; t++) {
        self->end_s[t] = -1;
    }
    for (int u = 0; u < problem->servers; u++) {
        self->free_s[u] = self->used[u] = 0;
        self->left_s[u] = problem->work_s[u];
        self->inputs[u] = problem->inputs[u];
        self->begin_s[u] = -1;
        self->asleep[u] = false;
        self->last_kind[u] = LIST_INPUT;
    }
}

void crl_list_run(list_machine *self, const list_policy *policy, list_sequence *out) {
    const list_problem *problem = self->problem;
    reset(self, policy, out->task);
    while (self->done < problem->tasks) {
        int server = 0;
        for (int u = 1; u < problem->servers; u++) {
            server = self->free_s[u] < self->free_s[server] ? u : server;
        }
        CRL_ASSERT(self->free_s[server] < INFINITY);
        decide(self, server, self->position[server]);
    }
    out->makespan_s = out->span_s = 0;
    for (int u = 0; u < problem->servers; u++) {
        const double end = self->last_s[u];
        out->makespan_s = fmax(out->makespan_s, end);
        out->span_s = fmax(out->span_s, end - self->begin_s[u]);
    }
}
