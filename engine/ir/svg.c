/* SPDX-License-Identifier: Apache-2.0 */
/* SVG as text. Refuses to know what a picture shows. */
#include "engine/ir/svg.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* " x="12.5"": printf would write the locale's comma. */
static void put_length(FILE *out, const char *name, double value) {
    const long long hundredths = llround(fmin(fmax(value, -1e9), 1e9) * 100);
    const long long whole = llabs(hundredths) / 100, part = llabs(hundredths) % 100;
    fprintf(out, " %s=\"%s%lld", name, hundredths < 0 ? "-" : "", whole);
    if (part % 10) {
        fprintf(out, ".%02lld", part);
    } else if (part) {
        fprintf(out, ".%lld", part / 10);
    }
    fputc('"', out);
}

static void put_text(FILE *out, const char *text) {
    static const char reserved[] = "&<>\"";
    static const char *const escaped[] = {"&amp;", "&lt;", "&gt;", "&quot;"};
    for (; *text; text++) {
        const char *found = strchr(reserved, *text);
        if (found) {
            fputs(escaped[found - reserved], out);
        } else {
            fputc(*text >= 0x20 && *text < 0x7f ? *text : '?', out);
        }
    }
}

void crl_svg_begin(FILE *out, double width, double height, const char *title, const char *css) {
    fputs("<svg xmlns=\"http://www.w3.org/2000/svg\"", out);
    put_length(out, "width", width);
    put_length(out, "height", height);
    fprintf(out, " viewBox=\"0 0 %lld %lld\">\n<title>", llround(width), llround(height));
    put_text(out, title);
    fputs("</title>\n<style>\n"
          "text{font:11px -apple-system,\"Segoe UI\",Helvetica,Arial,sans-serif;fill:#1f2328}\n"
          ".head{font-size:14px;font-weight:600}\n"
          ".middle{text-anchor:middle}\n"
          ".end{text-anchor:end}\n"
          ".line{stroke:#d1d9e0;stroke-width:1}\n"
          ".page{fill:#fff;stroke:#d1d9e0}\n",
          out);
    fputs(css ? css : "", out);
    fputs("</style>\n", out);
    crl_svg_rect(out, "page", 0.5, 0.5, width - 1, height - 1);
}

void crl_svg_end(FILE *out) {
    fputs("</svg>\n", out);
}

void crl_svg_rect(FILE *out, const char *style, double x, double y, double width, double height) {
    fprintf(out, "<rect class=\"%s\"", style);
    put_length(out, "x", x);
    put_length(out, "y", y);
    put_length(out, "width", width);
    put_length(out, "height", height);
    fputs("/>\n", out);
}

void crl_svg_line(FILE *out, const char *style, double x, double y, double to_x, double to_y) {
    fprintf(out, "<line class=\"%s\"", style);
    put_length(out, "x1", x);
    put_length(out, "y1", y);
    put_length(out, "x2", to_x);
    put_length(out, "y2", to_y);
    fputs("/>\n", out);
}

void crl_svg_disc(FILE *out, const char *style, double x, double y, double radius) {
    fprintf(out, "<circle class=\"%s\"", style);
    put_length(out, "cx", x);
    put_length(out, "cy", y);
    put_length(out, "r", radius);
    fputs("/>\n", out);
}

void crl_svg_text(FILE *out, const char *style, double x, double y, const char *text) {
    fprintf(out, "<text class=\"%s\"", style);
    put_length(out, "x", x);
    put_length(out, "y", y);
    fputc('>', out);
    put_text(out, text);
    fputs("</text>\n", out);
}

double crl_svg_step(double span, int marks) {
    if (!isfinite(span) || span <= 0) {
        return 1;
    }
    const double least = span / marks, power = pow(10, floor(log10(least)));
    const double part = least / power;
    return power * (part <= 1 ? 1 : part <= 2 ? 2 : part <= 5 ? 5 : 10);
}

const char *crl_svg_number(char text[32], double value) {
    snprintf(text, 32, fabs(value) < 1e7 ? "%.10g" : "%.4g", value);
    char *comma = strchr(text, ',');
    if (comma) {
        *comma = '.';
    }
    return text;
}
