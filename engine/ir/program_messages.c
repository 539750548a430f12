/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Inserts messages into a program of compute actions. Refuses to reorder compute.
 *
 * Around the compute actions c0 c1 c2 ... of a position:
 *
 *     post the receives of c1 | wait for those of c0 | wait for old sends | c0 | start its sends
 *
 * A send is waited for before the `window`-th next action of its stage and kind, or before the
 * backward of its own micro-batch, whichever comes first: no buffer of a message outlives its
 * micro-batch. Where a window is too narrow for the schedule (both sides would wait for each other
 * under rendezvous), it is doubled until the checker is content; unlimited, a send never blocks.
 * Messages between stages of one position keep the same four parts, but their send is only waited
 * for together with the receive, so they cannot block at all.
 */
#include "engine/ir/program_internal.h"

#include <string.h>

#include "engine/base/alloc.h"

enum { GROUP_FORWARD = 0, GROUP_BACKWARD, GROUPS };

/* The sends of one stage and direction, in the order their compute actions ran. */
typedef struct send_queue {
    int *micro_batch; /* (M), lent from inserter.order */
    int head, tail;   /* [head, tail) started, not waited for */
} send_queue;

typedef struct inserter {
    const crl_program *source;
    const crl_plan *plan;
    crl_program *target;
    int window;
    bool forward_only;
    int *home;                  /* (stages x M) list that runs F */
    int *base;                  /* (edges) first message of the edge */
    int *slice_to, *slice_from; /* (stages + 1) of the lists below */
    int *list_to, *list_from;   /* (edges) edge numbers grouped by their ends */
    bool *open;                 /* (messages) started, not waited for */
    int *order;                 /* (GROUPS x stages x M) */
    send_queue *queue;          /* (GROUPS x stages) */
    int *weights_left;          /* (stages) B or W still to come on the list under way */
    bool *here;                 /* (stages) it has some of the stage */
} inserter;

static bool is_weight_part(crl_action_kind kind) {
    return kind == CRL_ACTION_BACKWARD || kind == CRL_ACTION_WEIGHT;
}

/* Edge numbers grouped by one of their ends: counting sort, ascending inside a group. */
static void group_edges(const crl_plan *plan, bool by_to, int *slice, int *list) {
    for (int e = 0; e < plan->edges; e++) {
        slice[by_to ? plan->edge[e].to : plan->edge[e].from]++;
    }
    for (int s = 1; s <= plan->stages; s++) {
        slice[s] += slice[s - 1];
    }
    for (int e = plan->edges - 1; e >= 0; e--) {
        list[--slice[by_to ? plan->edge[e].to : plan->edge[e].from]] = e;
    }
}

static crl_message message_make(const inserter *self, int edge, bool gradient, int micro_batch) {
    const crl_edge *item = &self->plan->edge[edge];
    const int *home = self->home + micro_batch;
    const int lower = home[item->from * self->source->micro_batches];
    const int upper = home[item->to * self->source->micro_batches];
    return (crl_message){.edge = edge,
                         .gradient = gradient,
                         .micro_batch = micro_batch,
                         .from = gradient ? upper : lower,
                         .to = gradient ? lower : upper,
                         .bytes = item->bytes};
}

/* Numbers the messages: by edge, activations before gradients, by micro-batch. */
static crl_status create_messages(inserter *self) {
    const crl_plan *plan = self->plan;
    const int micro_batches = self->source->micro_batches;
    int64_t total = 0;
    for (int e = 0; e < plan->edges; e++) {
        const int directions = plan->edge[e].gradient && !self->forward_only ? 2 : 1;
        self->base[e] = (int)total;
        total += (int64_t)micro_batches * directions;
        if (total > PROGRAM_MAX_ACTIONS / 8) {
            return CRL_FAIL(INVALID, "program: more than %d messages", PROGRAM_MAX_ACTIONS / 8);
        }
    }
    crl_message *message;
    CRL_TRY(crl_alloc(&message, (size_t)total, sizeof *message));
    self->target->messages = (int)total;
    self->target->message = message;
    for (int e = 0; e < plan->edges; e++) {
        for (int m = 0; m < micro_batches; m++) {
            *message++ = message_make(self, e, false, m);
        }
        for (int m = 0; m < micro_batches && plan->edge[e].gradient && !self->forward_only; m++) {
            *message++ = message_make(self, e, true, m);
        }
    }
    return CRL_STATUS_OK;
}

