/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The user's list of modes: `full` | `none, selective` (one per stage) | `selective, h0=full`.
 * Refuses names that are neither a node's nor the beginning of some.
 */
#include <stdio.h>
#include <string.h>

#include "engine/base/alloc.h"
#include "engine/ir/recompute.h"

enum { NAME_BYTES = 128 };

static const char *const mode_names[CRL_RECOMPUTES] = {"none", "selective", "full"};

const char *crl_recompute_name(int mode) {
    return mode_names[mode];
}

static crl_status parse_mode(unsigned char *out, const char *text) {
    for (int m = 0; m < CRL_RECOMPUTES; m++) {
        if (strcmp(text, mode_names[m]) == 0) {
            *out = (unsigned char)m;
            return CRL_STATUS_OK;
        }
    }
    const char *near = crl_nearest_name(text, mode_names, CRL_RECOMPUTES, sizeof mode_names[0]);
    return near ? CRL_FAIL(INVALID,
                           "unknown mode '%s', did you mean '%s'? (choices: none, selective, full)",
                           text, near)
                : CRL_FAIL(INVALID, "unknown mode '%s' (choices: none, selective, full)", text);
}

/* Does `name` begin with the words of `prefix`? */
static bool lies_under(const char *name, const char *prefix, size_t length) {
    return strncmp(name, prefix, length) == 0 && name[length] == '.';
}

/* The nearest name of a node or a block; `scratch` holds what a block's is. */
static crl_status unknown_name(const crl_graph *graph, const char *name) {
    crl_status status = CRL_STATUS_OK;
    crl_arena scratch = {NULL};
    const char **known = NULL;
    const char *near = NULL;
    CRL_TRY_OUT(crl_arena_alloc(&scratch, &known, 2 * (size_t)graph->nodes, sizeof *known));
    for (int n = 0; n < graph->nodes; n++) {
        const char *node = graph->node[n].name;
        known[2 * n] = node;
        CRL_TRY_OUT(
            crl_arena_format(&scratch, &known[2 * n + 1], "%.*s", (int)strcspn(node, "."), node));
    }
    near = crl_nearest_name(name, known, 2 * (size_t)graph->nodes, sizeof *known);
    status = near ? CRL_FAIL(INVALID, "no layer or block '%s', did you mean '%s'?", name, near)
                  : CRL_FAIL(INVALID, "no layer or block '%s'", name);
out:
    crl_arena_fini(&scratch);
    return status;
}

/* `item` is "name=mode"; `equals` points into it. */
static crl_status set_named(unsigned char *mode, const crl_graph *graph, const char *item,
                            const char *equals) {
    char name[NAME_BYTES];
    const size_t length = (size_t)(equals - item);
    unsigned char given = CRL_RECOMPUTE_NONE;
    bool found = false;
    snprintf(name, sizeof name, "%.*s", (int)length, item);
    CRL_TRY(parse_mode(&given, equals + 1));
    const int node = crl_graph_find(graph, name);
    if (node >= 0) {
        mode[node] = given;
        return CRL_STATUS_OK;
    }
    for (int n = 0; n < graph->nodes; n++) {
        if (lies_under(graph->node[n].name, item, length)) {
            mode[n] = given;
            found = true;
        }
    }
    return found ? CRL_STATUS_OK : unknown_name(graph, name);
}

/* How many items come before the first "name=mode"; those after it must be of that kind too. */
static crl_status count_plain(int *out, const crl_text_list *list) {
    *out = 0;
    for (int i = 0; i < list->count; i++) {
        const bool plain = !strchr(list->item[i], '=');
        if (plain && *out < i) {
            return CRL_FAIL(INVALID, "'%s' after '%s', expected modes before names", list->item[i],
                            list->item[i - 1]);
        }
        *out += plain;
    }
    return CRL_STATUS_OK;
}

crl_status crl_recompute_modes(unsigned char *out_mode, const crl_graph *graph, int stages,
                               const int *first_node, const crl_text_list *list) {
    int plain = 0;
    memset(out_mode, CRL_RECOMPUTE_NONE, (size_t)graph->nodes);
    CRL_TRY(count_plain(&plain, list));
    if (plain > 1 && plain != stages) {
        return CRL_FAIL(INVALID, "%d modes, expected 1 or one for each of %d stage%s", plain,
                        stages, stages == 1 ? "" : "s");
    }
    for (int s = 0; s < stages && plain > 0; s++) {
        const int last = s + 1 < stages ? first_node[s + 1] : graph->nodes;
        unsigned char given = CRL_RECOMPUTE_NONE;
        CRL_TRY(parse_mode(&given, list->item[plain > 1 ? s : 0]));
        memset(out_mode + first_node[s], given, (size_t)(last - first_node[s]));
    }
    for (int i = plain; i < list->count; i++) {
        CRL_TRY(set_named(out_mode, graph, list->item[i], strrchr(list->item[i], '=')));
    }
    return CRL_STATUS_OK;
}
