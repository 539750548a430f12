/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The control channel of the MPI transport: small messages on a communicator of their own, one
 * standing receive per rank.
 *
 *   ASK -> ANSWER   a roll call: what do you wait for?
 *   OVER            the job has failed, with the record of the first failure
 *
 * Who learns that the job is over passes the record on to everybody and waits until it has heard
 * the same from everybody, at most SETTLE_NS: peers may be dead or stopped. Of several records that
 * set out at the same time all ranks keep the same one: causes go before symptoms (COMM, TIMEOUT),
 * then the lower rank. After that this rank makes no MPI call any more, and so nothing writes to
 * the memory of its requests.
 */
#include <sched.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include "engine/base/alloc.h"
#include "engine/base/thread.h"
#include "engine/comm/mpi_internal.h"

enum { TAG = 0, YIELDS = 100, FIRST_SLEEP_NS = 1000, LONGEST_SLEEP_NS = 200000 };
static const int64_t settle_ns = 1000000000;

enum {
    HEAD_BYTES = offsetof(mpi_control_message, text),
    ANSWER_BYTES = (HEAD_BYTES + MPI_SHORT_TEXT_BYTES + 63) / 64 * 64
};

crl_status crl_mpi_check(int rc, const char *call) {
    if (rc == MPI_SUCCESS) {
        return CRL_STATUS_OK;
    }
    char text[MPI_MAX_ERROR_STRING] = "";
    int length = 0;
    MPI_Error_string(rc, text, &length);
    return CRL_FAIL(COMM, "%s: %s", call, text);
}

void crl_mpi_idle(crl_endpoint *me, int64_t at_most_ns) {
    const int round = me->idle_rounds++;
    if (round < YIELDS) {
        sched_yield();
        return;
    }
    const int doublings = round - YIELDS < 8 ? round - YIELDS : 8;
    int64_t sleep_ns = (int64_t)FIRST_SLEEP_NS << doublings;
    sleep_ns = sleep_ns < LONGEST_SLEEP_NS ? sleep_ns : LONGEST_SLEEP_NS;
    crl_clock_sleep_ns(sleep_ns < at_most_ns ? sleep_ns : at_most_ns);
}

crl_status crl_mpi_control_create(crl_endpoint *me) {
    const size_t ranks = (size_t)me->ranks;
    CRL_TRY(crl_alloc(&me->incoming, 1, sizeof *me->incoming));
    CRL_TRY(crl_alloc(&me->outgoing, 1, sizeof *me->outgoing));
    CRL_TRY(crl_alloc(&me->to, ranks, sizeof *me->to));
    CRL_TRY(crl_alloc(&me->answers, ranks, ANSWER_BYTES));
    CRL_TRY(crl_alloc(&me->heard, ranks, sizeof *me->heard));
    for (size_t rank = 0; rank < ranks; rank++) {
        me->to[rank] = (mpi_outgoing){
            .over = MPI_REQUEST_NULL,
            .ask = MPI_REQUEST_NULL,
            .answer = MPI_REQUEST_NULL,
            .answer_message = (mpi_control_message *)(void *)(me->answers + rank * ANSWER_BYTES),
        };
    }
    return CRL_STATUS_OK;
}

void crl_mpi_control_destroy(crl_endpoint *me) {
    crl_free(me->incoming);
    crl_free(me->outgoing);
    crl_free(me->to);
    crl_free(me->answers);
    crl_free(me->heard);
}

crl_status crl_mpi_control_begin(crl_endpoint *me) {
    CRL_TRY(crl_mpi_check(MPI_Irecv(me->incoming, (int)sizeof *me->incoming, MPI_BYTE,
                                    MPI_ANY_SOURCE, TAG, me->control, &me->incoming_request),
                          "MPI_Irecv"));
    return CRL_STATUS_OK;
}

void crl_mpi_control_end(crl_endpoint *me) {
    if (me->incoming_request != MPI_REQUEST_NULL) {
        MPI_Cancel(&me->incoming_request);
        MPI_Wait(&me->incoming_request, MPI_STATUS_IGNORE);
    }
}

/* Failures are not reported: a peer that cannot be reached is found by its silence. */
static void post(crl_endpoint *me, int peer, const mpi_control_message *message, int bytes,
                 MPI_Request *request) {
    int done = 1;
    if (*request != MPI_REQUEST_NULL) {
        MPI_Test(request, &done, MPI_STATUS_IGNORE);
    }
    if (done) {
        MPI_Isend(message, bytes, MPI_BYTE, peer, TAG, me->control, request);
    }
}

static void answer(crl_endpoint *me, int peer, int64_t sequence) {
    mpi_outgoing *to = &me->to[peer];
    int done = 1;
    if (to->answer != MPI_REQUEST_NULL) {
        MPI_Test(&to->answer, &done, MPI_STATUS_IGNORE);
    }
    if (!done) {
        return;
    }
    mpi_control_message *message = to->answer_message;
    message->kind = CONTROL_ANSWER;
    message->sequence = sequence;
    message->peer = me->note.peer;
    message->elapsed_ns = crl_clock_ns() - me->note.since_ns;
    snprintf(message->text, MPI_SHORT_TEXT_BYTES, "%s", me->note.what);
    post(me, peer, message, HEAD_BYTES + MPI_SHORT_TEXT_BYTES, &to->answer);
}

static void take_answer(crl_endpoint *me, int peer) {
    const mpi_control_message *message = me->incoming;
    if (me->called == NULL || message->sequence != me->roll) {
        return;
    }
    me->answered[peer] = true;
    crl_wait_note *note = &me->called[peer];
    note->peer = message->peer;
    note->since_ns = crl_clock_ns() - message->elapsed_ns;
    snprintf(note->what, sizeof note->what, "%.*s", MPI_SHORT_TEXT_BYTES - 1, message->text);
}

