/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The checker: is a program complete, and does it come to its end even when every send has to wait
 * for its receive? Exact: what it calls a deadlock never ends, what it calls valid always does.
 * Refuses to judge speed or memory.
 *
 * A dead program is explained by following "waits for" from a stuck position until a position comes
 * back: that one is part of the cycle.
 */
#include "engine/ir/program_internal.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "engine/base/alloc.h"

typedef struct checker {
    const crl_program *program;
    program_index index;
    crl_check_report *report;
    int *home;    /* (stages; dealt: stages x micro-batches) position that runs it, or -1 */
    int *reached; /* (positions) */
} checker;

CRL_PRINTF(5, 6)
static bool found(checker *self, crl_verdict verdict, int position, int index, const char *format,
                  ...) {
    va_list arguments;
    self->report->verdict = verdict;
    self->report->position = position;
    self->report->index = index;
    va_start(arguments, format);
    vsnprintf(self->report->why, sizeof self->report->why, format, arguments);
    va_end(arguments);
    return true;
}

/* Position and index of action `number`, for a report. */
static bool found_at(checker *self, int number, const char *why) {
    const int position = crl_program_position_of(&self->index, number);
    return found(self, CRL_VERDICT_INVALID, position, number - self->index.first[position], "%s",
                 why);
}

static bool is_forward_only(const crl_program *program) {
    for (int p = 0; p < program->positions; p++) {
        const crl_action_list *list = &program->position[p];
        for (int i = 0; i < list->count; i++) {
            if (is_compute(list->action[i].kind) && list->action[i].kind != CRL_ACTION_FORWARD) {
                return false;
            }
        }
    }
    return true;
}

static bool missing(checker *self, int stage, const char *action, int micro_batch) {
    const int home = self->program->dealt
                         ? self->home[(size_t)stage * (size_t)self->program->micro_batches +
                                      (size_t)micro_batch]
                         : self->home[stage];
    return found(self, CRL_VERDICT_INVALID, home, -1, "%d%s%d is missing", stage, action,
                 micro_batch);
}

/* One micro-batch of one stage: F, and B or both of I and W. */
static bool check_parts(checker *self, int stage, int micro_batch, bool forward_only) {
    const program_index *index = &self->index;
    const int forward = crl_program_where(index, CRL_ACTION_FORWARD, stage, micro_batch);
    const int backward = crl_program_where(index, CRL_ACTION_BACKWARD, stage, micro_batch);
    const int input = crl_program_where(index, CRL_ACTION_INPUT, stage, micro_batch);
    const int weight = crl_program_where(index, CRL_ACTION_WEIGHT, stage, micro_batch);
    if (forward < 0) {
        return missing(self, stage, "F", micro_batch);
    }
    if (forward_only) {
        return false;
    }
    if (backward >= 0 && (input >= 0 || weight >= 0)) {
        char why[96];
        snprintf(why, sizeof why, "%dB%d beside %d%s%d, which is part of it", stage, micro_batch,
                 stage, input >= 0 ? "I" : "W", micro_batch);
        return found_at(self, backward, why);
    }
    if (backward < 0 && input < 0) {
        return missing(self, stage, weight >= 0 ? "I" : "B", micro_batch);
    }
    return backward < 0 && weight < 0 && missing(self, stage, "W", micro_batch);
}

/* Weights live in one place; of a dealt program, what a micro-batch leaves in a stage does. */
static bool check_homes(checker *self) {
    const crl_program *program = self->program;
    const int cells = program->dealt ? program->micro_batches : 1;
    memset(self->home, 0xff, (size_t)program->stages * (size_t)cells * sizeof *self->home);
    for (int p = 0; p < program->positions; p++) {
        const crl_action_list *list = &program->position[p];
        for (int i = 0; i < list->count; i++) {
            const crl_action *action = &list->action[i];
            if (program->dealt && action->micro_batch < 0) {
                continue;
            }
            int *home = &self->home[(size_t)action->stage * (size_t)cells +
                                    (size_t)(program->dealt ? action->micro_batch : 0)];
            if (*home >= 0 && *home != p) {
                char text[ACTION_TEXT_BYTES];
                return found(self, CRL_VERDICT_INVALID, p, i,
                             "%s on position %d, but %s %d is on position %d",
                             crl_program_action_text(program, action, text), p,
                             program->dealt ? "micro-batch" : "stage",
                             program->dealt ? action->micro_batch : action->stage, *home);
            }
            *home = p;
        }
    }
    return false;
}