/* Message of an edge around `action`, or -1: W has none, some edges carry no gradient. */
static int message_of(const inserter *self, int edge, const crl_action *action) {
    if (action->kind == CRL_ACTION_FORWARD) {
        return self->base[edge] + action->micro_batch;
    }
    if (action->kind == CRL_ACTION_WEIGHT || !self->plan->edge[edge].gradient) {
        return -1;
    }
    return self->base[edge] + self->source->micro_batches + action->micro_batch;
}

typedef struct edge_list {
    const int *edge;
    int count;
} edge_list;

/* The edges whose data `action` needs (incoming) or makes. */
static edge_list edges_of(const inserter *self, const crl_action *action, bool incoming) {
    const bool by_to = incoming == (action->kind == CRL_ACTION_FORWARD);
    const int *slice = (by_to ? self->slice_to : self->slice_from) + action->stage;
    return (edge_list){(by_to ? self->list_to : self->list_from) + slice[0], slice[1] - slice[0]};
}

static crl_status emit(inserter *self, int position, crl_action_kind kind, const crl_action *around,
                       int message) {
    const crl_action action = {.kind = kind,
                               .stage = around->stage,
                               .micro_batch = around->micro_batch,
                               .message = message};
    return crl_action_list_append(&self->target->position[position], &action);
}

static crl_status post_receives(inserter *self, int position, const crl_action *action) {
    const edge_list in = edges_of(self, action, true);
    for (int i = 0; i < in.count; i++) {
        const int message = message_of(self, in.edge[i], action);
        if (message >= 0) {
            CRL_TRY(emit(self, position, CRL_ACTION_RECV, action, message));
        }
    }
    return CRL_STATUS_OK;
}

static crl_status wait_receives(inserter *self, int position, const crl_action *action) {
    const edge_list in = edges_of(self, action, true);
    for (int i = 0; i < in.count; i++) {
        const int message = message_of(self, in.edge[i], action);
        if (message < 0) {
            continue;
        }
        CRL_TRY(emit(self, position, CRL_ACTION_WAIT_RECV, action, message));
        if (self->target->message[message].from == position) {
            const crl_edge *edge = &self->plan->edge[in.edge[i]];
            const crl_action sender = {.stage = action->kind == CRL_ACTION_FORWARD ? edge->from
                                                                                   : edge->to,
                                       .micro_batch = action->micro_batch};
            CRL_TRY(emit(self, position, CRL_ACTION_WAIT_SEND, &sender, message));
        }
    }
    return CRL_STATUS_OK;
}

static crl_status start_sends(inserter *self, int position, const crl_action *action) {
    const edge_list out = edges_of(self, action, false);
    for (int i = 0; i < out.count; i++) {
        const int message = message_of(self, out.edge[i], action);
        if (message >= 0) {
            CRL_TRY(emit(self, position, CRL_ACTION_SEND, action, message));
            self->open[message] = self->target->message[message].to != position;
        }
    }
    return CRL_STATUS_OK;
}

/* Waits for what is still open of the sends that `action` started. */
static crl_status wait_sends(inserter *self, int position, const crl_action *action) {
    const edge_list out = edges_of(self, action, false);
    for (int i = 0; i < out.count; i++) {
        const int message = message_of(self, out.edge[i], action);
        if (message >= 0 && self->open[message]) {
            CRL_TRY(emit(self, position, CRL_ACTION_WAIT_SEND, action, message));
            self->open[message] = false;
        }
    }
    return CRL_STATUS_OK;
}

static send_queue *queue_of(const inserter *self, int group, int stage) {
    return &self->queue[group * self->plan->stages + stage];
}

/* Shortens a queue to fewer than `keep` items. */
static crl_status drain(inserter *self, int position, int group, int stage, int keep) {
    send_queue *queue = queue_of(self, group, stage);
    while (queue->head < queue->tail && queue->tail - queue->head >= keep) {
        const crl_action sender = {.kind = group == GROUP_FORWARD ? CRL_ACTION_FORWARD
                                                                  : CRL_ACTION_INPUT,
                                   .stage = stage,
                                   .micro_batch = queue->micro_batch[queue->head++]};
        CRL_TRY(wait_sends(self, position, &sender));
    }
    return CRL_STATUS_OK;
}

