/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The picture of `schedule compare`: what a bubble costs in memory.
 *
 *     bubble %  |  x gpipe
 *               | x 1f1b
 *               |   \__ auto over memory limits
 *               +------------- peak memory
 */
#include "cli/schedule_compare_internal.h"

#include <math.h>
#include <string.h>

#include "engine/ir/svg.h"

enum { MOST_PLACES = 1024, TICKS = 10, COLOURS = 2 };

static const double width_px = 760, height_px = 420;
static const double left_px = 62, right_px = 24, top_px = 56, bottom_px = 52;
static const double letter_px = 6.4, line_px = 12, gap_px = 8;

static const char css[] = ".dot{fill:#3f74d6}\n"
                          ".c0{stroke:#d97f16;stroke-width:2}\n.d0{fill:#d97f16}\n"
                          ".c1{stroke:#8c55b8;stroke-width:2}\n.d1{fill:#8c55b8}\n";

typedef struct box {
    double x, y, width, height;
} box;

typedef struct chart {
    FILE *out;
    double most_memory, most_bubble; /* at the ends of the axes */
    int taken;                       /* places of points and labels so far */
    box place[MOST_PLACES];
} chart;

static double x_of(const chart *self, double memory) {
    return left_px + memory / self->most_memory * (width_px - left_px - right_px);
}

static double y_of(const chart *self, double bubble) {
    return height_px - bottom_px - bubble / self->most_bubble * (height_px - top_px - bottom_px);
}

static bool overlaps(const box *a, const box *b) {
    return a->x < b->x + b->width && b->x < a->x + a->width && a->y < b->y + b->height &&
           b->y < a->y + a->height;
}

static bool is_free(const chart *self, const box *wanted) {
    if (wanted->x < left_px || wanted->x + wanted->width > width_px - 4 ||
        wanted->y < top_px - 10 || wanted->y + wanted->height > height_px - bottom_px) {
        return false;
    }
    for (int i = 0; i < self->taken; i++) {
        if (overlaps(&self->place[i], wanted)) {
            return false;
        }
    }
    return true;
}

static void take(chart *self, const box *place) {
    if (self->taken < MOST_PLACES) {
        self->place[self->taken++] = *place;
    }
}

/* Beside its point: right, left, then further and further above and below. */
static void put_label(chart *self, double x, double y, const char *text) {
    const double wide = letter_px * (double)strlen(text);
    box place = {.x = x + gap_px, .y = y - line_px / 2, .width = wide, .height = line_px};
    for (int i = 0; i < 24; i++) {
        const int lines = (i / 2 + 1) / 2 * ((i / 2) % 2 ? 1 : -1);
        const box next = {.x = i % 2 ? x - gap_px - wide : x + gap_px,
                          .y = y - line_px / 2 + lines * line_px,
                          .width = wide,
                          .height = line_px};
        if (is_free(self, &next)) {
            place = next;
            break;
        }
    }
    take(self, &place);
    crl_svg_text(self->out, "text", place.x, place.y + line_px - 2.5, text);
}

/* Axes from zero to a mark beyond the points. */
static void scale(chart *self, const crl_comparison_row *row, int rows) {
    for (int i = 0; i < rows; i++) {
        if (!row[i].refused) {
            self->most_memory = fmax(self->most_memory, row[i].peak_memory);
            self->most_bubble = fmax(self->most_bubble, row[i].bubble);
        }
    }
    const double memory_step = crl_svg_step(self->most_memory, TICKS);
    const double bubble_step = crl_svg_step(self->most_bubble, TICKS);
    self->most_memory = (floor(self->most_memory / memory_step) + 1) * memory_step;
    self->most_bubble = (floor(self->most_bubble / bubble_step) + 1) * bubble_step;
}

