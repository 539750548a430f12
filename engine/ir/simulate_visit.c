/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The simulator's clock: every action starts as early as its position and its inputs allow, which
 * is what an executor without clocks does.
 *
 *     position 0   | F0 |o|                    o: message_s, starting the send
 *     link 0 -> 1          ====~~~~~           bytes / bandwidth, then latency
 *     position 1   ......in......m..|o| F0 |   waits for the input, then for the message;
 *                                              o: message_s, ending the receive
 *
 * Messages arrive whether or not their receive has been posted (a receiver has room for one). With
 * shared links those of one position leave in the order of its sends. Copies inside a position are
 * free. Memory is counted in the order of the position's list: F adds what it keeps before it runs,
 * B, I and W free theirs when they are over.
 */
#include "engine/ir/simulate_internal.h"

#include <math.h>

static int elsewhere(const program_index *index, int position, int number) {
    return number >= 0 && crl_program_position_of(index, number) != position ? number : -1;
}

int crl_simulator_input(const program_index *index, int position, const crl_action *action) {
    const int stage = action->stage, micro_batch = action->micro_batch;
    int number = -1;
    if (action->kind == CRL_ACTION_FORWARD && stage > 0) {
        number = crl_program_where(index, CRL_ACTION_FORWARD, stage - 1, micro_batch);
    } else if ((action->kind == CRL_ACTION_BACKWARD || action->kind == CRL_ACTION_INPUT) &&
               stage + 1 < index->stages) {
        number = crl_program_where_gradient(index, stage + 1, micro_batch);
    }
    return elsewhere(index, position, number);
}

int crl_simulator_output(const program_index *index, int position, const crl_action *action) {
    const int stage = action->stage, micro_batch = action->micro_batch;
    int number = -1;
    if (action->kind == CRL_ACTION_FORWARD && stage + 1 < index->stages) {
        number = crl_program_where(index, CRL_ACTION_FORWARD, stage + 1, micro_batch);
    } else if ((action->kind == CRL_ACTION_BACKWARD || action->kind == CRL_ACTION_INPUT) &&
               stage > 0) {
        number = crl_program_where_gradient(index, stage - 1, micro_batch);
    }
    return elsewhere(index, position, number);
}

static bool is_local(const simulator *self, const crl_action *action) {
    const crl_message *message = &self->program->message[action->message];
    return message->from == message->to;
}

double crl_simulator_awaited(const simulator *self, int position, const crl_action *action,
                             int *cause) {
    *cause = -1;
    if (is_compute(action->kind)) {
        *cause = crl_simulator_input(self->index, position, action);
        return *cause < 0
                   ? 0
                   : (is_bare(self) ? self->arrival[*cause] : self->result->end_s[0][*cause]);
    }
    const bool waits = action->kind == CRL_ACTION_WAIT_SEND || action->kind == CRL_ACTION_WAIT_RECV;
    if (!waits || is_local(self, action)) {
        return 0;
    }
    *cause = self->index->send[action->message];
    return self->arrival[action->message];
}

/* Sends at `when`; when it arrives. */
static double send(simulator *self, int from, int to, double bytes, double when) {
    const int *node = self->config->node;
    const bool leaves = node && node[from] != node[to];
    const crl_link *link = leaves ? &self->config->between : &self->config->link;
    const double wire_s = link->bytes_per_s > 0 ? bytes / link->bytes_per_s : 0;
    if (self->config->shared_links) {
        when = fmax(when, self->link[from]);
        self->link[from] = when + wire_s;
    }
    self->result->messages++;
    return when + (link->latency_s + wire_s);
}

static void count_work(simulator *self, int position, const crl_action *action) {
    const crl_stage_cost *cost = &self->config->stage[action->stage];
    crl_position_times *times = &self->result->position[position];
    if (action->kind == CRL_ACTION_FORWARD) {
        times->forward_s += cost->forward_s;
    }
    if (action->kind == CRL_ACTION_INPUT || action->kind == CRL_ACTION_BACKWARD) {
        times->input_s += cost->input_s;
    }
    if (action->kind == CRL_ACTION_WEIGHT || action->kind == CRL_ACTION_BACKWARD) {
        times->weight_s += cost->weight_s;
    }
    self->result->busy_s[position] += action_duration(self->config, action);
}

