/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The timeline of pipeline papers as an SVG. Refuses to draw messages: they are the gaps.
 *
 *     title: bubble ...
 *     0 [F0][F1]      [B0  ][B1  ]
 *     1     [F0][B0  ][F1][B1  ]
 *       0     2     4     6     8
 *       # forward  # backward
 */
#include "engine/ir/timeline.h"

#include <math.h>
#include <string.h>

#include "engine/base/alloc.h"
#include "engine/ir/simulate_internal.h"
#include "engine/ir/svg.h"

enum { MOST_ROWS = 64, MOST_SHADES = 8, TICKS = 12, CSS_BYTES = 4096 };

static const double width_px = 960, left_px = 44, right_px = 20, top_px = 40, foot_px = 52;
static const double digit_px = 6.3;   /* of the font in blocks */
static const double white_from = 0.3; /* share of white from which on dark text is readable */

typedef struct look {
    char letter; /* of the style sheet */
    const char *name;
    int red, green, blue;
} look;

static const look looks[COMPUTE_KINDS] = {
    [CRL_ACTION_FORWARD] = {'F', "forward", 0x3f, 0x74, 0xd6},
    [CRL_ACTION_BACKWARD] = {'B', "backward", 0x1f, 0x93, 0x86},
    [CRL_ACTION_INPUT] = {'I', "input gradient", 0xd9, 0x7f, 0x16},
    [CRL_ACTION_WEIGHT] = {'W', "weight gradient", 0x8c, 0x55, 0xb8},
};

typedef struct drawing {
    const crl_timeline *line;
    FILE *out;
    int *chunk;    /* (stages) which of its position's stages it is */
    int chunks;    /* most per position */
    int rows;      /* drawn */
    double row_px; /* with the gap below */
    double px_per_s;
    bool numbered;
    bool occurs[COMPUTE_KINDS];
} drawing;

/* Blocks too narrow to be drawn alone, as one. */
typedef struct block {
    bool open;
    crl_action action; /* its first */
    double from_px, to_px;
} block;

static int shades_of(const drawing *self) {
    return self->chunks < MOST_SHADES ? self->chunks : MOST_SHADES;
}

static int shade_of(const drawing *self, int stage) {
    return (int)((int64_t)self->chunk[stage] * shades_of(self) / self->chunks);
}

/* Share of white in a shade. */
static double whiteness(const drawing *self, int shade) {
    const int shades = shades_of(self);
    return shades > 1 ? 0.62 * shade / (shades - 1) : 0;
}

static int position_of_row(const drawing *self, int row) {
    return (int)((int64_t)row * self->line->program->positions / self->rows);
}

/* Counts the stages of every position, in ascending order, and what kinds of actions there are. */
static crl_status survey(drawing *self) {
    const crl_program *program = self->line->program;
    int *home = NULL, *count = NULL;
    crl_status status = CRL_STATUS_OK;
    CRL_TRY_OUT(crl_alloc(&self->chunk, (size_t)program->stages, sizeof *self->chunk));
    CRL_TRY_OUT(crl_alloc(&home, (size_t)program->stages, sizeof *home));
    CRL_TRY_OUT(crl_alloc(&count, (size_t)program->positions, sizeof *count));
    for (int p = 0; p < program->positions; p++) {
        const crl_action_list *list = &program->position[p];
        for (int i = 0; i < list->count; i++) {
            home[list->action[i].stage] = p;
            if (is_compute(list->action[i].kind)) {
                self->occurs[list->action[i].kind] = true;
            }
        }
    }
    self->chunks = 1;
    for (int s = 0; s < program->stages; s++) {
        self->chunk[s] = count[home[s]]++;
        self->chunks = count[home[s]] > self->chunks ? count[home[s]] : self->chunks;
    }
out:
    crl_free(home);
    crl_free(count);
    return status;
}

static void measure(drawing *self) {
    const crl_program *program = self->line->program;
    self->rows = program->positions < MOST_ROWS ? program->positions : MOST_ROWS;
    self->row_px = fmax(8, fmin(28, floor(560.0 / self->rows)));
    const double makespan_s = self->line->times->makespan_s;
    self->px_per_s = makespan_s > 0 ? (width_px - left_px - right_px) / makespan_s : 0;
    self->numbered = self->row_px >= 12;
}

static int mix(int colour, double white) {
    return (int)lround(colour + (255 - colour) * white);
}

static void make_css(const drawing *self, char css[CSS_BYTES]) {
    size_t used = (size_t)snprintf(css, CSS_BYTES,
                                   ".row{fill:#fff;stroke:#d1d9e0}\n"
                                   ".on{fill:#fff;text-anchor:middle}\n");
    for (int kind = 0; kind < COMPUTE_KINDS; kind++) {
        for (int shade = 0; shade < shades_of(self) && self->occurs[kind]; shade++) {
            const look *l = &looks[kind];
            const double white = whiteness(self, shade);
            used += (size_t)snprintf(css + used, CSS_BYTES - used, ".%c%d{fill:#%02x%02x%02x}\n",
                                     l->letter, shade, mix(l->red, white), mix(l->green, white),
                                     mix(l->blue, white));
        }
    }
}

