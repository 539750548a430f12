/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Ranks as processes of an MPI job (mpirun), or one process on its own.
 *
 * Messages are MPI_Isend and MPI_Irecv on a communicator of our own and are moved on by MPI_Test;
 * nothing relies on MPI sending eagerly. Long messages travel in pieces of PIECE_BYTES, so that
 * counts fit MPI's int. Tags are turned so that their upper bits, the use, come last: what is
 * counted from 0 stays small, and some MPIs (UCX: 2^23) take no larger ones. MPI_THREAD_FUNNELED is
 * enough: a rank's endpoint belongs to one thread, and launch must be called by the thread that
 * initialises MPI.
 *
 * Life of MPI: the first launch initialises it unless the caller has; a process may launch several
 * jobs one after the other; MPI_Finalize runs at the exit of the process. When a job has failed,
 * peers may be dead or stopped and MPI_Finalize would hang, so it is left out: launch returns the
 * failure, the caller reports it and exits with a non-zero status, upon which mpirun ends the
 * other processes, stopped ones included. That may come before they have said anything; so launch
 * returns first on the rank whose failure it was, and on the others REPORT_NS later. A killed
 * process makes mpirun end the job by itself. What became of MPI is kept as the name of
 * MPI_COMM_SELF, so that the library needs no global state. Refuses a second job after a failed
 * one. Has no deadline while ranks come together (MPI_Init, MPI_Comm_dup) and part (after all have
 * succeeded, up to MPI_Finalize): MPI offers none there.
 */
#include <limits.h>
#include <stdlib.h>
#include <string.h>

#include "engine/base/alloc.h"
#include "engine/base/thread.h"
#include "engine/comm/mpi_internal.h"

enum { PIECE_BYTES = 1 << 28, IDLE_NS = 200000, REPORT_NS = 250000000 };
enum { TAG_BITS = 30, USE_BITS = 2, COUNT_BITS = TAG_BITS - USE_BITS };

static const char state_running[] = "carole: running";
static const char state_rest[] = "carole: at rest";
static const char state_failed[] = "carole: failed";

static bool is_state(const char *state) {
    char name[MPI_MAX_OBJECT_NAME] = "";
    int length = 0;
    MPI_Comm_get_name(MPI_COMM_SELF, name, &length);
    return strcmp(name, state) == 0;
}

static void set_state(const char *state) {
    MPI_Comm_set_name(MPI_COMM_SELF, state);
}

static void finalize_at_exit(void) {
    int initialized = 0, finalized = 0;
    MPI_Initialized(&initialized);
    MPI_Finalized(&finalized);
    if (initialized && !finalized && is_state(state_rest)) {
        MPI_Finalize();
    }
}

static crl_status initialize(void) {
    int initialized = 0, finalized = 0;
    MPI_Initialized(&initialized);
    MPI_Finalized(&finalized);
    if (finalized) {
        return CRL_FAIL(UNSUPPORTED, "mpi: this process has finalized MPI already");
    }
    if (!initialized) {
        int provided = 0;
        CRL_TRY(crl_mpi_check(MPI_Init_thread(NULL, NULL, MPI_THREAD_FUNNELED, &provided),
                              "MPI_Init_thread"));
        set_state(state_rest);
        if (atexit(finalize_at_exit) != 0) {
            return CRL_FAIL(NOMEM, "mpi: atexit failed");
        }
    }
    if (is_state(state_failed)) {
        return CRL_FAIL(COMM, "mpi: an earlier job of this process failed, start it again");
    }
    if (is_state(state_running)) {
        return CRL_FAIL(INVALID, "mpi: a job of this process is still running");
    }
    return CRL_STATUS_OK;
}

static crl_status fail(crl_endpoint *me, crl_status status) {
    crl_mpi_abort(me, crl_error_get());
    return status;
}

