/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Draws a program in the manner of pipeline papers. Refuses to draw messages.
 *
 *       0 | F0 F1 .. .. B0--- .. B1---
 *       1 | .. F0 B0--- F1 B1--- .. ..
 *
 * One column is one unit of time: the shortest action of the given times, or F = I = W = 1, B = 2.
 * A position with several stages names the stage: 2F0. The marked action is written !B0. A program
 * that cannot be timed is drawn in the order of its lists, as if nothing waited.
 */
#include "engine/ir/simulate.h"
#include "engine/ir/program_internal.h"
#include "engine/ir/simulate_internal.h"

#include <math.h>
#include <string.h>

#include "engine/base/alloc.h"

enum { MAX_COLUMNS = 1 << 20, CELL_BYTES = 64 };

typedef struct canvas {
    const crl_program *program;
    const crl_simulation_config *config;
    const crl_simulation *times; /* NULL: list order */
    const crl_check_report *mark;
    FILE *out;
    double unit_s;
    int cell; /* characters per unit, with the blank */
    int room; /* characters per row; 0: no limit */
    bool with_stage;
} canvas;

/* A row being written: characters so far, and whether the ellipsis stands already. */
typedef struct row_writer {
    const canvas *view;
    int used;
    int blanks; /* of `used`, not written yet: a row ends without them */
    bool cut;
} row_writer;

static double shortest_time(const crl_program *program, const crl_simulation_config *config) {
    double shortest = INFINITY;
    for (int s = 0; s < program->stages; s++) {
        const crl_stage_cost *time = &config->stage[s];
        const double parts[] = {time->forward_s, time->input_s, time->weight_s};
        for (int i = 0; i < 3; i++) {
            if (parts[i] > 0 && parts[i] < shortest) {
                shortest = parts[i];
            }
        }
    }
    return isfinite(shortest) ? shortest : 1;
}

static void put(row_writer *row, const char *text) {
    for (; *text && !row->cut; text++) {
        row->cut = row->view->room > 0 && row->used == row->view->room - 1;
        if (*text == ' ' && !row->cut) {
            row->blanks++;
        } else {
            fprintf(row->view->out, "%*s", row->blanks, "");
            row->blanks = 0;
            if (row->cut) {
                fputs("…", row->view->out);
            } else {
                fputc(*text, row->view->out);
            }
        }
        row->used++;
    }
}

static void put_idle(row_writer *row, int columns) {
    char text[CELL_BYTES];
    snprintf(text, sizeof text, "%-*s", row->view->cell, "..");
    for (int i = 0; i < columns && !row->cut; i++) {
        put(row, text);
    }
}

static const char *cell_text(const canvas *view, const crl_action *action, bool marked,
                             char text[CELL_BYTES]) {
    char name[ACTION_TEXT_BYTES];
    crl_program_action_text(view->program, action, name);
    const char *shown = view->with_stage ? name : name + strspn(name, "0123456789");
    snprintf(text, CELL_BYTES, "%s%s", marked ? "!" : "", shown);
    return text;
}

static void put_action(row_writer *row, const crl_action *action, bool marked, int columns) {
    char text[CELL_BYTES];
    put(row, cell_text(row->view, action, marked, text));
    const int64_t width = (int64_t)columns * row->view->cell - 1;
    for (int64_t i = (int64_t)strlen(text); i < width && !row->cut; i++) {
        put(row, columns > 1 ? "-" : " ");
    }
    put(row, " ");
}

static int to_columns(const canvas *view, double seconds) {
    return (int)fmin(fmax(floor(seconds / view->unit_s + 0.5), 0), MAX_COLUMNS);
}

static void draw_row(const canvas *view, int position, int last_column) {
    const crl_action_list *list = &view->program->position[position];
    row_writer row = {.view = view};
    int column = 0;
    fprintf(view->out, "%3d | ", position);
    for (int i = 0; i < list->count && !row.cut; i++) {
        const crl_action *action = &list->action[i];
        if (!is_compute(action->kind)) {
            continue;
        }
        const double duration = action_duration(view->config, action);
        int start = column, end = column + to_columns(view, duration);
        if (view->times) {
            start = to_columns(view, view->times->start_s[position][i]);
            end = to_columns(view, view->times->start_s[position][i] + duration);
            start = start < column ? column : start;
        }
        end = end > start ? end : start + 1;
        const bool marked =
            view->mark && view->mark->position == position && view->mark->index == i;
        put_idle(&row, start - column);
        put_action(&row, action, marked, end - start);
        column = end;
    }
    if (last_column > column) {
        put_idle(&row, last_column - column);
    }
    fputc('\n', view->out);
}

/* Whether some position runs several stages. */
static bool shares_positions(const crl_program *program) {
    for (int p = 0; p < program->positions; p++) {
        const crl_action_list *list = &program->position[p];
        for (int i = 1; i < list->count; i++) {
            if (list->action[i].stage != list->action[0].stage) {
                return true;
            }
        }
    }
    return false;
}

static int widest_cell(const canvas *view) {
    size_t widest = 2;
    for (int p = 0; p < view->program->positions; p++) {
        const crl_action_list *list = &view->program->position[p];
        for (int i = 0; i < list->count; i++) {
            if (is_compute(list->action[i].kind)) {
                char text[CELL_BYTES];
                const bool marked =
                    view->mark && view->mark->position == p && view->mark->index == i;
                const size_t length = strlen(cell_text(view, &list->action[i], marked, text));
                widest = length > widest ? length : widest;
            }
        }
    }
    return (int)widest + 1;
}

static void draw(canvas *view, int width) {
    enum { MARGIN = 6, LEAST_ROOM = 8 };
    view->with_stage = shares_positions(view->program);
    view->cell = widest_cell(view);
    view->room = width > 0 ? (width > MARGIN + LEAST_ROOM ? width - MARGIN : LEAST_ROOM) : 0;
    view->unit_s = shortest_time(view->program, view->config);
    if (view->times && view->times->makespan_s / view->unit_s > MAX_COLUMNS) {
        view->unit_s = view->times->makespan_s / MAX_COLUMNS;
    }
    const int last = view->times ? to_columns(view, view->times->makespan_s) : 0;
    for (int p = 0; p < view->program->positions; p++) {
        draw_row(view, p, last);
    }
    if (view->mark && view->mark->verdict != CRL_VERDICT_VALID) {
        fprintf(view->out, "%s%s\n", view->mark->index >= 0 ? "!: " : "", view->mark->why);
    }
}

crl_status crl_program_print_grid(const crl_program *program, const crl_simulation_config *config,
                                  const crl_check_report *mark, int width, FILE *out) {
    crl_status status = CRL_STATUS_OK;
    crl_simulation *times = NULL;
    crl_stage_cost *uniform = NULL;
    crl_simulation_config unit = {0};
    crl_check_report verdict;
    CRL_TRY(crl_program_try_check(program, &verdict));
    if (!config) {
        CRL_TRY_OUT(crl_alloc(&uniform, (size_t)program->stages, sizeof *uniform));
        for (int s = 0; s < program->stages; s++) {
            uniform[s] = (crl_stage_cost){.forward_s = 1, .input_s = 1, .weight_s = 1};
        }
        unit.stage = uniform;
        config = &unit;
    }
    if (verdict.verdict == CRL_VERDICT_VALID) {
        CRL_TRY_OUT(crl_simulate(&times, program, config));
    }
    canvas view = {.program = program, .config = config, .times = times, .mark = mark, .out = out};
    draw(&view, width);
out:
    crl_simulation_destroy(times);
    crl_free(uniform);
    return status;
}