static void draw_block(const drawing *self, block *pending, double y) {
    if (!pending->open) {
        return;
    }
    const crl_action *action = &pending->action;
    const int shade = shade_of(self, action->stage);
    const double wide = pending->to_px - pending->from_px;
    const double gap = wide > 4 ? 1 : 0; /* between neighbours */
    char style[16], number[16];
    snprintf(style, sizeof style, "%c%d", looks[action->kind].letter, shade);
    crl_svg_rect(self->out, style, pending->from_px, y, wide - gap, self->row_px - 3);
    const int length = snprintf(number, sizeof number, "%d", action->micro_batch);
    if (self->numbered && wide >= length * digit_px + 4) {
        crl_svg_text(self->out, whiteness(self, shade) < white_from ? "on" : "middle",
                     (pending->from_px + pending->to_px - gap) / 2, y + self->row_px / 2 + 2.5,
                     number);
    }
    pending->open = false;
}

/* Whether a block is so narrow, and so near to the one before it, that both are drawn as one. */
static bool is_part(const drawing *self, const block *pending, const block *next) {
    const bool alike = pending->action.kind == next->action.kind &&
                       shade_of(self, pending->action.stage) == shade_of(self, next->action.stage);
    return pending->open && next->from_px - pending->to_px < 1 && next->to_px - next->from_px < 1 &&
           (alike || next->to_px - pending->from_px < 1);
}

static void draw_row(const drawing *self, int position, double y) {
    const crl_action_list *list = &self->line->program->position[position];
    const crl_simulation *times = self->line->times;
    block pending = {0};
    crl_svg_rect(self->out, "row", left_px, y, width_px - left_px - right_px, self->row_px - 3);
    for (int i = 0; i < list->count; i++) {
        const block next = {.open = true,
                            .action = list->action[i],
                            .from_px = left_px + times->start_s[position][i] * self->px_per_s,
                            .to_px = left_px + times->end_s[position][i] * self->px_per_s};
        if (!is_compute(next.action.kind) || next.to_px <= next.from_px) {
            continue;
        }
        if (is_part(self, &pending, &next)) {
            pending.to_px = next.to_px;
        } else {
            draw_block(self, &pending, y);
            pending = next;
        }
    }
    draw_block(self, &pending, y);
}

static void draw_rows(const drawing *self) {
    const int labelled = (int)ceil(13 / self->row_px); /* every how many rows there is room */
    for (int row = 0; row < self->rows; row++) {
        const int position = position_of_row(self, row);
        const double y = top_px + row * self->row_px;
        char label[16];
        snprintf(label, sizeof label, "%d", position);
        if (row % labelled == 0) {
            crl_svg_text(self->out, "end", left_px - 6, y + self->row_px / 2 + 2.5, label);
        }
        draw_row(self, position, y);
    }
}

static void draw_axis(const drawing *self) {
    const double bottom = top_px + self->rows * self->row_px;
    const double makespan_s = self->line->times->makespan_s;
    const double step = crl_svg_step(makespan_s, TICKS);
    for (int i = 0; i * step <= makespan_s * (1 + 1e-9) && i <= TICKS; i++) {
        const double x = left_px + i * step * self->px_per_s;
        char label[32];
        crl_svg_line(self->out, "line", x, bottom - 2, x, bottom + 4);
        crl_svg_text(self->out, "middle", x, bottom + 16, crl_svg_number(label, i * step));
    }
}

static void draw_legend(const drawing *self) {
    const double y = top_px + self->rows * self->row_px + 30;
    double x = left_px;
    for (int kind = 0; kind < COMPUTE_KINDS; kind++) {
        if (!self->occurs[kind]) {
            continue;
        }
        for (int shade = 0; shade < shades_of(self); shade++, x += 13) {
            const char style[] = {looks[kind].letter, (char)('0' + shade), '\0'};
            crl_svg_rect(self->out, style, x, y, 11, 11);
        }
        crl_svg_text(self->out, "text", x + 4, y + 9, looks[kind].name);
        x += 24 + 6 * (double)strlen(looks[kind].name);
    }
    if (self->chunks > 1) {
        crl_svg_text(self->out, "text", x, y + 9, "dark to light: a position's stages in order");
    }
}

static void make_title(const drawing *self, char *text, size_t text_bytes) {
    const crl_program *program = self->line->program;
    const crl_simulation *times = self->line->times;
    char makespan[32];
    const int tenths = (int)lround(1000 * times->bubble);
    const int used = snprintf(
        text, text_bytes, "%.80s: %d positions, %d micro-batches, time %s, bubble %d.%d %%",
        self->line->title, program->positions, program->micro_batches,
        crl_svg_number(makespan, times->makespan_s), tenths / 10, tenths % 10);
    if (self->rows < program->positions && used > 0 && (size_t)used < text_bytes) {
        snprintf(text + used, text_bytes - (size_t)used, " (%d positions drawn)", self->rows);
    }
}

crl_status crl_timeline_write_svg(const crl_timeline *timeline, FILE *out) {
    crl_status status = CRL_STATUS_OK;
    drawing self = {.line = timeline, .out = out};
    char css[CSS_BYTES], title[256];
    CRL_TRY_OUT(survey(&self));
    measure(&self);
    make_css(&self, css);
    make_title(&self, title, sizeof title);
    crl_svg_begin(out, width_px, top_px + self.rows * self.row_px + foot_px, title, css);
    crl_svg_text(out, "head", left_px, 25, title);
    draw_axis(&self);
    draw_rows(&self);
    draw_legend(&self);
    crl_svg_end(out);
out:
    crl_free(self.chunk);
    return status;
}
