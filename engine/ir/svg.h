/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The few shapes that the pictures of this project are made of, as SVG 1.1. Lengths are pixels,
 * written with two decimals and a dot, whatever the locale. `style`: a class of the style sheet.
 */
#pragma once

#include <stdio.h>

#include "engine/base/status.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Opens the picture: its own white page with a hairline round it, readable on any background, its
 * title as text, and the classes that all share: line (hairline), text, middle and end (text by its
 * anchor), head (title). `css`: rules of the caller; may be NULL. */
void crl_svg_begin(FILE *out, double width, double height, const char *title, const char *css);
/* Closes it. */
void crl_svg_end(FILE *out);
/* A filled rectangle. */
void crl_svg_rect(FILE *out, const char *style, double x, double y, double width, double height);
/* A line from (x, y) to (to_x, to_y). */
void crl_svg_line(FILE *out, const char *style, double x, double y, double to_x, double to_y);
/* A disc. */
void crl_svg_disc(FILE *out, const char *style, double x, double y, double radius);
/* A line of text; what XML reserves is escaped, what is not printable ASCII becomes '?'. */
void crl_svg_text(FILE *out, const char *style, double x, double y, const char *text);
/* The distance of axis marks: 1, 2 or 5 times a power of ten, at most `marks` of them in `span`. */
double crl_svg_step(double span, int marks);
/* A number as an axis or a title shows it: "0.25", "1200", "3e+07". */
const char *crl_svg_number(char text[32], double value);

#ifdef __cplusplus
}
#endif
