/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The text form of programs [pytorch24]: one row per position, cells <stage><action><micro-batch>.
 * Reading is tolerant of blanks, empty cells and lines, CRLF and a byte-order mark, and refuses
 * everything else with the place: row is the line, column the cell, both from 1. Messages are not
 * read; they follow from the compute actions.
 */
#include "engine/ir/program_internal.h"

#include <string.h>

#include "engine/base/alloc.h"

static const char kind_letter[COMPUTE_KINDS] = {'F', 'B', 'I', 'W'};

char *crl_program_action_text(const crl_program *program, const crl_action *action,
                              char text[ACTION_TEXT_BYTES]) {
    static const char *const names[] = {
        [CRL_ACTION_SEND] = "SEND",           [CRL_ACTION_RECV] = "RECV",
        [CRL_ACTION_WAIT_SEND] = "WAIT_SEND", [CRL_ACTION_WAIT_RECV] = "WAIT_RECV",
        [CRL_ACTION_REDUCE] = "REDUCE",       [CRL_ACTION_STEP] = "STEP"};
    if (is_compute(action->kind)) {
        snprintf(text, ACTION_TEXT_BYTES, "%d%c%d", action->stage, kind_letter[action->kind],
                 action->micro_batch);
    } else if (action->message < 0) {
        snprintf(text, ACTION_TEXT_BYTES, "%d%s", action->stage, names[action->kind]);
    } else {
        snprintf(text, ACTION_TEXT_BYTES, "%d%s_%c%d", action->stage, names[action->kind],
                 program->message[action->message].gradient ? 'B' : 'F', action->micro_batch);
    }
    return text;
}

void crl_program_write(const crl_program *program, bool messages, FILE *out) {
    for (int p = 0; p < program->positions; p++) {
        const crl_action_list *list = &program->position[p];
        const char *separator = "";
        for (int i = 0; i < list->count; i++) {
            char text[ACTION_TEXT_BYTES];
            if (messages || is_compute(list->action[i].kind)) {
                fprintf(out, "%s%s", separator,
                        crl_program_action_text(program, &list->action[i], text));
                separator = ",";
            }
        }
        /* A blank line would be skipped when read back; an empty cell is an idle position. */
        fputs(*separator ? "\n" : ",\n", out);
    }
}

typedef struct reader {
    const char *name;
    const char *at, *end;
    int row, column;
    int cells;
    int stages, micro_batches; /* largest + 1 */
    int positions, capacity;
    crl_action_list *position;
} reader;

/* The cell in a message: short, printable. */
static const char *show_cell(const char *cell, size_t bytes, char text[32]) {
    size_t length = 0;
    while (length < bytes && length < 24) {
        const unsigned char c = (unsigned char)cell[length];
        text[length++] = c >= 0x20 && c < 0x7f ? (char)c : '?';
    }
    memcpy(text + length, length < bytes ? "..." : "", length < bytes ? 4 : 1);
    return text;
}

static crl_status refuse(const reader *self, const char *cell, size_t bytes, const char *why) {
    char text[32];
    return CRL_FAIL(INVALID, "%s:%d:%d: '%s' %s", self->name, self->row, self->column,
                    show_cell(cell, bytes, text), why);
}

/* Digits at *text; false: none. Values beyond the limit stay just beyond it. */
static bool read_number(const char **text, const char *end, int *out) {
    const char *at = *text;
    int value = 0;
    while (at < end && *at >= '0' && *at <= '9') {
        value = value * 10 + (*at - '0');
        value = value > PROGRAM_MAX_SIZE ? PROGRAM_MAX_SIZE : value;
        at++;
    }
    const bool some = at > *text;
    *text = at;
    *out = value;
    return some;
}