static crl_status emit_compute(inserter *self, int position, const crl_action *action) {
    const int stage = action->stage;
    const int group = action->kind == CRL_ACTION_FORWARD ? GROUP_FORWARD : GROUP_BACKWARD;
    const bool sends = action->kind != CRL_ACTION_WEIGHT;
    CRL_TRY(wait_receives(self, position, action));
    if (sends) {
        CRL_TRY(drain(self, position, group, stage, self->window));
    }
    if (group == GROUP_BACKWARD && sends) {
        crl_action forward = *action;
        forward.kind = CRL_ACTION_FORWARD;
        CRL_TRY(wait_sends(self, position, &forward));
    }
    CRL_TRY(emit(self, position, action->kind, action, -1));
    if (sends) {
        send_queue *queue = queue_of(self, group, stage);
        CRL_TRY(start_sends(self, position, action));
        queue->micro_batch[queue->tail++] = action->micro_batch;
    }
    if (is_weight_part(action->kind) && --self->weights_left[stage] == 0) {
        const crl_action done = {.stage = stage, .micro_batch = -1};
        CRL_TRY(emit(self, position, CRL_ACTION_REDUCE, &done, -1));
    }
    return CRL_STATUS_OK;
}

static void begin_position(inserter *self, const crl_action_list *list) {
    memset(self->weights_left, 0, (size_t)self->plan->stages * sizeof *self->weights_left);
    memset(self->here, 0, (size_t)self->plan->stages * sizeof *self->here);
    for (int i = 0; i < list->count; i++) {
        self->weights_left[list->action[i].stage] += is_weight_part(list->action[i].kind);
        self->here[list->action[i].stage] = true;
    }
}

static crl_status emit_position(inserter *self, int position) {
    const crl_action_list *list = &self->source->position[position];
    begin_position(self, list);
    for (int i = 0; i < list->count; i++) {
        if (i == 0) {
            CRL_TRY(post_receives(self, position, &list->action[i]));
        }
        if (i + 1 < list->count) {
            CRL_TRY(post_receives(self, position, &list->action[i + 1]));
        }
        CRL_TRY(emit_compute(self, position, &list->action[i]));
    }
    for (int s = 0; s < self->plan->stages; s++) {
        CRL_TRY(drain(self, position, GROUP_FORWARD, s, 0));
        CRL_TRY(drain(self, position, GROUP_BACKWARD, s, 0));
    }
    for (int s = 0; s < self->plan->stages && !self->forward_only; s++) {
        const crl_action step = {.stage = s, .micro_batch = -1};
        if (self->here[s]) {
            CRL_TRY(emit(self, position, CRL_ACTION_STEP, &step, -1));
        }
    }
    return CRL_STATUS_OK;
}

static void find_homes(inserter *self) {
    for (int p = 0; p < self->source->positions; p++) {
        const crl_action_list *list = &self->source->position[p];
        for (int i = 0; i < list->count; i++) {
            self->home[list->action[i].stage * self->source->micro_batches +
                       list->action[i].micro_batch] = p;
        }
    }
}

static crl_status inserter_init(inserter *self) {
    const size_t edges = (size_t)self->plan->edges, stages = (size_t)self->plan->stages;
    const size_t micro_batches = (size_t)self->source->micro_batches;
    CRL_TRY(crl_program_create(&self->target, self->source->positions, self->source->stages,
                               self->source->micro_batches));
    self->target->dealt = self->source->dealt;
    CRL_TRY(crl_alloc(&self->home, stages * micro_batches, sizeof *self->home));
    CRL_TRY(crl_alloc(&self->here, stages, sizeof *self->here));
    find_homes(self);
    CRL_TRY(crl_alloc(&self->base, edges, sizeof *self->base));
    CRL_TRY(crl_alloc(&self->slice_to, stages + 1, sizeof *self->slice_to));
    CRL_TRY(crl_alloc(&self->slice_from, stages + 1, sizeof *self->slice_from));
    CRL_TRY(crl_alloc(&self->list_to, edges, sizeof *self->list_to));
    CRL_TRY(crl_alloc(&self->list_from, edges, sizeof *self->list_from));
    CRL_TRY(crl_alloc(&self->weights_left, stages, sizeof *self->weights_left));
    CRL_TRY(crl_alloc(&self->queue, GROUPS * stages, sizeof *self->queue));
    CRL_TRY(crl_alloc(&self->order, GROUPS * stages * micro_batches, sizeof *self->order));
    group_edges(self->plan, true, self->slice_to, self->list_to);
    group_edges(self->plan, false, self->slice_from, self->list_from);
    CRL_TRY(create_messages(self));
    CRL_TRY(crl_alloc(&self->open, (size_t)self->target->messages, sizeof *self->open));
    for (size_t i = 0; i < GROUPS * stages; i++) {
        self->queue[i].micro_batch = self->order + i * micro_batches;
    }
    return CRL_STATUS_OK;
}