static bool check_complete(checker *self) {
    const crl_program *program = self->program;
    const bool forward_only = is_forward_only(program);
    for (int s = 0; s < program->stages; s++) {
        for (int m = 0; m < program->micro_batches; m++) {
            if (check_parts(self, s, m, forward_only)) {
                return true;
            }
        }
    }
    return false;
}

/* The compute action on the same stage and micro-batch that makes or uses a message's data. */
static int partner_of(const checker *self, const crl_action *action) {
    return self->program->message[action->message].gradient
               ? crl_program_where_gradient(&self->index, action->stage, action->micro_batch)
               : crl_program_where(&self->index, CRL_ACTION_FORWARD, action->stage,
                                   action->micro_batch);
}

static bool check_message_order(checker *self, int position, int at) {
    const crl_action *action = &self->program->position[position].action[at];
    const bool sends = action->kind == CRL_ACTION_SEND;
    if (!sends && action->kind != CRL_ACTION_WAIT_RECV) {
        return false;
    }
    const int number = self->index.first[position] + at;
    const int partner = partner_of(self, action);
    if (partner >= 0 && (partner < number) != sends) {
        char mine[ACTION_TEXT_BYTES], other[ACTION_TEXT_BYTES];
        return found(
            self, CRL_VERDICT_INVALID, position, at, "%s comes %s %s",
            crl_program_action_text(self->program, action, mine), sends ? "before" : "after",
            crl_program_action_text(
                self->program, crl_program_action_at(self->program, &self->index, partner), other));
    }
    return false;
}

/* Message m: SEND and RECV on their positions, and each waited for. */
static bool check_message_parts(checker *self, const unsigned char *waits) {
    const crl_program *program = self->program;
    for (int m = 0; m < program->messages; m++) {
        const crl_message *message = &program->message[m];
        const int send = self->index.send[m], recv = self->index.recv[m];
        const bool placed = send >= 0 && recv >= 0 &&
                            crl_program_position_of(&self->index, send) == message->from &&
                            crl_program_position_of(&self->index, recv) == message->to;
        if (!placed || waits[m] != 3) {
            return found(self, CRL_VERDICT_INVALID, message->from, -1,
                         "message %d of micro-batch %d from position %d to %d lacks a part", m,
                         message->micro_batch, message->from, message->to);
        }
    }
    return false;
}

static crl_status check_messages(checker *self, bool *bad) {
    const crl_program *program = self->program;
    unsigned char *waits;
    CRL_TRY(crl_alloc(&waits, (size_t)program->messages, sizeof *waits));
    for (int p = 0; p < program->positions && !*bad; p++) {
        const crl_action_list *list = &program->position[p];
        for (int i = 0; i < list->count && !*bad; i++) {
            const crl_action_kind kind = list->action[i].kind;
            if (kind == CRL_ACTION_WAIT_SEND || kind == CRL_ACTION_WAIT_RECV) {
                waits[list->action[i].message] |= kind == CRL_ACTION_WAIT_SEND ? 1 : 2;
            }
            *bad = check_message_order(self, p, i);
        }
    }
    *bad = *bad || check_message_parts(self, waits);
    crl_free(waits);
    return CRL_STATUS_OK;
}

/* The action a stuck position waits for. */
static int blocker_of(const checker *self, int position) {
    const program_index *index = &self->index;
    const crl_action *action = &self->program->position[position].action[self->reached[position]];
    int needed[2];
    const int count = crl_program_dependencies(index, action, needed);
    for (int i = 0; i < count; i++) {
        const int home = crl_program_position_of(index, needed[i]);
        if (needed[i] - index->first[home] >= self->reached[home]) {
            return needed[i];
        }
    }
    return -1;
}

static void explain_deadlock(checker *self) {
    const crl_program *program = self->program;
    int position = 0;
    while (self->reached[position] == program->position[position].count) {
        position++;
    }
    /* After as many steps as there are positions the chain is inside its cycle. */
    for (int step = 0; step < program->positions; step++) {
        position = crl_program_position_of(&self->index, blocker_of(self, position));
    }
    const int first = position;
    char why[sizeof self->report->why];
    size_t used = 0;
    do {
        char mine[ACTION_TEXT_BYTES], other[ACTION_TEXT_BYTES];
        const int blocker = blocker_of(self, position);
        const crl_action *action = &program->position[position].action[self->reached[position]];
        const int length =
            snprintf(why + used, sizeof why - used, "%sposition %d waits at %s for %s",
                     used ? "; " : "", position, crl_program_action_text(program, action, mine),
                     crl_program_action_text(
                         program, crl_program_action_at(program, &self->index, blocker), other));
        used += length > 0 ? (size_t)length : 0;
        position = crl_program_position_of(&self->index, blocker);
    } while (position != first && used < sizeof why);
    found(self, CRL_VERDICT_DEADLOCK, first, self->reached[first], "%s", why);
}

