/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The timeline as a trace: Trace Event Format [chrome16]. One JSON object is made per event and
 * written at once, so that a long program needs no memory. Refuses to name threads by rank: a
 * position is a thread of its node.
 */
#include "engine/ir/timeline.h"

#include <math.h>

#include "engine/base/json.h"
#include "engine/ir/simulate_internal.h"

typedef struct tracer {
    const crl_timeline *line;
    const program_index *index;
    FILE *out;
    int64_t events, flows;
} tracer;

/* Writes and releases `event`; NULL: it could not be made. */
static crl_status put(tracer *self, json_t *event) {
    if (!event) {
        return CRL_FAIL(NOMEM, "trace: no memory for an event");
    }
    fputs(self->events++ ? ",\n" : "\n", self->out);
    const int bad = json_dumpf(event, self->out, JSON_COMPACT | JSON_REAL_PRECISION(15));
    json_decref(event);
    /* A full disk shows in the stream, which is the caller's. */
    return bad && !ferror(self->out) ? CRL_FAIL(NOMEM, "trace: no memory to write an event")
                                     : CRL_STATUS_OK;
}

static int node_of(const tracer *self, int position) {
    const int *node = self->line->config->node;
    return node ? node[position] : 0;
}

static json_t *micros(double seconds) {
    return json_real(seconds * 1e6);
}

/* Names of a position, and of its node where it is the node's first. */
static crl_status put_names(tracer *self, int position) {
    const int node = node_of(self, position);
    char text[48];
    if (position == 0 || node != node_of(self, position - 1)) {
        snprintf(text, sizeof text, "node %d", node);
        CRL_TRY(put(self, json_pack("{s:s,s:s,s:i,s:{s:s}}", "name", "process_name", "ph", "M",
                                    "pid", node, "args", "name", text)));
    }
    snprintf(text, sizeof text, "position %d", position);
    CRL_TRY(put(self, json_pack("{s:s,s:s,s:i,s:i,s:{s:s}}", "name", "thread_name", "ph", "M",
                                "pid", node, "tid", position, "args", "name", text)));
    return put(self, json_pack("{s:s,s:s,s:i,s:i,s:{s:i}}", "name", "thread_sort_index", "ph", "M",
                               "pid", node, "tid", position, "args", "sort_index", position));
}

/* Messages only where they take time of their position, or make it wait. */
static crl_status put_slice(tracer *self, int position, int at) {
    const crl_action *action = &self->line->program->position[position].action[at];
    const crl_simulation *times = self->line->times;
    const double start_s = times->start_s[position][at], end_s = times->end_s[position][at];
    const bool compute = is_compute(action->kind);
    char name[ACTION_TEXT_BYTES];
    if (!compute && end_s <= start_s) {
        return CRL_STATUS_OK;
    }
    crl_program_action_text(self->line->program, action, name);
    return put(self,
               json_pack("{s:s,s:s,s:s,s:i,s:i,s:o,s:o,s:{s:i,s:i}}", "name", name, "cat",
                         compute ? "compute" : "message", "ph", "X", "pid", node_of(self, position),
                         "tid", position, "ts", micros(start_s), "dur", micros(end_s - start_s),
                         "args", "stage", action->stage, "micro-batch", action->micro_batch));
}

static crl_status put_flow_end(tracer *self, bool begins, int position, double at_s) {
    return put(self, json_pack("{s:s,s:s,s:s,s:I,s:i,s:i,s:o,s:s*}", "name", "message", "cat",
                               "flow", "ph", begins ? "s" : "f", "id", (json_int_t)self->flows,
                               "pid", node_of(self, position), "tid", position, "ts", micros(at_s),
                               "bp", begins ? NULL : "e"));
}

/* Arrows hang on slices: one begins inside its slice, shortly before the end. */
static crl_status put_flow(tracer *self, int position, int at) {
    const crl_timeline *line = self->line;
    const crl_action *action = &line->program->position[position].action[at];
    const int number = crl_simulator_output(self->index, position, action);
    if (number < 0) {
        return CRL_STATUS_OK;
    }
    const int to = crl_program_position_of(self->index, number);
    const double start_s = line->times->start_s[position][at];
    const double end_s = line->times->end_s[position][at];
    CRL_TRY(put_flow_end(self, true, position, start_s + 0.99 * (end_s - start_s)));
    CRL_TRY(
        put_flow_end(self, false, to, line->times->start_s[to][number - self->index->first[to]]));
    self->flows++;
    return CRL_STATUS_OK;
}

static crl_status put_position(tracer *self, int position) {
    const crl_action_list *list = &self->line->program->position[position];
    CRL_TRY(put_names(self, position));
    for (int i = 0; i < list->count; i++) {
        CRL_TRY(put_slice(self, position, i));
        if (is_compute(list->action[i].kind)) {
            CRL_TRY(put_flow(self, position, i));
        }
    }
    return CRL_STATUS_OK;
}

crl_status crl_timeline_write_trace(const crl_timeline *timeline, FILE *out) {
    crl_status status = CRL_STATUS_OK;
    program_index index = {0};
    tracer self = {.line = timeline, .index = &index, .out = out};
    CRL_TRY_OUT(crl_program_index_create(&index, timeline->program, NULL));
    fputs("{\"displayTimeUnit\":\"ms\",\"traceEvents\":[", out);
    for (int p = 0; p < timeline->program->positions; p++) {
        CRL_TRY_OUT(put_position(&self, p));
    }
    fputs("\n]}\n", out);
out:
    crl_program_index_destroy(&index);
    return status;
}