static crl_status add_block(crl_endpoint *me) {
    mpi_op_block *block = NULL;
    CRL_TRY(crl_alloc(&block, 1, sizeof *block));
    block->next = me->blocks;
    me->blocks = block;
    for (int i = MPI_BLOCK_OPS - 1; i >= 0; i--) {
        block->ops[i].request = MPI_REQUEST_NULL;
        block->ops[i].next = me->free;
        me->free = &block->ops[i];
    }
    return CRL_STATUS_OK;
}

/* Messages beyond 2 GiB take more than one piece each: those few are not counted. */
static crl_status mpi_reserve(crl_endpoint *me, int requests) {
    for (const mpi_op *op = me->free; op != NULL; op = op->next) {
        requests--;
    }
    for (; requests > 0; requests -= MPI_BLOCK_OPS) {
        CRL_TRY(add_block(me));
    }
    return CRL_STATUS_OK;
}

static crl_status take_op(crl_endpoint *me, mpi_op **out) {
    if (me->free == NULL) {
        CRL_TRY(add_block(me));
    }
    *out = me->free;
    me->free = me->free->next;
    (*out)->next = NULL;
    return CRL_STATUS_OK;
}

static void put_ops(crl_endpoint *me, mpi_op *chain) {
    while (chain != NULL) {
        mpi_op *op = chain;
        chain = op->next;
        op->next = me->free;
        me->free = op;
    }
}

static int turned_tag(int tag) {
    return (tag & ((1 << COUNT_BITS) - 1)) << USE_BITS | tag >> COUNT_BITS;
}

/* Starts piece after piece; what was started stays in the blocks, where `withdraw` finds it. */
static crl_status post_pieces(crl_endpoint *me, const crl_request *what, char *data, size_t bytes,
                              mpi_op **out) {
    const int peer = what->peer, tag = turned_tag(what->tag);
    if (tag > me->largest_tag) {
        return CRL_FAIL(UNSUPPORTED, "mpi: tag %d of a message is %d here, expected at most %d",
                        what->tag, tag, me->largest_tag);
    }
    mpi_op **link = out;
    do {
        CRL_TRY(take_op(me, link));
        mpi_op *op = *link;
        op->bytes = bytes < PIECE_BYTES ? bytes : PIECE_BYTES;
        op->receiving = what->receiving;
        const int count = (int)op->bytes;
        const int rc = what->receiving
                           ? MPI_Irecv(data, count, MPI_BYTE, peer, tag, me->data, &op->request)
                           : MPI_Isend(data, count, MPI_BYTE, peer, tag, me->data, &op->request);
        CRL_TRY(crl_mpi_check(rc, what->receiving ? "MPI_Irecv" : "MPI_Isend"));
        data = op->bytes > 0 ? data + op->bytes : data;
        bytes -= op->bytes;
        link = &op->next;
    } while (bytes > 0);
    return CRL_STATUS_OK;
}

static crl_status post(crl_endpoint *me, crl_request what, char *data, size_t bytes,
                       crl_request *request) {
    CRL_TRY(crl_mpi_attend(me));
    mpi_op *chain = NULL;
    const crl_status status = post_pieces(me, &what, data, bytes, &chain);
    if (status != CRL_STATUS_OK) {
        return fail(me, status);
    }
    *request = what;
    request->slot = chain;
    request->active = true;
    return CRL_STATUS_OK;
}

static crl_status mpi_send(crl_endpoint *me, int peer, int tag, const void *data, size_t bytes,
                           crl_request *request) {
    const crl_request what = {.peer = peer, .tag = tag};
    CRL_TRY(post(me, what, (char *)(uintptr_t)data, bytes, request));
    return CRL_STATUS_OK;
}

static crl_status mpi_recv(crl_endpoint *me, int peer, int tag, void *data, size_t bytes,
                           crl_request *request) {
    const crl_request what = {.peer = peer, .tag = tag, .receiving = true};
    CRL_TRY(post(me, what, data, bytes, request));
    return CRL_STATUS_OK;
}

