/* SPDX-License-Identifier: Apache-2.0 */
/* What the readers of a program share: an index of its actions and the walk in dependency order. */
#pragma once

#include "engine/ir/program.h"

/* So that a garbage file cannot ask for much memory. */
enum {
    PROGRAM_MAX_SIZE = 65535,             /* positions, stages, micro-batches */
    PROGRAM_MAX_CELLS = 16 * 1024 * 1024, /* stages x micro-batches, compute actions */
    PROGRAM_MAX_ACTIONS = 1 << 30         /* with messages */
};

enum { COMPUTE_KINDS = 4 }; /* F B I W */

static inline bool is_compute(crl_action_kind kind) {
    return kind <= CRL_ACTION_WEIGHT;
}

/* Every action has a number: first[position] + index. */
typedef struct program_index {
    int positions, stages, micro_batches, actions;
    int *first;                /* (positions + 1) */
    int *where[COMPUTE_KINDS]; /* (stages x micro_batches) number or -1 */
    int *send, *recv;          /* (messages) number of the start, or -1 */
} program_index;

/* Whether the numbers of an action fit the program. */
bool crl_program_in_range(const crl_program *program, const crl_action *action);
/* INVALID: an action out of range, or twice; the report (may be NULL) marks it. */
crl_status crl_program_index_create(program_index *out, const crl_program *program,
                                    crl_check_report *report);
void crl_program_index_destroy(program_index *index);
/* Number of F, B, I or W of (stage, micro-batch), or -1. */
int crl_program_where(const program_index *index, crl_action_kind kind, int stage, int micro_batch);
/* The backward part that frees gradients for upstream: B, or I. */
int crl_program_where_gradient(const program_index *index, int stage, int micro_batch);
int crl_program_position_of(const program_index *index, int number);
const crl_action *crl_program_action_at(const crl_program *program, const program_index *index,
                                        int number);
/* Numbers of the actions that must have been reached before `action`; returns how many (<= 2). */
int crl_program_dependencies(const program_index *index, const crl_action *action, int needed[2]);

/* Called once per action, in an order that respects dependencies and lists. */
typedef void (*program_visit_fn)(void *context, int position, int index);
/* Runs as far as possible. reached[p] is how far position p came; *complete: all of them. */
crl_status crl_program_walk(const crl_program *program, const program_index *index,
                            program_visit_fn visit, void *context, int *reached, bool *complete);

/* "3B0", "1SEND_F2", "0STEP" */
enum { ACTION_TEXT_BYTES = 48 };
char *crl_program_action_text(const crl_program *program, const crl_action *action,
                              char text[ACTION_TEXT_BYTES]);

/* Like crl_program_append, for all kinds. */
crl_status crl_action_list_append(crl_action_list *list, const crl_action *action);
