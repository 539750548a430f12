/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A rank's view of its job. Every wait is one loop: test, note what is waited for, idle; when the
 * deadline passes, ask all ranks what they wait for, write the answers into one message and end the
 * job with it. A rank deep in a computation answers when it next calls in; one that does not within
 * the time of the roll call "does not answer". Refuses to retry: a missed deadline is final.
 */
#include "engine/comm/comm.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "engine/base/alloc.h"
#include "engine/base/thread.h"
#include "engine/comm/comm_internal.h"

enum {
    DEADLINE_S = 300,
    ROLL_CALL_S = 2,
    IDLE_NS = 20 * 1000 * 1000, /* a lost wake-up costs this much */
    SOON_NS = 20 * 1000         /* a device's end of work is noticed so late */
};
static const int64_t ns_per_s = 1000000000;

/* The one that has the rank's wire, if any has. */
static crl_comm *device_side(crl_comm *comm) {
    return comm->wire || !comm->other ? comm : comm->other;
}

void crl_comm_abort(crl_comm *comm) {
    if (crl_error_get()->status == CRL_STATUS_OK) {
        (void)CRL_FAIL(INTERNAL, "rank %d ended the job without a reason", comm->rank);
    }
    const crl_comm *at = device_side(comm);
    if (at->wire) {
        at->kind->abort(at->wire);
    }
    comm->transport->abort(comm->endpoint, crl_error_get());
}

crl_status crl_comm_end_job(crl_comm *comm, crl_status status) {
    if (status != CRL_STATUS_OK) {
        crl_comm_abort(comm);
    }
    return status;
}

crl_status crl_comm_attend(const crl_comm *comm) {
    return comm->transport->attend ? comm->transport->attend(comm->endpoint) : CRL_STATUS_OK;
}

/* Where traffic and waiting are counted. */
static crl_comm *books_of(crl_comm *comm) {
    return comm->device ? comm->other : comm;
}

static crl_status check_message(crl_comm *comm, int peer, int tag, const crl_request *request) {
    if (peer < 0 || peer >= comm->ranks) {
        return crl_comm_end_job(
            comm,
            CRL_FAIL(INVALID, "message: peer is rank %d, expected 0 to %d", peer, comm->ranks - 1));
    }
    if (tag < 0 || tag >= 1 << 30) {
        return crl_comm_end_job(
            comm, CRL_FAIL(INVALID, "message: tag is %d, expected 0 to 2^30 - 1", tag));
    }
    if (request->active) {
        return crl_comm_end_job(
            comm, CRL_FAIL(INVALID, "message with rank %d: its request is in use", peer));
    }
    return CRL_STATUS_OK;
}

crl_status crl_comm_reserve(crl_comm *comm, int requests) {
    return comm->transport->reserve ? comm->transport->reserve(comm->endpoint, requests)
                                    : CRL_STATUS_OK;
}

crl_status crl_comm_send(crl_comm *comm, int peer, int tag, const void *data, size_t bytes,
                         crl_request *request) {
    CRL_TRY(check_message(comm, peer, tag, request));
    if (comm->wire) {
        CRL_TRY(
            crl_comm_end_job(comm, comm->kind->send(comm->wire, peer, tag, data, bytes, request)));
    } else {
        CRL_TRY(comm->transport->send(comm->endpoint, peer, tag, data, bytes, request));
    }
    crl_comm *books = books_of(comm);
    books->sent_bytes += (int64_t)bytes;
    books->sent_messages++;
    return CRL_STATUS_OK;
}

crl_status crl_comm_recv(crl_comm *comm, int peer, int tag, void *data, size_t bytes,
                         crl_request *request) {
    CRL_TRY(check_message(comm, peer, tag, request));
    if (comm->wire) {
        CRL_TRY(
            crl_comm_end_job(comm, comm->kind->recv(comm->wire, peer, tag, data, bytes, request)));
    } else {
        CRL_TRY(comm->transport->recv(comm->endpoint, peer, tag, data, bytes, request));
    }
    books_of(comm)->received_bytes += (int64_t)bytes;
    return CRL_STATUS_OK;
}

/* `follow`: see crl_wire_kind.test. */
static crl_status test(crl_comm *comm, crl_request *request, bool follow, bool *done) {
    if (!request->active) {
        *done = true;
        return CRL_STATUS_OK;
    }
    if (comm->wire) {
        return crl_comm_end_job(comm, comm->kind->test(comm->wire, request, follow, done));
    }
    return comm->transport->test(comm->endpoint, request, done);
}

