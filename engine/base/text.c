/* SPDX-License-Identifier: Apache-2.0 */
/* Text helpers. Edit distance with swaps of neighbours (optimal string alignment). */
#include "engine/base/text_internal.h"

#include <ctype.h>
#include <string.h>

enum { LONGEST_NAME = 63 };

const char *crl_text_quote(char *out, size_t out_bytes, const char *text) {
    static const char dots[] = "...";
    size_t length = strnlen(text, out_bytes);
    const char *tail = "";
    if (length >= out_bytes) {
        length = out_bytes - sizeof dots;
        tail = dots;
        /* Never half of a UTF-8 character. */
        while (length > 0 && ((unsigned char)text[length] & 0xC0) == 0x80) {
            --length;
        }
    }
    for (size_t i = 0; i < length; ++i) {
        const unsigned char c = (unsigned char)text[i];
        out[i] = c < 0x20 || c == 0x7F ? '?' : text[i];
    }
    memcpy(out + length, tail, strlen(tail) + 1);
    return out;
}

static int fold(char c) {
    return c == '-' ? '_' : tolower((unsigned char)c);
}

static int least(int a, int b) {
    return a < b ? a : b;
}

int crl_name_distance(const char *a, const char *b) {
    const size_t rows = strnlen(a, LONGEST_NAME + 1), columns = strnlen(b, LONGEST_NAME + 1);
    if (rows > LONGEST_NAME || columns > LONGEST_NAME) {
        return -1;
    }
    int row[3][LONGEST_NAME + 2]; /* of the table: i - 2, i - 1 and i, in turn */
    for (size_t j = 0; j <= columns; ++j) {
        row[0][j] = (int)j;
    }
    for (size_t i = 1; i <= rows; ++i) {
        int *now = row[i % 3];
        const int *before = row[(i + 2) % 3], *earlier = row[(i + 1) % 3];
        now[0] = (int)i;
        for (size_t j = 1; j <= columns; ++j) {
            const int differs = fold(a[i - 1]) != fold(b[j - 1]);
            now[j] = least(before[j - 1] + differs, least(before[j], now[j - 1]) + 1);
            if (i > 1 && j > 1 && fold(a[i - 1]) == fold(b[j - 2]) &&
                fold(a[i - 2]) == fold(b[j - 1])) {
                now[j] = least(now[j], earlier[j - 2] + 1);
            }
        }
    }
    const int distance = row[rows % 3][columns];
    return distance <= 1 + (int)rows / 4 && distance < (int)rows ? distance : -1;
}