static crl_status size_mismatch(const crl_endpoint *me, const crl_request *request,
                                const mpi_op *op, const MPI_Status *at) {
    MPI_Count sent = 0;
    MPI_Get_elements_x(at, MPI_BYTE, &sent);
    return CRL_FAIL(COMM,
                    "message from rank %d to rank %d, tag %d: sent %lld bytes, the receive "
                    "expects %zu",
                    request->peer, me->rank, request->tag, (long long)sent, op->bytes);
}

static crl_status test_piece(crl_endpoint *me, const crl_request *request, mpi_op *op, bool *done) {
    int flag = 0;
    MPI_Status at;
    if (op->request == MPI_REQUEST_NULL) {
        *done = true;
        return CRL_STATUS_OK;
    }
    const int rc = MPI_Test(&op->request, &flag, &at);
    *done = flag != 0;
    int class = MPI_SUCCESS;
    if (rc != MPI_SUCCESS) {
        MPI_Error_class(rc, &class);
    }
    if (class == MPI_ERR_TRUNCATE) {
        return size_mismatch(me, request, op, &at);
    }
    CRL_TRY(crl_mpi_check(rc, "MPI_Test"));
    if (*done && op->receiving) {
        int count = 0;
        MPI_Get_count(&at, MPI_BYTE, &count);
        if ((size_t)count != op->bytes) {
            return size_mismatch(me, request, op, &at);
        }
    }
    return CRL_STATUS_OK;
}

static crl_status mpi_test(crl_endpoint *me, crl_request *request, bool *done) {
    CRL_TRY(crl_mpi_attend(me));
    bool all = true;
    for (mpi_op *op = request->slot; op != NULL && all; op = op->next) {
        const crl_status status = test_piece(me, request, op, &all);
        if (status != CRL_STATUS_OK) {
            return fail(me, status);
        }
    }
    if (all) {
        put_ops(me, request->slot);
        request->slot = NULL;
        request->active = false;
        me->idle_rounds = 0;
    }
    *done = all;
    return CRL_STATUS_OK;
}

static void mpi_note(crl_endpoint *me, const crl_wait_note *note) {
    me->note = *note;
}

static crl_status mpi_allreduce(crl_endpoint *me, float *data, int64_t count) {
    CRL_TRY(crl_mpi_attend(me));
    while (count > 0) {
        const int some = count < INT_MAX ? (int)count : INT_MAX;
        const int rc = MPI_Allreduce(MPI_IN_PLACE, data, some, MPI_FLOAT, MPI_SUM, me->data);
        const crl_status status = crl_mpi_check(rc, "MPI_Allreduce");
        if (status != CRL_STATUS_OK) {
            return fail(me, status);
        }
        data += some;
        count -= some;
    }
    return CRL_STATUS_OK;
}

/* What this rank alone can tell before the job begins. */
static crl_status prepare(crl_endpoint *me, int ranks) {
    const int least_tag = 32767; /* what every MPI takes */
    const int *largest_tag = NULL;
    int known = 0;
    MPI_Comm_get_attr(MPI_COMM_WORLD, MPI_TAG_UB, &largest_tag, &known);
    me->largest_tag = known ? *largest_tag : least_tag;
    MPI_Comm_rank(MPI_COMM_WORLD, &me->rank);
    MPI_Comm_size(MPI_COMM_WORLD, &me->ranks);
    me->note.peer = -1;
    if (ranks > 0 && ranks != me->ranks) {
        return CRL_FAIL(INVALID, "mpi: the job has %d ranks (mpirun -n), expected %d", me->ranks,
                        ranks);
    }
    CRL_TRY(crl_mpi_control_create(me));
    return CRL_STATUS_OK;
}

