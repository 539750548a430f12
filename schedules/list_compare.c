/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The order of a program as a sequence, to be compared with others: B becomes I and W, the lists of
 * the positions are merged so that everything comes after what it needs. Refuses nothing: programs
 * of schedules end.
 */
#include "schedules/list_internal.h"

#include "engine/base/alloc.h"

typedef struct merger {
    const list_problem *problem;
    const crl_program *program;
    int *reached; /* (P) actions of a position that have been placed */
    bool *done;   /* (tasks) */
    int *task;    /* (tasks) the sequence */
    int placed;
} merger;

static int task_of(const list_problem *problem, int kind, const crl_action *action) {
    return (LIST_KINDS * action->stage + kind) * problem->micro_batches + action->micro_batch;
}

static bool may_run(const merger *self, const crl_action *action) {
    const list_problem *problem = self->problem;
    const int row = LIST_KINDS * problem->micro_batches;
    const int forward = task_of(problem, LIST_FORWARD, action);
    const int input = task_of(problem, LIST_INPUT, action);
    if (action->kind == CRL_ACTION_FORWARD) {
        return action->stage == 0 || self->done[forward - row];
    }
    if (action->kind == CRL_ACTION_WEIGHT) {
        return self->done[input];
    }
    return self->done[forward] && (action->stage == problem->stages - 1 || self->done[input + row]);
}

static void place(merger *self, int kind, const crl_action *action) {
    const int task = task_of(self->problem, kind, action);
    self->done[task] = true;
    self->task[self->placed++] = task;
}

static void run(merger *self, const crl_action *action) {
    if (action->kind == CRL_ACTION_FORWARD) {
        place(self, LIST_FORWARD, action);
    }
    if (action->kind == CRL_ACTION_INPUT || action->kind == CRL_ACTION_BACKWARD) {
        place(self, LIST_INPUT, action);
    }
    if (action->kind == CRL_ACTION_WEIGHT || action->kind == CRL_ACTION_BACKWARD) {
        place(self, LIST_WEIGHT, action);
    }
}

static void merge(merger *self) {
    for (int before = -1; self->placed > before && self->placed < self->problem->tasks;) {
        before = self->placed;
        for (int p = 0; p < self->program->positions; p++) {
            const crl_action_list *list = &self->program->position[p];
            while (self->reached[p] < list->count &&
                   may_run(self, &list->action[self->reached[p]])) {
                run(self, &list->action[self->reached[p]++]);
            }
        }
    }
    CRL_ASSERT(self->placed == self->problem->tasks);
}

crl_status crl_list_compare(list_sequence *best, const list_problem *problem, list_goal goal,
                            const crl_program *program) {
    crl_status status = CRL_STATUS_OK;
    const size_t tasks = (size_t)problem->tasks;
    list_timer timer = {0};
    merger self = {.problem = problem, .program = program};
    list_sequence tried = {0};
    CRL_TRY_OUT(crl_alloc(&tried.task, tasks, sizeof *tried.task));
    CRL_TRY_OUT(crl_alloc(&self.done, tasks, sizeof *self.done));
    CRL_TRY_OUT(crl_alloc(&self.reached, (size_t)program->positions, sizeof *self.reached));
    CRL_TRY_OUT(crl_list_timer_init(&timer, problem));
    self.task = tried.task;
    merge(&self);
    if (crl_list_time(&timer, &tried, goal) && crl_list_is_better(&tried, best, goal)) {
        const list_sequence old = *best;
        *best = tried;
        tried = old;
    }
out:
    crl_list_timer_fini(&timer);
    crl_free(tried.task);
    crl_free(self.done);
    crl_free(self.reached);
    return status;
}
