/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Where every action stands, what it depends on, and the walk that runs a program as far as it
 * goes.
 *
 * The walk is a work list of positions: a position runs until its next action needs one that was
 * not reached yet, and is put to sleep on that one. What can run never stops being able to, so the
 * order of the work list does not matter. Every action is looked at once or, when it slept, a few
 * times: linear time.
 */
#include "engine/ir/program_internal.h"

#include <stdio.h>
#include <string.h>

#include "engine/base/alloc.h"

static crl_status create_tables(program_index *index, const crl_program *program) {
    const size_t cells = (size_t)program->stages * (size_t)program->micro_batches;
    CRL_TRY(crl_alloc(&index->first, (size_t)program->positions + 1, sizeof *index->first));
    int64_t actions = 0;
    for (int p = 0; p < program->positions; p++) {
        index->first[p] = (int)actions;
        actions += program->position[p].count;
        if (actions > PROGRAM_MAX_ACTIONS) {
            return CRL_FAIL(INVALID, "program: more than %d actions", PROGRAM_MAX_ACTIONS);
        }
    }
    index->first[program->positions] = (int)actions;
    index->actions = (int)actions;
    for (int kind = 0; kind < COMPUTE_KINDS; kind++) {
        CRL_TRY(crl_alloc(&index->where[kind], cells, sizeof **index->where));
        memset(index->where[kind], 0xff, cells * sizeof **index->where);
    }
    const size_t messages = (size_t)program->messages;
    CRL_TRY(crl_alloc(&index->send, messages, sizeof *index->send));
    CRL_TRY(crl_alloc(&index->recv, messages, sizeof *index->recv));
    memset(index->send, 0xff, messages * sizeof *index->send);
    memset(index->recv, 0xff, messages * sizeof *index->recv);
    return CRL_STATUS_OK;
}

/* Puts the failure just recorded, and its place, into the report. */
static crl_status mark(crl_check_report *report, int position, int index, crl_status status) {
    if (report) {
        *report = (crl_check_report){
            .verdict = CRL_VERDICT_INVALID, .position = position, .index = index};
        snprintf(report->why, sizeof report->why, "%.*s", (int)sizeof report->why - 1,
                 crl_error_message());
    }
    return status;
}

/* The slot an action belongs in; NULL for those that need none. */
static int *slot_of(const program_index *index, const crl_program *program,
                    const crl_action *action) {
    if (is_compute(action->kind)) {
        return &index->where[action->kind][(size_t)action->stage * (size_t)program->micro_batches +
                                           (size_t)action->micro_batch];
    }
    if (action->kind == CRL_ACTION_SEND) {
        return &index->send[action->message];
    }
    return action->kind == CRL_ACTION_RECV ? &index->recv[action->message] : NULL;
}

bool crl_program_in_range(const crl_program *program, const crl_action *action) {
    if (action->kind < 0 || action->kind >= CRL_ACTION_KINDS || action->stage < 0 ||
        action->stage >= program->stages || action->micro_batch >= program->micro_batches) {
        return false;
    }
    if (action->kind == CRL_ACTION_REDUCE || action->kind == CRL_ACTION_STEP) {
        return true;
    }
    return action->micro_batch >= 0 &&
           (is_compute(action->kind) ||
            (action->message >= 0 && action->message < program->messages));
}

static crl_status report_twice(const crl_program *program, const program_index *index, int position,
                               int at, int earlier) {
    char text[ACTION_TEXT_BYTES];
    const crl_action *action = &program->position[position].action[at];
    crl_program_action_text(program, action, text);
    const int other = crl_program_position_of(index, earlier);
    const int cell = earlier - index->first[other] + 1;
    if (other == position) {
        return CRL_FAIL(INVALID, "%s twice: cells %d and %d of position %d", text, cell, at + 1,
                        position);
    }
    return CRL_FAIL(INVALID, "%s twice: cell %d of position %d and cell %d of position %d", text,
                    cell, other, at + 1, position);
}

static crl_status fill_tables(program_index *index, const crl_program *program,
                              crl_check_report *report) {
    for (int p = 0; p < program->positions; p++) {
        const crl_action_list *list = &program->position[p];
        for (int i = 0; i < list->count; i++) {
            const crl_action *action = &list->action[i];
            if (!crl_program_in_range(program, action)) {
                return mark(report, p, i,
                            CRL_FAIL(INVALID,
                                     "cell %d of position %d: stage %d micro-batch %d is out of "
                                     "range",
                                     i + 1, p, action->stage, action->micro_batch));
            }
            int *slot = slot_of(index, program, action);
            if (slot && *slot >= 0) {
                return mark(report, p, i, report_twice(program, index, p, i, *slot));
            }
            if (slot) {
                *slot = index->first[p] + i;
            }
        }
    }
    return CRL_STATUS_OK;
}

crl_status crl_program_index_create(program_index *out, const crl_program *program,
                                    crl_check_report *report) {
    crl_status status = CRL_STATUS_OK;
    program_index index = {.positions = program->positions,
                           .stages = program->stages,
                           .micro_batches = program->micro_batches};
    CRL_TRY_OUT(create_tables(&index, program));
    CRL_TRY_OUT(fill_tables(&index, program, report));
    *out = index;
    return CRL_STATUS_OK;
out:
    crl_program_index_destroy(&index);
    return status;
}