static void draw_axes(const chart *self) {
    const double floor_px = height_px - bottom_px;
    const double memory_step = crl_svg_step(self->most_memory, TICKS);
    const double bubble_step = crl_svg_step(self->most_bubble, TICKS);
    char text[32];
    for (int i = 0; i * memory_step <= self->most_memory * (1 + 1e-9) && i <= TICKS; i++) {
        const double x = x_of(self, i * memory_step);
        crl_svg_line(self->out, "line", x, top_px, x, floor_px);
        crl_svg_text(self->out, "middle", x, floor_px + 16, crl_svg_number(text, i * memory_step));
    }
    for (int i = 0; i * bubble_step <= self->most_bubble * (1 + 1e-9) && i <= TICKS; i++) {
        const double y = y_of(self, i * bubble_step);
        crl_svg_line(self->out, "line", left_px, y, width_px - right_px, y);
        crl_svg_text(self->out, "end", left_px - 8, y + 4,
                     crl_svg_number(text, 100 * i * bubble_step));
    }
    crl_svg_text(self->out, "middle", (left_px + width_px - right_px) / 2, floor_px + 36,
                 "peak memory of the fullest position");
    crl_svg_text(self->out, "text", 12, top_px - 8, "bubble, %");
}

/* Keeps labels off a piece of a curve. */
static void take_line(chart *self, double x, double y, double to_x, double to_y) {
    const int steps = (int)fmin(64, ceil(hypot(to_x - x, to_y - y) / 8)) + 1;
    for (int i = 0; i <= steps; i++) {
        const box place = {.x = x + (to_x - x) * i / steps - 2,
                           .y = y + (to_y - y) * i / steps - 2,
                           .width = 4,
                           .height = 4};
        take(self, &place);
    }
}

static bool is_inside(const chart *self, const crl_comparison_curve *curve, int point) {
    return curve->memory[point] <= self->most_memory && curve->bubble[point] <= self->most_bubble;
}

static void draw_curve(chart *self, const crl_comparison_curve *curve, int number) {
    char line[8], dot[8];
    snprintf(line, sizeof line, "c%d", number % COLOURS);
    snprintf(dot, sizeof dot, "d%d", number % COLOURS);
    for (int i = 0; i < curve->points; i++) {
        const double x = x_of(self, curve->memory[i]), y = y_of(self, curve->bubble[i]);
        if (!is_inside(self, curve, i)) {
            continue;
        }
        if (i > 0 && is_inside(self, curve, i - 1)) {
            const double from_x = x_of(self, curve->memory[i - 1]);
            const double from_y = y_of(self, curve->bubble[i - 1]);
            crl_svg_line(self->out, line, from_x, from_y, x, y);
            take_line(self, from_x, from_y, x, y);
        }
        crl_svg_disc(self->out, dot, x, y, 2.5);
    }
}

/* At the first point that is inside. */
static void label_curve(chart *self, const crl_comparison_curve *curve) {
    for (int i = 0; i < curve->points; i++) {
        if (is_inside(self, curve, i)) {
            char text[64];
            snprintf(text, sizeof text, "%.40s by memory limit", curve->label);
            put_label(self, x_of(self, curve->memory[i]), y_of(self, curve->bubble[i]), text);
            return;
        }
    }
}

static void draw_points(chart *self, const crl_comparison_row *row, int rows) {
    for (int i = 0; i < rows; i++) {
        if (!row[i].refused) {
            const double x = x_of(self, row[i].peak_memory), y = y_of(self, row[i].bubble);
            const box place = {.x = x - 4, .y = y - 4, .width = 8, .height = 8};
            crl_svg_disc(self->out, "dot", x, y, 4);
            take(self, &place);
        }
    }
    for (int i = 0; i < rows; i++) {
        if (!row[i].refused) {
            put_label(self, x_of(self, row[i].peak_memory), y_of(self, row[i].bubble),
                      row[i].label);
        }
    }
}

void crl_comparison_write_svg(const char *title, const crl_comparison_row *row, int rows,
                              const crl_comparison_curve *curve, int curves, FILE *out) {
    chart self = {.out = out};
    scale(&self, row, rows);
    crl_svg_begin(out, width_px, height_px, title, css);
    crl_svg_text(out, "head", 12, 22, title);
    draw_axes(&self);
    for (int i = 0; i < curves; i++) {
        draw_curve(&self, &curve[i], i);
    }
    draw_points(&self, row, rows);
    for (int i = 0; i < curves; i++) {
        label_curve(&self, &curve[i]);
    }
    crl_svg_end(out);
}