crl_status crl_comm_test(crl_comm *comm, crl_request *request, bool *done) {
    CRL_TRY(test(comm, request, false, done));
    return CRL_STATUS_OK;
}

/* A message under construction; what does not fit is cut off. */
typedef struct report {
    char text[CRL_ERROR_MESSAGE_BYTES];
    size_t used;
} report;

static void report_add(report *to, const char *format, ...) CRL_PRINTF(2, 3);
static void report_add(report *to, const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    const size_t room = sizeof to->text - to->used;
    const int written = vsnprintf(to->text + to->used, room, format, arguments);
    va_end(arguments);
    if (written > 0) {
        to->used += (size_t)written < room ? (size_t)written : room - 1;
    }
}

static void report_ranks(report *to, const crl_comm *comm, const crl_wait_note *note,
                         const bool *answered) {
    const int64_t now_ns = crl_clock_ns();
    for (int rank = 0; rank < comm->ranks; rank++) {
        if (rank == comm->rank) {
            continue;
        }
        if (!answered[rank]) {
            report_add(to, "; rank %d does not answer", rank);
        } else if (note[rank].peer < 0) {
            report_add(to, "; rank %d does not wait", rank);
        } else if (note[rank].peer == rank) {
            report_add(to, "; rank %d waits for its device (%s) since %.1f s", rank,
                       note[rank].what, (double)(now_ns - note[rank].since_ns) / 1e9);
        } else {
            report_add(to, "; rank %d waits for rank %d (%s) since %.1f s", rank, note[rank].peer,
                       note[rank].what, (double)(now_ns - note[rank].since_ns) / 1e9);
        }
    }
}

/* The deadline has passed: asks everybody, and ends the job with what they say. */
static crl_status give_up(crl_comm *comm, const char *what, const crl_poll_result *at,
                          int64_t waited_ns) {
    report text = {.used = 0};
    crl_wait_note *note = NULL;
    bool *answered = NULL;
    crl_status status;
    report_add(&text, "waited %.1f s ", (double)waited_ns / 1e9);
    if (at->peer == comm->rank) {
        report_add(&text, "for %s on its own device", what);
    } else {
        report_add(&text, "%s%s %s rank %d", at->receiving ? "for " : "to send ", what,
                   at->receiving ? "from" : "to", at->peer);
    }
    CRL_TRY_OUT(crl_alloc(&note, (size_t)comm->ranks, sizeof *note));
    CRL_TRY_OUT(crl_alloc(&answered, (size_t)comm->ranks, sizeof *answered));
    int64_t at_most_ns = ROLL_CALL_S * ns_per_s;
    at_most_ns = at_most_ns < comm->deadline_ns ? at_most_ns : comm->deadline_ns;
    CRL_TRY_OUT(comm->transport->roll_call(comm->endpoint, note, answered, at_most_ns));
    report_ranks(&text, comm, note, answered);
out:
    crl_free(note);
    crl_free(answered);
    if (status == CRL_STATUS_ABORTED) {
        return status;
    }
    status = CRL_FAIL(TIMEOUT, "%s", text.text);
    crl_comm_abort(comm);
    /* Two ranks may give up at once: only the first one's report counts. */
    return crl_error_get()->rank == comm->rank ? status : CRL_STATUS_ABORTED;
}

static void publish(crl_comm *comm, const char *what, int peer, int64_t since_ns) {
    crl_wait_note note = {.peer = peer, .since_ns = since_ns};
    snprintf(note.what, sizeof note.what, "%s", what);
    comm->transport->note(comm->endpoint, &note);
}

/* Moves on what the rank's device has to do with messages, whichever comm waits. */
static crl_status move_device(crl_comm *comm, bool *soon) {
    crl_comm *at = device_side(comm);
    bool busy = false;
    if (at->wire) {
        CRL_TRY(crl_comm_end_job(at, at->kind->progress(at->wire, &busy)));
    }
    *soon = *soon || busy;
    return CRL_STATUS_OK;
}

/* The slow part of a wait: what is waited for is not there yet. */
static crl_status wait_long(crl_comm *comm, const char *what, crl_poll_fn poll, void *argument,
                            crl_poll_result result) {
    int64_t since_ns = crl_clock_ns();
    int noted = -1;
    while (!result.done) {
        if (result.peer != noted || result.moved) {
            noted = result.peer;
            publish(comm, what, noted, since_ns);
        }
        CRL_TRY(move_device(comm, &result.soon));
        const int64_t idle_ns = result.soon ? SOON_NS : IDLE_NS;
        comm->transport->idle(comm->endpoint,
                              comm->deadline_ns < idle_ns ? comm->deadline_ns : idle_ns);
        result.moved = result.soon = false;
        CRL_TRY(poll(argument, &result));
        const int64_t now_ns = crl_clock_ns();
        if (result.moved) {
            since_ns = now_ns;
        }
        if (!result.done && now_ns - since_ns >= comm->deadline_ns) {
            return give_up(comm, what, &result, now_ns - since_ns);
        }
    }
    publish(comm, "", -1, since_ns);
    return CRL_STATUS_OK;
}

