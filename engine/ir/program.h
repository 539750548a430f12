/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A program: per pipeline position, an ordered list of actions. A schedule emits compute actions
 * only; crl_program_add_messages inserts the messages; check, simulate, view and the executor read
 * it.
 *
 * Text form (the CSV notation of PyTorch's pipelining [pytorch24]): one row per position, cells
 * `<stage><action><micro-batch>`: 0F3 1B0 2I5 2W5, empty cell = idle. Messages are written
 * 0SEND_F3, 1RECV_F3, 1SEND_B3, 0RECV_B3 for a start and WAIT_ before it for a completion.
 */
#pragma once

#include "engine/ir/plan.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef enum crl_action_kind {
    CRL_ACTION_FORWARD = 0, /* F */
    CRL_ACTION_BACKWARD,    /* B = I and W at once */
    CRL_ACTION_INPUT,       /* I */
    CRL_ACTION_WEIGHT,      /* W */
    CRL_ACTION_SEND,        /* start sending message m */
    CRL_ACTION_RECV,        /* post its receive */
    CRL_ACTION_WAIT_SEND,   /* its buffer is free afterwards */
    CRL_ACTION_WAIT_RECV,   /* its data is there afterwards */
    CRL_ACTION_REDUCE,      /* the stage's gradients are complete: finish their reduction */
    CRL_ACTION_STEP,        /* optimizer step of the stage */
    CRL_ACTION_KINDS
} crl_action_kind;

typedef struct crl_action {
    crl_action_kind kind;
    int stage;
    int micro_batch; /* of this pipeline, 0..M-1; -1 for REDUCE and STEP */
    int message;     /* index into messages; -1 for the others */
} crl_action;

/* One transfer of one edge for one micro-batch. */
typedef struct crl_message {
    int edge;      /* of the plan */
    bool gradient; /* runs against the edge */
    int micro_batch;
    int from, to; /* positions; equal: both stages on one device, a local copy */
    size_t bytes;
} crl_message;

typedef struct crl_action_list {
    int count, capacity;
    crl_action *action;
} crl_action_list;

typedef struct crl_program {
    int positions, stages, micro_batches;
    crl_action_list *position; /* (positions) */
    bool dealt;                /* a position's replicas have a list each: see crl_program_deal */
    int messages;
    crl_message *message;
} crl_program;

/* A program without actions. INVALID: a size below 1 or too large; NOMEM. */
CRL_NODISCARD crl_status crl_program_create(crl_program **out, int positions, int stages,
                                            int micro_batches);
/* NULL is fine. */
void crl_program_destroy(crl_program *program);
/* Adds a compute action to the end of a position's list. INVALID: out of range; NOMEM. */
CRL_NODISCARD crl_status crl_program_append(crl_program *program, int position,
                                            crl_action_kind kind, int stage, int micro_batch);

/* Another program of the same compute actions, or of its forwards alone (evaluation); without
 * messages. NOMEM. */
CRL_NODISCARD crl_status crl_program_copy(crl_program **out, const crl_program *program,
                                          bool forward_only);

/* Reads the text form (compute actions). Stages, micro-batches are taken from what occurs; INVALID
 * "<name>:row:column: ..." with the offending cell. */
CRL_NODISCARD crl_status crl_program_parse(crl_program **out, const char *name, const char *text,
                                           size_t bytes);
/* Writes it back; compute actions only unless `messages`. */
void crl_program_write(const crl_program *program, bool messages, FILE *out);

typedef enum crl_verdict {
    CRL_VERDICT_VALID = 0,
    CRL_VERDICT_INVALID,
    CRL_VERDICT_DEADLOCK
} crl_verdict;

/*
 * Deals the lists of a schedule out to the replicas of its positions. Position p becomes the lists
 * ("rows") first_row[p] .. first_row[p+1]-1 of the program; row r runs the micro-batches
 * [micro_batch[r].first, .last), and the rows of a position cover 0..M-1 in order. The schedule's
 * i-th micro-batch becomes the i-th of an order that takes from the replicas of the widest position
 * in turn, in proportion to what they have, so that all of them are busy at once and narrow
 * positions serve them evenly. Leaving out actions neither delays nor blocks others: what was valid
 * stays so. One row each: nothing changes. INVALID: ranges that do not cover; NOMEM.
 */
CRL_NODISCARD crl_status crl_program_deal(crl_program *program, const int *first_row, /* (P + 1) */
                                          const crl_range *micro_batch);              /* (rows) */

/* That order alone: the i-th micro-batch of a dealt schedule. (M) */
CRL_NODISCARD crl_status crl_program_deal_order(int *order, int positions, const int *first_row,
                                                const crl_range *micro_batch, int micro_batches);

/* What the checker found: the action it stumbled on, and why, in one line. */
typedef struct crl_check_report {
    crl_verdict verdict;
    int position, index; /* of the marked action; -1: none */
    char why[256];
} crl_check_report;

/*
 * Invalid: an action missing, twice, a stage on two positions (of a dealt program: a micro-batch of
 * a stage on two), B beside I/W. Deadlock: some action can
 * never run, given F(s) after F(s-1), B/I(s) after F(s) and B/I(s+1), W after I, and each
 * position's order; when the program has messages, additionally with every send a rendezvous:
 * WAIT_SEND and WAIT_RECV complete only when both SEND and RECV have been reached.
 */
void crl_program_check(const crl_program *program, crl_check_report *report);
/* The same where memory may run out: NOMEM; CRL_STATUS_OK whatever was found. */
CRL_NODISCARD crl_status crl_program_try_check(const crl_program *program,
                                               crl_check_report *report);
/* The same as a failure: INVALID "schedule: ...". */
CRL_NODISCARD crl_status crl_program_require_valid(const crl_program *program);

/*
 * Inserts the messages of the plan's edges, REDUCE and STEP. A receive is posted one compute action
 * ahead of its use; a send starts right after its producer and is waited for as late as its buffer
 * allows, at most `window` compute actions of the same stage and kind later. forward_only programs
 * (evaluation) have no gradients, REDUCE or STEP.
 */
CRL_NODISCARD crl_status crl_program_add_messages(crl_program *program, const crl_plan *plan,
                                                  int window, bool forward_only);

/* Peak number of micro-batches whose forward is done and whose last backward part (B or I: input
 * true; B or W: input false) is not, of one stage. */
int crl_program_peak_activations(const crl_program *program, int stage, bool input);

#ifdef __cplusplus
}
#endif