static crl_status read_cell(reader *self, crl_action_list *list, const char *cell, size_t bytes) {
    const char *at = cell, *end = cell + bytes;
    crl_action action = {.message = -1};
    if (!read_number(&at, end, &action.stage) || at == end) {
        return refuse(self, cell, bytes, "is no action, expected e.g. 0F3");
    }
    int kind = 0;
    while (kind < COMPUTE_KINDS && kind_letter[kind] != *at) {
        kind++;
    }
    at++;
    if (kind == COMPUTE_KINDS) {
        return refuse(self, cell, bytes, "has no known action, expected F, B, I or W");
    }
    if (!read_number(&at, end, &action.micro_batch) || at != end) {
        return refuse(self, cell, bytes, "does not end in a micro-batch number");
    }
    if (action.stage >= PROGRAM_MAX_SIZE || action.micro_batch >= PROGRAM_MAX_SIZE) {
        return refuse(self, cell, bytes, "is out of range, expected numbers below 65535");
    }
    if (self->cells++ == PROGRAM_MAX_CELLS) {
        return refuse(self, cell, bytes, "is one action too many, expected at most 16777216");
    }
    action.kind = (crl_action_kind)kind;
    self->stages = action.stage >= self->stages ? action.stage + 1 : self->stages;
    self->micro_batches =
        action.micro_batch >= self->micro_batches ? action.micro_batch + 1 : self->micro_batches;
    return crl_action_list_append(list, &action);
}

static bool is_blank(char c) {
    return c == ' ' || c == '\t' || c == '\r';
}

static crl_status add_position(reader *self) {
    if (self->positions == PROGRAM_MAX_SIZE) {
        return CRL_FAIL(INVALID, "%s:%d:1: one row too many, expected at most %d", self->name,
                        self->row, PROGRAM_MAX_SIZE);
    }
    if (self->positions == self->capacity) {
        const int capacity = self->capacity ? 2 * self->capacity : 8;
        CRL_TRY(crl_realloc(&self->position, (size_t)self->capacity, (size_t)capacity,
                            sizeof *self->position));
        self->capacity = capacity;
    }
    self->position[self->positions++] = (crl_action_list){0};
    return CRL_STATUS_OK;
}

/* [line, end) without its newline; blank lines are no positions. */
static crl_status read_row(reader *self, const char *line, const char *end) {
    const char *at = line;
    while (at < end && is_blank(*at)) {
        at++;
    }
    if (at == end) {
        return CRL_STATUS_OK;
    }
    CRL_TRY(add_position(self));
    self->column = 0;
    while (at <= end) {
        const char *comma = at < end ? memchr(at, ',', (size_t)(end - at)) : NULL;
        const char *cell = at, *stop = comma ? comma : end;
        while (cell < stop && is_blank(*cell)) {
            cell++;
        }
        while (stop > cell && is_blank(stop[-1])) {
            stop--;
        }
        self->column++;
        if (stop > cell) {
            CRL_TRY(
                read_cell(self, &self->position[self->positions - 1], cell, (size_t)(stop - cell)));
        }
        at = comma ? comma + 1 : end + 1;
    }
    return CRL_STATUS_OK;
}

static crl_status read_rows(reader *self) {
    if (self->end - self->at >= 3 && memcmp(self->at, "\xef\xbb\xbf", 3) == 0) {
        self->at += 3;
    }
    while (self->at < self->end) {
        const char *newline = memchr(self->at, '\n', (size_t)(self->end - self->at));
        const char *stop = newline ? newline : self->end;
        self->row++;
        CRL_TRY(read_row(self, self->at, stop));
        self->at = newline ? newline + 1 : self->end;
    }
    if (self->cells == 0) {
        return CRL_FAIL(INVALID, "%s: no actions, expected rows of cells such as 0F3", self->name);
    }
    return CRL_STATUS_OK;
}

crl_status crl_program_parse(crl_program **out, const char *name, const char *text, size_t bytes) {
    crl_status status = CRL_STATUS_OK;
    crl_program *program = NULL;
    reader self = {.name = name, .at = text, .end = text + bytes};
    CRL_TRY_OUT(read_rows(&self));
    if ((int64_t)self.stages * self.micro_batches > PROGRAM_MAX_CELLS) {
        status = CRL_FAIL(INVALID, "%s: %d stages x %d micro-batches, expected at most %d", name,
                          self.stages, self.micro_batches, PROGRAM_MAX_CELLS);
        goto out;
    }
    CRL_TRY_OUT(crl_program_create(&program, self.positions, self.stages, self.micro_batches));
    for (int p = 0; p < self.positions; p++) {
        program->position[p] = self.position[p];
    }
    self.positions = 0;
    *out = program;
out:
    for (int p = 0; p < self.positions; p++) {
        crl_free(self.position[p].action);
    }
    crl_free(self.position);
    return status;
}
