/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Do blocking send and receive programs of ranks come to their end? The k-th send of a rank to a
 * peer under a tag belongs to the k-th receive of that peer from that rank under that tag. Refuses
 * to judge what is transferred.
 *
 * The same walk as for schedules: a rank starts its next batch, and goes on when all parts of it
 * are complete; what can complete stays complete.
 */
#include "engine/ir/transfer_check.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/base/alloc.h"

typedef struct part {
    const crl_transfer *transfer;
    int rank, index;
    int match; /* number of the other side, or -1 */
    bool started;
} part;

typedef struct checker {
    int ranks, parts;
    const crl_transfer *const *transfer;
    const int *count;
    bool rendezvous;
    int *first; /* (ranks) number of a rank's first part */
    part *part;
    int *sorted; /* (parts) */
    int *at;     /* (ranks) first part of the batch the rank is in */
    int *stack, depth;
    crl_check_report *report;
} checker;

/* A channel's sends, then its receives, each in program order. */
static int compare_parts(const void *left, const void *right, void *context) {
    const part *parts = context;
    const part *a = &parts[*(const int *)left], *b = &parts[*(const int *)right];
    const bool a_sends = a->transfer->send, b_sends = b->transfer->send;
    const int a_from = a_sends ? a->rank : a->transfer->peer;
    const int b_from = b_sends ? b->rank : b->transfer->peer;
    const int a_to = a_sends ? a->transfer->peer : a->rank;
    const int b_to = b_sends ? b->transfer->peer : b->rank;
    const int tag =
        strcmp(a->transfer->tag ? a->transfer->tag : "", b->transfer->tag ? b->transfer->tag : "");
    if (a_from != b_from) {
        return a_from < b_from ? -1 : 1;
    }
    if (a_to != b_to) {
        return a_to < b_to ? -1 : 1;
    }
    if (tag != 0) {
        return tag;
    }
    if (a_sends != b_sends) {
        return a_sends ? -1 : 1;
    }
    return (a->index > b->index) - (a->index < b->index);
}

static bool same_channel(const part *a, const part *b) {
    const int a_from = a->transfer->send ? a->rank : a->transfer->peer;
    const int b_from = b->transfer->send ? b->rank : b->transfer->peer;
    const int a_to = a->transfer->send ? a->transfer->peer : a->rank;
    const int b_to = b->transfer->send ? b->transfer->peer : b->rank;
    const char *a_tag = a->transfer->tag ? a->transfer->tag : "";
    const char *b_tag = b->transfer->tag ? b->transfer->tag : "";
    return a_from == b_from && a_to == b_to && strcmp(a_tag, b_tag) == 0;
}

static void match_channel(checker *self, int begin, int end) {
    int receives = begin;
    while (receives < end && self->part[self->sorted[receives]].transfer->send) {
        receives++;
    }
    for (int send = begin, recv = receives; send < receives && recv < end; send++, recv++) {
        self->part[self->sorted[send]].match = self->sorted[recv];
        self->part[self->sorted[recv]].match = self->sorted[send];
    }
}

static void match_parts(checker *self) {
    qsort_r(self->sorted, (size_t)self->parts, sizeof *self->sorted, compare_parts, self->part);
    for (int begin = 0, end; begin < self->parts; begin = end) {
        end = begin + 1;
        while (end < self->parts &&
               same_channel(&self->part[self->sorted[begin]], &self->part[self->sorted[end]])) {
            end++;
        }
        match_channel(self, begin, end);
    }
}

static bool is_complete(const checker *self, const part *item) {
    if (!item->started) {
        return false;
    }
    if (item->transfer->send && !self->rendezvous) {
        return true;
    }
    return item->match >= 0 && self->part[item->match].started;
}

/* One past the last part of the batch that begins at part `at` of the rank. */
static int batch_end(const checker *self, int rank, int at) {
    const crl_transfer *list = self->transfer[rank];
    int end = at + 1;
    while (end < self->count[rank] && list[end].batch == list[at].batch) {
        end++;
    }
    return end;
}

