/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Times a program: every action starts as early as its position and its inputs allow, which is what
 * an executor without clocks does. Links are not shared by messages (no contention), a transfer
 * takes latency + bytes / bandwidth from the moment its send starts, a copy inside a position
 * nothing, and messages cost their position no time except where it waits. Refuses programs that
 * never end.
 *
 * cost card: linear in the number of actions.
 */
#include "engine/ir/simulate.h"
#include "engine/ir/program_internal.h"
#include "engine/ir/simulate_internal.h"

#include <math.h>

#include "engine/base/alloc.h"

typedef struct simulator {
    const crl_program *program;
    const crl_simulation_config *config;
    const program_index *index;
    crl_simulation *result;
    double *end;   /* (actions) */
    double *clock; /* (positions) */
} simulator;

static double transfer_time(const simulator *self, const crl_message *message) {
    const int *node = self->config->node;
    if (message->from == message->to) {
        return 0;
    }
    const bool leaves = node && node[message->from] != node[message->to];
    const crl_link *link = leaves ? &self->config->between : &self->config->link;
    return link->latency_s + (link->bytes_per_s > 0 ? (double)message->bytes / link->bytes_per_s : 0);
}

static void visit(void *context, int position, int at) {
    simulator *self = context;
    const crl_action *action = &self->program->position[position].action[at];
    double start = self->clock[position];
    double end;
    if (action->kind == CRL_ACTION_WAIT_SEND || action->kind == CRL_ACTION_WAIT_RECV) {
        const double sent = self->end[self->index->send[action->message]];
        end = fmax(start, sent + transfer_time(self, &self->program->message[action->message]));
    } else {
        int needed[2];
        const int count = crl_program_dependencies(self->index, action, needed);
        for (int i = 0; i < count; i++) {
            start = fmax(start, self->end[needed[i]]);
        }
        const double duration = action_duration(self->config, action);
        end = start + duration;
        self->result->busy_s[position] += duration;
    }
    self->result->start_s[position][at] = start;
    self->end[self->index->first[position] + at] = end;
    self->clock[position] = end;
    self->result->makespan_s = fmax(self->result->makespan_s, end);
}

static crl_status check_link(const crl_link *link) {
    if (!isfinite(link->latency_s) || link->latency_s < 0 || !isfinite(link->bytes_per_s) ||
        link->bytes_per_s < 0) {
        return CRL_FAIL(INVALID, "simulation: latency %g s, %g bytes/s, expected 0 or more",
                        link->latency_s, link->bytes_per_s);
    }
    return CRL_STATUS_OK;
}

static crl_status check_config(const crl_program *program, const crl_simulation_config *config) {
    for (int s = 0; s < program->stages; s++) {
        const crl_stage_cost *time = &config->stage[s];
        const double parts[] = {time->forward_s, time->input_s, time->weight_s};
        for (int i = 0; i < 3; i++) {
            if (!isfinite(parts[i]) || parts[i] < 0) {
                return CRL_FAIL(INVALID, "simulation: stage %d takes %g s, expected 0 or more", s,
                                parts[i]);
            }
        }
    }
    CRL_TRY(check_link(&config->link));
    return check_link(&config->between);
}

static crl_status simulation_create(crl_simulation **out, const program_index *index) {
    crl_status status = CRL_STATUS_OK;
    crl_simulation *result = NULL;
    const size_t positions = (size_t)index->positions;
    CRL_TRY(crl_alloc(&result, 1, sizeof *result));
    CRL_TRY_OUT(crl_alloc(&result->busy_s, positions, sizeof *result->busy_s));
    CRL_TRY_OUT(crl_alloc(&result->start_s, positions, sizeof *result->start_s));
    /* One block for all positions, owned by the first. */
    CRL_TRY_OUT(crl_alloc(&result->start_s[0], (size_t)index->actions, sizeof *result->start_s[0]));
    for (int p = 1; p < index->positions; p++) {
        result->start_s[p] = result->start_s[0] + index->first[p];
    }
    *out = result;
    return CRL_STATUS_OK;
out:
    crl_simulation_destroy(result);
    return status;
}

static double bubble_of(const crl_simulation *result, int positions) {
    double busy = 0;
    for (int p = 0; p < positions; p++) {
        busy += result->busy_s[p];
    }
    return result->makespan_s > 0 ? 1 - busy / (positions * result->makespan_s) : 0;
}

crl_status crl_simulate(crl_simulation **out, const crl_program *program,
                        const crl_simulation_config *config) {
    crl_status status = CRL_STATUS_OK;
    program_index index = {0};
    int *reached = NULL;
    bool complete = false;
    simulator self = {.program = program, .config = config, .index = &index};
    CRL_TRY(check_config(program, config));
    CRL_TRY(crl_program_require_valid(program));
    CRL_TRY_OUT(crl_program_index_create(&index, program, NULL));
    CRL_TRY_OUT(simulation_create(&self.result, &index));
    CRL_TRY_OUT(crl_alloc(&self.end, (size_t)index.actions, sizeof *self.end));
    CRL_TRY_OUT(crl_alloc(&self.clock, (size_t)index.positions, sizeof *self.clock));
    CRL_TRY_OUT(crl_alloc(&reached, (size_t)index.positions, sizeof *reached));
    CRL_TRY_OUT(crl_program_walk(program, &index, visit, &self, reached, &complete));
    CRL_ASSERT(complete);
    self.result->bubble = bubble_of(self.result, program->positions);
    *out = self.result;
    self.result = NULL;
out:
    crl_simulation_destroy(self.result);
    crl_free(self.end);
    crl_free(self.clock);
    crl_free(reached);
    crl_program_index_destroy(&index);
    return status;
}

void crl_simulation_destroy(crl_simulation *simulation) {
    if (!simulation) {
        return;
    }
    if (simulation->start_s) {
        crl_free(simulation->start_s[0]);
    }
    crl_free(simulation->start_s);
    crl_free(simulation->busy_s);
    crl_free(simulation);
}