static void count_memory(simulator *self, int position, const crl_action *action) {
    const crl_stage_cost *cost = &self->config->stage[action->stage];
    crl_position_times *times = &self->result->position[position];
    double *bytes = &self->bytes[position];
    int *live = &self->live[position];
    const bool forward = action->kind == CRL_ACTION_FORWARD;
    const bool kept =
        crl_program_where_gradient(self->index, action->stage, action->micro_batch) >= 0;
    *bytes += forward ? cost->kept_bytes : 0;
    *live += forward ? 1 : 0;
    times->peak_bytes = fmax(times->peak_bytes, *bytes);
    times->peak_activations = *live > times->peak_activations ? *live : times->peak_activations;
    if (action->kind == CRL_ACTION_WEIGHT) {
        *bytes -= cost->held_bytes;
    } else if (!forward || !kept) {
        *bytes -= cost->kept_bytes;
        *bytes += action->kind == CRL_ACTION_INPUT ? cost->held_bytes : 0;
        (*live)--;
    }
    times->peak_bytes = fmax(times->peak_bytes, *bytes);
}

/* From `clock` to `there`: first for the action that makes it, then for the message. */
static double wait_for(crl_position_times *times, double clock, double made, double there) {
    times->wait_input_s += fmax(0, made - clock);
    times->wait_message_s += fmax(0, there - fmax(clock, made));
    return fmax(clock, there);
}

static void visit_compute(simulator *self, int position, int at, const crl_action *action) {
    crl_position_times *times = &self->result->position[position];
    double clock = self->clock[position];
    int input;
    const double there = crl_simulator_awaited(self, position, action, &input);
    if (input >= 0) {
        clock = wait_for(times, clock, self->result->end_s[0][input], there);
    }
    if (input >= 0 && is_bare(self)) {
        clock += self->config->message_s;
        times->message_s += self->config->message_s;
    }
    self->result->start_s[position][at] = clock;
    clock += action_duration(self->config, action);
    self->result->end_s[position][at] = clock;
    count_work(self, position, action);
    count_memory(self, position, action);
    const int output = is_bare(self) ? crl_simulator_output(self->index, position, action) : -1;
    if (output >= 0) {
        const int edge = action->kind == CRL_ACTION_FORWARD ? action->stage : action->stage - 1;
        clock += self->config->message_s;
        times->message_s += self->config->message_s;
        self->arrival[self->index->first[position] + at] =
            send(self, position, crl_program_position_of(self->index, output),
                 self->config->stage[edge].output_bytes, clock);
    }
    self->clock[position] = clock;
}

static double visit_message(simulator *self, int position, const crl_action *action) {
    crl_position_times *times = &self->result->position[position];
    const crl_message *message = &self->program->message[action->message];
    double clock = self->clock[position];
    int sender;
    const double there = crl_simulator_awaited(self, position, action, &sender);
    if (action->kind == CRL_ACTION_SEND && message->from != message->to) {
        clock += self->config->message_s;
        times->message_s += self->config->message_s;
        self->arrival[action->message] =
            send(self, message->from, message->to, (double)message->bytes, clock);
    } else if (action->kind == CRL_ACTION_WAIT_SEND) {
        times->wait_send_s += fmax(0, there - clock);
        clock = fmax(clock, there);
    } else if (action->kind == CRL_ACTION_WAIT_RECV && sender >= 0) {
        clock = wait_for(times, clock, self->result->start_s[0][sender], there);
        clock += self->config->message_s;
        times->message_s += self->config->message_s;
    }
    return clock;
}

void crl_simulator_visit(void *context, int position, int at) {
    simulator *self = context;
    const crl_action *action = &self->program->position[position].action[at];
    if (is_compute(action->kind)) {
        visit_compute(self, position, at, action);
    } else {
        self->result->start_s[position][at] = self->clock[position];
        if (action->message >= 0) {
            self->clock[position] = visit_message(self, position, action);
        }
        self->result->end_s[position][at] = self->clock[position];
    }
    self->result->makespan_s = fmax(self->result->makespan_s, self->clock[position]);
}