crl_status crl_comm_wait_poll(crl_comm *comm, const char *what, crl_poll_fn poll, void *argument) {
    crl_poll_result result = {.peer = -1};
    CRL_TRY(poll(argument, &result));
    if (result.done) {
        return CRL_STATUS_OK;
    }
    const int64_t begin_ns = crl_clock_ns();
    const crl_status status = wait_long(comm, what, poll, argument, result);
    books_of(comm)->waited_ns += crl_clock_ns() - begin_ns;
    CRL_TRY(status);
    return CRL_STATUS_OK;
}

typedef struct request_wait {
    crl_comm *comm;
    crl_request *request;
    crl_progress_fn progress;
    void *argument;
} request_wait;

static crl_status poll_request(void *argument, crl_poll_result *result) {
    const request_wait *wait = argument;
    result->peer = wait->request->peer;
    result->receiving = wait->request->receiving;
    CRL_TRY(test(wait->comm, wait->request, true, &result->done));
    if (!result->done && wait->progress != NULL) {
        CRL_TRY(wait->progress(wait->argument));
    }
    return CRL_STATUS_OK;
}

crl_status crl_comm_wait(crl_comm *comm, crl_request *request, const char *what,
                         crl_progress_fn progress, void *argument) {
    request_wait wait = {comm, request, progress, argument};
    CRL_TRY(crl_comm_wait_poll(comm, what, poll_request, &wait));
    return CRL_STATUS_OK;
}

crl_status crl_comm_send_wait(crl_comm *comm, int peer, int tag, const void *data, size_t bytes,
                              const char *what) {
    crl_request request = {0};
    CRL_TRY(crl_comm_send(comm, peer, tag, data, bytes, &request));
    CRL_TRY(crl_comm_wait(comm, &request, what, NULL, NULL));
    return CRL_STATUS_OK;
}

crl_status crl_comm_recv_wait(crl_comm *comm, int peer, int tag, void *data, size_t bytes,
                              const char *what) {
    crl_request request = {0};
    CRL_TRY(crl_comm_recv(comm, peer, tag, data, bytes, &request));
    CRL_TRY(crl_comm_wait(comm, &request, what, NULL, NULL));
    return CRL_STATUS_OK;
}

typedef struct launch_plan {
    const crl_transport *transport;
    int64_t deadline_ns;
    crl_comm_rank_fn run;
    void *argument;
} launch_plan;

/* Nobody leaves before all are through: a rank that is gone could neither answer a roll call nor
 * learn that another one failed. */
static crl_status close_job(crl_comm *comm) {
    for (int distance = 1; distance < comm->ranks; distance *= 2) {
        const int to = (comm->rank + distance) % comm->ranks;
        const int from = (comm->rank - distance + comm->ranks) % comm->ranks;
        crl_request request = {0};
        CRL_TRY(crl_comm_send(comm, to, CRL_TAG_CLOSING, NULL, 0, &request));
        CRL_TRY(crl_comm_recv_wait(comm, from, CRL_TAG_CLOSING, NULL, 0, "the end of the job"));
        CRL_TRY(crl_comm_wait(comm, &request, "the end of the job", NULL, NULL));
    }
    return CRL_STATUS_OK;
}

static crl_status run_rank(void *argument, crl_endpoint *endpoint, int rank, int ranks) {
    const launch_plan *plan = argument;
    crl_comm comm = {
        .transport = plan->transport,
        .endpoint = endpoint,
        .rank = rank,
        .ranks = ranks,
        .deadline_ns = plan->deadline_ns,
    };
    CRL_TRY(plan->run(plan->argument, &comm));
    CRL_TRY(close_job(&comm));
    return CRL_STATUS_OK;
}

crl_status crl_comm_launch(const crl_transport *transport, int ranks, int64_t deadline_ns,
                           crl_comm_rank_fn run, void *argument) {
    launch_plan plan = {
        .transport = transport,
        .deadline_ns = deadline_ns > 0 ? deadline_ns : DEADLINE_S * ns_per_s,
        .run = run,
        .argument = argument,
    };
    CRL_TRY(transport->launch(ranks, run_rank, &plan));
    return CRL_STATUS_OK;
}
