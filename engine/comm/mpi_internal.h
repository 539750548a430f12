/* SPDX-License-Identifier: Apache-2.0 */
/* Between mpi.c (messages, launch) and mpi_control.c (roll calls and the end of the job). */
#pragma once

#include <mpi.h>

#include "engine/comm/transport.h"

enum {
    MPI_BLOCK_OPS = 64,
    MPI_SHORT_TEXT_BYTES = 96 /* of a wait note */
};

/* One piece of a message; messages of several pieces are chains. */
typedef struct mpi_op {
    struct mpi_op *next;
    MPI_Request request;
    size_t bytes;
    bool receiving;
} mpi_op;

typedef struct mpi_op_block {
    struct mpi_op_block *next;
    mpi_op ops[MPI_BLOCK_OPS];
} mpi_op_block;

typedef enum mpi_control_kind { CONTROL_OVER, CONTROL_ASK, CONTROL_ANSWER } mpi_control_kind;

/* Sent only as far as its text goes. */
typedef struct mpi_control_message {
    int kind;
    int status, rank;   /* OVER: of the first failure */
    int64_t sequence;   /* ASK, ANSWER: number of the asker's roll call */
    int64_t elapsed_ns; /* ANSWER: clocks of different hosts cannot be compared */
    int peer;
    char text[CRL_ERROR_MESSAGE_BYTES];
} mpi_control_message;

/* One slot per peer and kind: a rank that has not taken the last one gets no other. */
typedef struct mpi_outgoing {
    MPI_Request over, ask, answer;
    mpi_control_message *answer_message; /* text of MPI_SHORT_TEXT_BYTES */
} mpi_outgoing;

struct crl_endpoint {
    MPI_Comm data, control;
    int rank, ranks;
    int largest_tag; /* that this MPI takes */
    mpi_op *free;
    mpi_op_block *blocks;
    int idle_rounds; /* since something last happened */
    crl_wait_note note;

    /* control */
    mpi_control_message *incoming, *outgoing; /* outgoing: OVER */
    MPI_Request incoming_request;
    mpi_outgoing *to; /* (ranks) */
    char *answers;    /* memory of the answer messages */
    mpi_control_message ask;

    int64_t roll;          /* number of this rank's last roll call */
    crl_wait_note *called; /* (ranks), where answers go while one is under way */
    bool *answered;

    bool over;    /* error is set */
    bool settled; /* everything was done to let the others know; no more MPI calls */
    bool *heard;  /* (ranks) who is known to know */
    crl_error error;
};

/* COMM "MPI_Isend: text" unless rc is MPI_SUCCESS. */
CRL_NODISCARD crl_status crl_mpi_check(int rc, const char *call);

/* Memory and the standing receive; begin must precede, end must follow all use. */
CRL_NODISCARD crl_status crl_mpi_control_create(crl_endpoint *me);
CRL_NODISCARD crl_status crl_mpi_control_begin(crl_endpoint *me);
void crl_mpi_control_end(crl_endpoint *me);
void crl_mpi_control_destroy(crl_endpoint *me);
/* Takes what has come in and answers it. ABORTED once the job is over. */
CRL_NODISCARD crl_status crl_mpi_attend(crl_endpoint *me);
CRL_NODISCARD crl_status crl_mpi_roll_call(crl_endpoint *me, crl_wait_note *note, bool *answered,
                                           int64_t at_most_ns);
void crl_mpi_abort(crl_endpoint *me, const crl_error *error);
void crl_mpi_idle(crl_endpoint *me, int64_t at_most_ns);