static bool is_symptom(int status) {
    return status == CRL_STATUS_COMM || status == CRL_STATUS_TIMEOUT;
}

static bool goes_before(int status, int rank, const crl_error *other) {
    if (is_symptom(status) != is_symptom((int)other->status)) {
        return is_symptom((int)other->status);
    }
    return rank < other->rank;
}

static void take_over(crl_endpoint *me, int peer) {
    const mpi_control_message *message = me->incoming;
    me->heard[peer] = true;
    if (me->over && !goes_before(message->status, message->rank, &me->error)) {
        return;
    }
    me->over = true;
    me->error = (crl_error){.status = (crl_status)message->status, .rank = message->rank};
    snprintf(me->error.message, sizeof me->error.message, "%s", message->text);
}

/* Handles all control messages that have arrived. */
static crl_status pump(crl_endpoint *me) {
    for (;;) {
        int arrived = 0;
        MPI_Status at;
        CRL_TRY(crl_mpi_check(MPI_Test(&me->incoming_request, &arrived, &at), "MPI_Test"));
        if (!arrived) {
            return CRL_STATUS_OK;
        }
        const int peer = at.MPI_SOURCE;
        if (me->incoming->kind == CONTROL_OVER) {
            take_over(me, peer);
        } else if (me->incoming->kind == CONTROL_ASK) {
            answer(me, peer, me->incoming->sequence);
        } else {
            take_answer(me, peer);
        }
        me->idle_rounds = 0;
        CRL_TRY(crl_mpi_control_begin(me));
    }
}

static void send_over(crl_endpoint *me) {
    mpi_control_message *message = me->outgoing;
    message->kind = CONTROL_OVER;
    message->status = (int)me->error.status;
    message->rank = me->error.rank;
    snprintf(message->text, sizeof message->text, "%s", me->error.message);
    const int bytes = HEAD_BYTES + (int)strlen(message->text) + 1;
    for (int peer = 0; peer < me->ranks; peer++) {
        if (peer != me->rank) {
            post(me, peer, message, bytes, &me->to[peer].over);
        }
    }
}

static bool is_known_to_all(crl_endpoint *me) {
    bool all = true;
    for (int peer = 0; peer < me->ranks; peer++) {
        int sent = 1;
        if (me->to[peer].over != MPI_REQUEST_NULL) {
            MPI_Test(&me->to[peer].over, &sent, MPI_STATUS_IGNORE);
        }
        all = all && sent && (peer == me->rank || me->heard[peer]);
    }
    return all;
}

/* Receives that no message has met yet are taken back. */
static void withdraw(crl_endpoint *me) {
    if (me->incoming_request != MPI_REQUEST_NULL) {
        int done;
        MPI_Cancel(&me->incoming_request);
        MPI_Test(&me->incoming_request, &done, MPI_STATUS_IGNORE);
    }
    for (mpi_op_block *block = me->blocks; block != NULL; block = block->next) {
        for (int i = 0; i < MPI_BLOCK_OPS; i++) {
            mpi_op *op = &block->ops[i];
            if (op->receiving && op->request != MPI_REQUEST_NULL) {
                MPI_Cancel(&op->request);
            }
        }
    }
}

static void settle(crl_endpoint *me) {
    if (me->settled) {
        return;
    }
    me->settled = true;
    const int64_t until_ns = crl_clock_ns() + settle_ns;
    send_over(me);
    me->idle_rounds = 0;
    while (pump(me) == CRL_STATUS_OK && !is_known_to_all(me) && crl_clock_ns() < until_ns) {
        crl_mpi_idle(me, LONGEST_SLEEP_NS);
    }
    withdraw(me);
}

crl_status crl_mpi_attend(crl_endpoint *me) {
    if (!me->over) {
        const crl_status status = pump(me);
        if (status != CRL_STATUS_OK) {
            crl_mpi_abort(me, crl_error_get());
            return status;
        }
    }
    if (me->over) {
        settle(me);
        crl_error_set(&me->error);
        return CRL_STATUS_ABORTED;
    }
    return CRL_STATUS_OK;
}

void crl_mpi_abort(crl_endpoint *me, const crl_error *error) {
    if (!me->over) {
        me->over = true;
        me->error = *error;
        me->error.rank = error->rank >= 0 ? error->rank : me->rank;
    }
    settle(me);
}

static bool everybody_answered(const crl_endpoint *me) {
    for (int rank = 0; rank < me->ranks; rank++) {
        if (!me->answered[rank]) {
            return false;
        }
    }
    return true;
}

crl_status crl_mpi_roll_call(crl_endpoint *me, crl_wait_note *note, bool *answered,
                             int64_t at_most_ns) {
    const int64_t until_ns = crl_clock_ns() + at_most_ns;
    CRL_TRY(crl_mpi_attend(me));
    me->called = note;
    me->answered = answered;
    me->ask.kind = CONTROL_ASK;
    me->ask.sequence = ++me->roll;
    for (int rank = 0; rank < me->ranks; rank++) {
        answered[rank] = rank == me->rank;
        if (rank != me->rank) {
            post(me, rank, &me->ask, HEAD_BYTES, &me->to[rank].ask);
        }
    }
    note[me->rank] = me->note;
    crl_status status = CRL_STATUS_OK;
    me->idle_rounds = 0;
    while (!everybody_answered(me) && crl_clock_ns() < until_ns) {
        status = crl_mpi_attend(me);
        if (status != CRL_STATUS_OK) {
            break;
        }
        crl_mpi_idle(me, LONGEST_SLEEP_NS);
    }
    me->called = NULL;
    me->answered = NULL;
    return status;
}