static crl_status check_progress(checker *self) {
    bool complete;
    CRL_TRY(crl_program_walk(self->program, &self->index, NULL, NULL, self->reached, &complete));
    if (!complete) {
        explain_deadlock(self);
    }
    return CRL_STATUS_OK;
}

static crl_status run_checks(checker *self) {
    bool bad = check_homes(self) || check_complete(self);
    if (!bad && self->program->messages > 0) {
        CRL_TRY(check_messages(self, &bad));
    }
    return bad ? CRL_STATUS_OK : check_progress(self);
}

/* Notes which forwards there are; false: an action is out of range. */
static bool mark_forwards(const crl_program *program,
                          bool *present /* (stages x micro_batches) */) {
    for (int p = 0; p < program->positions; p++) {
        const crl_action_list *list = &program->position[p];
        for (int i = 0; i < list->count; i++) {
            const crl_action *action = &list->action[i];
            if (!crl_program_in_range(program, action)) {
                return false;
            }
            if (action->kind == CRL_ACTION_FORWARD) {
                present[(size_t)action->stage * (size_t)program->micro_batches +
                        (size_t)action->micro_batch] = true;
            }
        }
    }
    return true;
}

/* With fewer actions than there are forwards, one is missing: found without the large tables, so
 * that a short garbage file with large numbers costs little. */
static crl_status check_sparse(checker *self, bool *bad) {
    const crl_program *program = self->program;
    const size_t cells = (size_t)program->stages * (size_t)program->micro_batches;
    size_t actions = 0, first = 0;
    bool *present;
    for (int p = 0; p < program->positions; p++) {
        actions += (size_t)program->position[p].count;
    }
    if (actions >= cells) {
        return CRL_STATUS_OK;
    }
    CRL_TRY(crl_alloc(&present, cells, sizeof *present));
    const bool in_range = mark_forwards(program, present);
    while (present[first]) {
        first++;
    }
    crl_free(present);
    *bad = in_range &&
           found(self, CRL_VERDICT_INVALID, -1, -1, "%zuF%zu is missing",
                 first / (size_t)program->micro_batches, first % (size_t)program->micro_batches);
    return CRL_STATUS_OK;
}

crl_status crl_program_try_check(const crl_program *program, crl_check_report *report) {
    crl_status status = CRL_STATUS_OK;
    checker self = {.program = program, .report = report};
    bool bad = false;
    *report = (crl_check_report){.verdict = CRL_VERDICT_VALID, .position = -1, .index = -1};
    CRL_TRY(check_sparse(&self, &bad));
    if (bad) {
        return CRL_STATUS_OK;
    }
    status = crl_program_index_create(&self.index, program, report);
    if (status == CRL_STATUS_INVALID && report->verdict == CRL_VERDICT_INVALID) {
        return CRL_STATUS_OK;
    }
    CRL_TRY_OUT(status);
    const size_t homes =
        (size_t)program->stages * (program->dealt ? (size_t)program->micro_batches : 1);
    CRL_TRY_OUT(crl_alloc(&self.home, homes, sizeof *self.home));
    CRL_TRY_OUT(crl_alloc(&self.reached, (size_t)program->positions, sizeof *self.reached));
    CRL_TRY_OUT(run_checks(&self));
out:
    crl_program_index_destroy(&self.index);
    crl_free(self.home);
    crl_free(self.reached);
    return status;
}

void crl_program_check(const crl_program *program, crl_check_report *report) {
    if (crl_program_try_check(program, report) != CRL_STATUS_OK) {
        *report = (crl_check_report){.verdict = CRL_VERDICT_INVALID, .position = -1, .index = -1};
        snprintf(report->why, sizeof report->why, "not checked: %.200s", crl_error_message());
    }
}

crl_status crl_program_require_valid(const crl_program *program) {
    crl_check_report report;
    CRL_TRY(crl_program_try_check(program, &report));
    if (report.verdict != CRL_VERDICT_VALID) {
        return CRL_FAIL(INVALID, "schedule: %s%s",
                        report.verdict == CRL_VERDICT_DEADLOCK ? "deadlock: " : "", report.why);
    }
    return CRL_STATUS_OK;
}