/* Communicators of this job, and whether all ranks are ready. Collective. */
static crl_status connect_ranks(crl_endpoint *me, crl_status prepared) {
    CRL_TRY(crl_mpi_check(MPI_Comm_dup(MPI_COMM_WORLD, &me->data), "MPI_Comm_dup"));
    CRL_TRY(crl_mpi_check(MPI_Comm_dup(MPI_COMM_WORLD, &me->control), "MPI_Comm_dup"));
    MPI_Comm_set_errhandler(me->data, MPI_ERRORS_RETURN);
    MPI_Comm_set_errhandler(me->control, MPI_ERRORS_RETURN);
    int unready = prepared == CRL_STATUS_OK ? INT_MAX : me->rank;
    CRL_TRY(crl_mpi_check(MPI_Allreduce(MPI_IN_PLACE, &unready, 1, MPI_INT, MPI_MIN, me->control),
                          "MPI_Allreduce"));
    if (prepared != CRL_STATUS_OK) {
        return prepared;
    }
    if (unready != INT_MAX) {
        return CRL_FAIL(ABORTED, "mpi: rank %d could not start", unready);
    }
    CRL_TRY(crl_mpi_control_begin(me));
    return CRL_STATUS_OK;
}

/* Waits until all ranks are here, or one says that the job is over. */
static crl_status gather_at_end(crl_endpoint *me) {
    MPI_Request request;
    int done = 0;
    CRL_TRY(crl_mpi_check(MPI_Ibarrier(me->data, &request), "MPI_Ibarrier"));
    while (!done) {
        CRL_TRY(crl_mpi_attend(me));
        CRL_TRY(crl_mpi_check(MPI_Test(&request, &done, MPI_STATUS_IGNORE), "MPI_Test"));
        if (!done) {
            crl_mpi_idle(me, IDLE_NS);
        }
    }
    return CRL_STATUS_OK;
}

static crl_status run_job(crl_endpoint *me, crl_rank_fn run, void *argument) {
    set_state(state_running);
    crl_status status = run(argument, me, me->rank, me->ranks);
    if (status == CRL_STATUS_OK) {
        status = gather_at_end(me);
    }
    if (status == CRL_STATUS_OK) {
        crl_mpi_control_end(me);
        set_state(state_rest);
        return CRL_STATUS_OK;
    }
    crl_error error = *crl_error_get();
    error.status = status;
    crl_mpi_abort(me, &error);
    if (me->error.rank != me->rank) {
        crl_clock_sleep_ns(REPORT_NS);
    }
    crl_error_set(&me->error);
    set_state(state_failed);
    return me->error.status;
}

/* A failed job's communicators and requests are left to the end of the process. */
static void release(crl_endpoint *me) {
    if (me->over) {
        return;
    }
    if (me->data != MPI_COMM_NULL) {
        MPI_Comm_free(&me->data);
    }
    if (me->control != MPI_COMM_NULL) {
        MPI_Comm_free(&me->control);
    }
}

static void free_memory(crl_endpoint *me) {
    while (me->blocks != NULL) {
        mpi_op_block *block = me->blocks;
        me->blocks = block->next;
        crl_free(block);
    }
    crl_mpi_control_destroy(me);
    crl_free(me);
}

static crl_status mpi_launch(int ranks, crl_rank_fn run, void *argument) {
    CRL_TRY(initialize());
    crl_endpoint *me = NULL;
    crl_status status = crl_alloc(&me, 1, sizeof *me);
    if (status != CRL_STATUS_OK) {
        set_state(state_failed); /* the others are waiting in MPI_Comm_dup already */
        return status;
    }
    me->data = me->control = MPI_COMM_NULL;
    me->incoming_request = MPI_REQUEST_NULL;
    const int rank_before = crl_error_rank();
    status = prepare(me, ranks);
    crl_error_set_rank(me->rank);
    status = connect_ranks(me, status);
    if (status == CRL_STATUS_OK) {
        status = run_job(me, run, argument);
    }
    release(me);
    free_memory(me);
    crl_error_set_rank(rank_before);
    return status;
}

const crl_transport crl_transport_mpi = {
    .name = "mpi",
    .help = "ranks are processes started by mpirun",
    .launch = mpi_launch,
    .reserve = mpi_reserve,
    .send = mpi_send,
    .recv = mpi_recv,
    .test = mpi_test,
    .attend = crl_mpi_attend,
    .idle = crl_mpi_idle,
    .note = mpi_note,
    .roll_call = crl_mpi_roll_call,
    .abort = crl_mpi_abort,
    .allreduce = mpi_allreduce,
};
