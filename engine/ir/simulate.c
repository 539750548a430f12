/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Times a program: checks it and its costs, walks it once (simulate_visit.c), adds up, and follows
 * the makespan back (simulate_path.c). Refuses programs that never end.
 *
 * cost card: linear in the number of actions.
 */
#include "engine/ir/simulate.h"
#include "engine/ir/simulate_internal.h"

#include <math.h>

#include "engine/base/alloc.h"

static bool is_cost(double value) {
    return isfinite(value) && value >= 0;
}

static crl_status check_link(const crl_link *link) {
    if (!is_cost(link->latency_s) || !is_cost(link->bytes_per_s)) {
        return CRL_FAIL(INVALID, "simulation: latency %g s, %g bytes/s, expected 0 or more",
                        link->latency_s, link->bytes_per_s);
    }
    return CRL_STATUS_OK;
}

static crl_status check_stage(int stage, const crl_stage_cost *cost) {
    const double seconds[] = {cost->forward_s, cost->input_s, cost->weight_s};
    const double bytes[] = {cost->kept_bytes, cost->held_bytes, cost->output_bytes};
    for (int i = 0; i < 3; i++) {
        if (!is_cost(seconds[i])) {
            return CRL_FAIL(INVALID, "simulation: stage %d takes %g s, expected 0 or more", stage,
                            seconds[i]);
        }
        if (!is_cost(bytes[i])) {
            return CRL_FAIL(INVALID, "simulation: stage %d has %g bytes, expected 0 or more", stage,
                            bytes[i]);
        }
    }
    return CRL_STATUS_OK;
}

static crl_status check_config(const crl_program *program, const crl_simulation_config *config) {
    for (int s = 0; s < program->stages; s++) {
        CRL_TRY(check_stage(s, &config->stage[s]));
    }
    if (!is_cost(config->message_s)) {
        return CRL_FAIL(INVALID,
                        "simulation: a message takes its position %g s, expected 0 or more",
                        config->message_s);
    }
    CRL_TRY(check_link(&config->link));
    return check_link(&config->between);
}

/* A time per action: one block for all positions, owned by the first. */
static crl_status create_times(double ***out, const program_index *index) {
    double **times = NULL;
    CRL_TRY(crl_alloc(&times, (size_t)index->positions, sizeof *times));
    *out = times;
    CRL_TRY(crl_alloc(&times[0], (size_t)index->actions, sizeof *times[0]));
    for (int p = 1; p < index->positions; p++) {
        times[p] = times[0] + index->first[p];
    }
    return CRL_STATUS_OK;
}

static crl_status create_tables(simulator *self) {
    const size_t positions = (size_t)self->program->positions;
    const int sent = is_bare(self) ? self->index->actions : self->program->messages;
    CRL_TRY(crl_alloc(&self->result, 1, sizeof *self->result));
    crl_simulation *result = self->result;
    CRL_TRY(crl_alloc(&result->busy_s, positions, sizeof *result->busy_s));
    CRL_TRY(crl_alloc(&result->position, positions, sizeof *result->position));
    CRL_TRY(create_times(&result->start_s, self->index));
    CRL_TRY(create_times(&result->end_s, self->index));
    CRL_TRY(crl_alloc(&self->clock, positions, sizeof *self->clock));
    CRL_TRY(crl_alloc(&self->link, positions, sizeof *self->link));
    CRL_TRY(crl_alloc(&self->arrival, (size_t)sent, sizeof *self->arrival));
    CRL_TRY(crl_alloc(&self->bytes, positions, sizeof *self->bytes));
    return crl_alloc(&self->live, positions, sizeof *self->live);
}

/* From the first compute action of a position to its end. */
static double span_of(const simulator *self, int position) {
    const crl_action_list *list = &self->program->position[position];
    for (int i = 0; i < list->count; i++) {
        if (is_compute(list->action[i].kind)) {
            return self->clock[position] - self->result->start_s[position][i];
        }
    }
    return 0;
}

/* What only the end tells: idle times after the last action, the bubble, the span. */
static void add_up(simulator *self) {
    crl_simulation *result = self->result;
    const int positions = self->program->positions;
    double busy = 0;
    for (int p = 0; p < positions; p++) {
        busy += result->busy_s[p];
        result->position[p].after_s = result->makespan_s - self->clock[p];
        result->span_s = fmax(result->span_s, span_of(self, p));
    }
    result->bubble =
        result->makespan_s > 0 ? fmax(0, 1 - busy / (positions * result->makespan_s)) : 0;
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
    CRL_TRY_OUT(create_tables(&self));
    CRL_TRY_OUT(crl_alloc(&reached, (size_t)index.positions, sizeof *reached));
    CRL_TRY_OUT(crl_program_walk(program, &index, crl_simulator_visit, &self, reached, &complete));
    CRL_ASSERT(complete);
    if (!isfinite(self.result->makespan_s)) {
        status = CRL_FAIL(INVALID, "simulation: the makespan is beyond what a double can hold");
        goto out;
    }
    add_up(&self);
    CRL_TRY_OUT(crl_simulator_path(&self));
    *out = self.result;
    self.result = NULL;
out:
    crl_simulation_destroy(self.result);
    crl_free(self.clock);
    crl_free(self.link);
    crl_free(self.arrival);
    crl_free(self.bytes);
    crl_free(self.live);
    crl_free(reached);
    crl_program_index_destroy(&index);
    return status;
}

static void destroy_times(double **times) {
    if (times) {
        crl_free(times[0]);
    }
    crl_free(times);
}

void crl_simulation_destroy(crl_simulation *simulation) {
    if (!simulation) {
        return;
    }
    destroy_times(simulation->start_s);
    destroy_times(simulation->end_s);
    crl_free(simulation->position);
    crl_free(simulation->path);
    crl_free(simulation->busy_s);
    crl_free(simulation);
}