void crl_program_index_destroy(program_index *index) {
    crl_free(index->first);
    for (int kind = 0; kind < COMPUTE_KINDS; kind++) {
        crl_free(index->where[kind]);
    }
    crl_free(index->send);
    crl_free(index->recv);
    *index = (program_index){0};
}

int crl_program_where(const program_index *index, crl_action_kind kind, int stage,
                      int micro_batch) {
    return index->where[kind][(size_t)stage * (size_t)index->micro_batches + (size_t)micro_batch];
}

int crl_program_where_gradient(const program_index *index, int stage, int micro_batch) {
    const int fused = crl_program_where(index, CRL_ACTION_BACKWARD, stage, micro_batch);
    return fused >= 0 ? fused : crl_program_where(index, CRL_ACTION_INPUT, stage, micro_batch);
}

int crl_program_position_of(const program_index *index, int number) {
    int low = 0, high = index->positions;
    while (high - low > 1) {
        const int middle = low + (high - low) / 2;
        if (index->first[middle] <= number) {
            low = middle;
        } else {
            high = middle;
        }
    }
    return low;
}

const crl_action *crl_program_action_at(const crl_program *program, const program_index *index,
                                        int number) {
    const int position = crl_program_position_of(index, number);
    return &program->position[position].action[number - index->first[position]];
}

int crl_program_dependencies(const program_index *index, const crl_action *action, int needed[2]) {
    const int stage = action->stage, micro_batch = action->micro_batch;
    int count = 0;
    switch (action->kind) {
    case CRL_ACTION_FORWARD:
        if (stage > 0) {
            needed[count++] = crl_program_where(index, CRL_ACTION_FORWARD, stage - 1, micro_batch);
        }
        break;
    case CRL_ACTION_BACKWARD:
    case CRL_ACTION_INPUT:
        needed[count++] = crl_program_where(index, CRL_ACTION_FORWARD, stage, micro_batch);
        if (stage + 1 < index->stages) {
            needed[count++] = crl_program_where_gradient(index, stage + 1, micro_batch);
        }
        break;
    case CRL_ACTION_WEIGHT:
        needed[count++] = crl_program_where(index, CRL_ACTION_INPUT, stage, micro_batch);
        break;
    case CRL_ACTION_WAIT_SEND:
    case CRL_ACTION_WAIT_RECV:
        needed[count++] = index->send[action->message];
        needed[count++] = index->recv[action->message];
        break;
    default:
        break;
    }
    return count;
}

typedef struct walk {
    const crl_program *program;
    const program_index *index;
    program_visit_fn visit;
    void *context;
    int *reached;
    bool *done;   /* (actions) */
    int *sleeper; /* (actions) first position asleep on it, or -1 */
    int *next;    /* (positions) next position asleep on the same action, or -1 */
    int *stack;   /* (positions) those that may run */
    int depth;
} walk;

/* The first action `action` still waits for, or -1. */
static int blocked_on(const walk *state, const crl_action *action) {
    int needed[2];
    const int count = crl_program_dependencies(state->index, action, needed);
    for (int i = 0; i < count; i++) {
        if (needed[i] >= 0 && !state->done[needed[i]]) {
            return needed[i];
        }
    }
    return -1;
}

static void run_position(walk *state, int position) {
    const crl_action_list *list = &state->program->position[position];
    while (state->reached[position] < list->count) {
        const int at = state->reached[position];
        const int number = state->index->first[position] + at;
        const int blocker = blocked_on(state, &list->action[at]);
        if (blocker >= 0) {
            state->next[position] = state->sleeper[blocker];
            state->sleeper[blocker] = position;
            return;
        }
        state->done[number] = true;
        state->reached[position]++;
        if (state->visit) {
            state->visit(state->context, position, at);
        }
        for (int p = state->sleeper[number]; p >= 0; p = state->next[p]) {
            state->stack[state->depth++] = p;
        }
    }
}

crl_status crl_program_walk(const crl_program *program, const program_index *index,
                            program_visit_fn visit, void *context, int *reached, bool *complete) {
    crl_status status = CRL_STATUS_OK;
    const size_t actions = (size_t)index->actions, positions = (size_t)index->positions;
    walk state = {
        .program = program, .index = index, .visit = visit, .context = context, .reached = reached};
    CRL_TRY_OUT(crl_alloc(&state.done, actions, sizeof *state.done));
    CRL_TRY_OUT(crl_alloc(&state.sleeper, actions, sizeof *state.sleeper));
    CRL_TRY_OUT(crl_alloc(&state.next, positions, sizeof *state.next));
    CRL_TRY_OUT(crl_alloc(&state.stack, positions, sizeof *state.stack));
    memset(state.sleeper, 0xff, actions * sizeof *state.sleeper);
    memset(reached, 0, positions * sizeof *reached);
    for (int p = index->positions - 1; p >= 0; p--) {
        state.stack[state.depth++] = p;
    }
    while (state.depth > 0) {
        run_position(&state, state.stack[--state.depth]);
    }
    *complete = true;
    for (int p = 0; p < index->positions; p++) {
        *complete = *complete && reached[p] == program->position[p].count;
    }
out:
    crl_free(state.done);
    crl_free(state.sleeper);
    crl_free(state.next);
    crl_free(state.stack);
    return status;
}