/* Runs a rank as far as it goes; ranks whose parts it matched may go on afterwards. */
static void run_rank(checker *self, int rank) {
    while (self->at[rank] < self->count[rank]) {
        const int begin = self->first[rank] + self->at[rank];
        const int end = self->first[rank] + batch_end(self, rank, self->at[rank]);
        bool complete = true;
        for (int i = begin; i < end; i++) {
            part *item = &self->part[i];
            if (!item->started) {
                item->started = true;
                if (item->match >= 0 && self->part[item->match].started) {
                    self->stack[self->depth++] = self->part[item->match].rank;
                }
            }
        }
        for (int i = begin; i < end; i++) {
            complete = complete && is_complete(self, &self->part[i]);
        }
        if (!complete) {
            return;
        }
        self->at[rank] = end - self->first[rank];
    }
}

static void report_stuck(checker *self) {
    for (int rank = 0; rank < self->ranks; rank++) {
        if (self->at[rank] == self->count[rank]) {
            continue;
        }
        int number = self->first[rank] + self->at[rank];
        while (is_complete(self, &self->part[number])) {
            number++;
        }
        const part *item = &self->part[number];
        const crl_transfer *transfer = item->transfer;
        *self->report = (crl_check_report){
            .verdict = CRL_VERDICT_DEADLOCK, .position = rank, .index = item->index};
        snprintf(self->report->why, sizeof self->report->why,
                 "rank %d waits at item %d, %s '%s' %s rank %d, %s", rank, item->index,
                 transfer->send ? "send" : "receive", transfer->tag ? transfer->tag : "",
                 transfer->send ? "to" : "from", transfer->peer,
                 item->match < 0 ? "which has no counterpart"
                                 : "which does not reach its counterpart");
        return;
    }
}

static bool check_items(checker *self) {
    for (int rank = 0; rank < self->ranks; rank++) {
        for (int i = 0; i < self->count[rank]; i++) {
            const crl_transfer *item = &self->transfer[rank][i];
            const bool descends = i > 0 && item->batch < self->transfer[rank][i - 1].batch;
            if (item->peer >= 0 && item->peer < self->ranks && !descends) {
                continue;
            }
            *self->report =
                (crl_check_report){.verdict = CRL_VERDICT_INVALID, .position = rank, .index = i};
            snprintf(self->report->why, sizeof self->report->why,
                     descends ? "rank %d item %d: batch %d follows a larger one"
                              : "rank %d item %d: peer %d is outside the job",
                     rank, i, descends ? item->batch : item->peer);
            return false;
        }
    }
    return true;
}

static crl_status create_tables(checker *self) {
    const size_t ranks = (size_t)self->ranks;
    CRL_TRY(crl_alloc(&self->first, ranks, sizeof *self->first));
    CRL_TRY(crl_alloc(&self->at, ranks, sizeof *self->at));
    for (int rank = 0; rank < self->ranks; rank++) {
        self->first[rank] = self->parts;
        self->parts += self->count[rank];
    }
    const size_t parts = (size_t)self->parts;
    CRL_TRY(crl_alloc(&self->part, parts, sizeof *self->part));
    CRL_TRY(crl_alloc(&self->sorted, parts, sizeof *self->sorted));
    CRL_TRY(crl_alloc(&self->stack, ranks + parts, sizeof *self->stack));
    for (int rank = 0; rank < self->ranks; rank++) {
        for (int i = 0; i < self->count[rank]; i++) {
            const int number = self->first[rank] + i;
            self->part[number] =
                (part){.transfer = &self->transfer[rank][i], .rank = rank, .index = i, .match = -1};
            self->sorted[number] = number;
        }
    }
    return CRL_STATUS_OK;
}

crl_status crl_transfers_check(crl_check_report *report, int ranks,
                               const crl_transfer *const *transfer, const int *count,
                               bool rendezvous) {
    crl_status status = CRL_STATUS_OK;
    crl_check_report verdict = {.verdict = CRL_VERDICT_VALID, .position = -1, .index = -1};
    checker self = {.ranks = ranks,
                    .transfer = transfer,
                    .count = count,
                    .rendezvous = rendezvous,
                    .report = &verdict};
    if (check_items(&self)) {
        CRL_TRY_OUT(create_tables(&self));
        match_parts(&self);
        for (int rank = ranks - 1; rank >= 0; rank--) {
            self.stack[self.depth++] = rank;
        }
        while (self.depth > 0) {
            run_rank(&self, self.stack[--self.depth]);
        }
        report_stuck(&self);
    }
    *report = verdict;
out:
    crl_free(self.first);
    crl_free(self.at);
    crl_free(self.part);
    crl_free(self.sorted);
    crl_free(self.stack);
    return status;
}