static void inserter_fini(inserter *self) {
    crl_program_destroy(self->target);
    crl_free(self->home);
    crl_free(self->here);
    crl_free(self->base);
    crl_free(self->slice_to);
    crl_free(self->slice_from);
    crl_free(self->list_to);
    crl_free(self->list_from);
    crl_free(self->weights_left);
    crl_free(self->queue);
    crl_free(self->order);
    crl_free(self->open);
}

/* One try with one window: the result moves into `program` unless it could deadlock. */
static crl_status insert(crl_program *program, const crl_plan *plan, int window, bool forward_only,
                         crl_check_report *report) {
    crl_status status = CRL_STATUS_OK;
    inserter self = {
        .source = program, .plan = plan, .window = window, .forward_only = forward_only};
    CRL_TRY_OUT(inserter_init(&self));
    for (int p = 0; p < program->positions; p++) {
        CRL_TRY_OUT(emit_position(&self, p));
    }
    CRL_TRY_OUT(crl_program_try_check(self.target, report));
    if (report->verdict == CRL_VERDICT_VALID) {
        const crl_program old = *program;
        *program = *self.target;
        *self.target = old;
    }
out:
    inserter_fini(&self);
    return status;
}

static crl_status check_action(const crl_program *program, const crl_plan *plan, int position,
                               const crl_action *action, bool forward_only) {
    const int planned =
        program->dealt ? position : plan->stage[action->stage].position; /* lists are rows */
    char text[ACTION_TEXT_BYTES];
    if (!is_compute(action->kind)) {
        return CRL_FAIL(INVALID, "program: has %s already",
                        crl_program_action_text(program, action, text));
    }
    if (planned != position) {
        return CRL_FAIL(INVALID, "program: %s on position %d, the plan has stage %d on %d",
                        crl_program_action_text(program, action, text), position, action->stage,
                        planned);
    }
    if (forward_only && action->kind != CRL_ACTION_FORWARD) {
        return CRL_FAIL(INVALID, "program: %s in a forward-only program",
                        crl_program_action_text(program, action, text));
    }
    return CRL_STATUS_OK;
}

static crl_status check_request(const crl_program *program, const crl_plan *plan,
                                bool forward_only) {
    if ((program->positions != plan->positions && !program->dealt) ||
        program->stages != plan->stages) {
        return CRL_FAIL(INVALID, "program: %d stages on %d positions, the plan has %d stages on %d",
                        program->stages, program->positions, plan->stages, plan->positions);
    }
    if (program->messages > 0) {
        return CRL_FAIL(INVALID, "program: has messages already");
    }
    for (int p = 0; p < program->positions; p++) {
        const crl_action_list *list = &program->position[p];
        for (int i = 0; i < list->count; i++) {
            CRL_TRY(check_action(program, plan, p, &list->action[i], forward_only));
        }
    }
    return CRL_STATUS_OK;
}

crl_status crl_program_add_messages(crl_program *program, const crl_plan *plan, int window,
                                    bool forward_only) {
    crl_check_report report;
    if (window < 1) {
        return CRL_FAIL(INVALID, "program: send window is %d, expected 1 or more", window);
    }
    CRL_TRY(crl_program_require_valid(program));
    CRL_TRY(check_request(program, plan, forward_only));
    for (;;) {
        const bool unlimited = window >= program->micro_batches;
        CRL_TRY(insert(program, plan, unlimited ? program->micro_batches + 1 : window, forward_only,
                       &report));
        if (report.verdict == CRL_VERDICT_VALID) {
            return CRL_STATUS_OK;
        }
        if (unlimited) {
            return CRL_FAIL(INTERNAL, "program: messages do not fit the schedule: %s", report.why);
        }
        window *= 2;
    }
}
