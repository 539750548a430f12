/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Costs of stages from the words of a command, or from a file of numbers:
 *
 *     # forward, input gradient, weight gradient, kept, held, output bytes
 *     18522,18086,9337,1,0.5,0
 *
 * a row per stage; the last three may be left out, all or the last one, and come from the options
 * then. Refuses units: times and bytes are the user's.
 */
#include "cli/costs_internal.h"

#include <string.h>

#include "engine/base/alloc.h"
#include "engine/base/file.h"

enum { TIMES = 3, MEMORIES = 2, FIELDS = 6 };
static const size_t file_limit_bytes = (size_t)16 << 20;

const char crl_cli_costs_more[] =
    "A file of costs is CSV with one row per stage: forward, input gradient, weight gradient, then "
    "if you like memory kept, memory held, output bytes. Lines that begin with # are ignored.";

/* Numbers between commas. `what` names their place: "--costs", "file:3". */
static crl_status read_numbers(double *out, int most, int *count, const char *what,
                               const char *text, crl_arena *arena) {
    static const crl_option plain = {.name = "number", .min = 0, .max = 1e15};
    *count = 0;
    for (const char *at = text; at;) {
        const char *end = strchrnul(at, ',');
        const char *word = NULL;
        while (*at == ' ' || *at == '\t')
            at++;
        size_t length = end > at ? (size_t)(end - at) : 0;
        while (length > 0 && strchr(" \t\r", at[length - 1]))
            length--;
        if (*count == most)
            return CRL_FAIL(INVALID, "%s: more than %d numbers", what, most);
        CRL_TRY(crl_arena_format(arena, &word, "%.*s", (int)length, at));
        if (crl_option_double.parse(&plain, word, arena, &out[*count]) != CRL_STATUS_OK) {
            char why[256];
            snprintf(why, sizeof why, "%.255s", crl_error_message());
            return CRL_FAIL(INVALID, "%s: %s", what, why);
        }
        (*count)++;
        at = *end ? end + 1 : NULL;
    }
    return CRL_STATUS_OK;
}

static crl_status read_exactly(double *out, int expected, const char *what, const char *text,
                               crl_arena *arena) {
    int count = 0;
    CRL_TRY(read_numbers(out, expected, &count, what, text, arena));
    if (count < expected)
        return CRL_FAIL(INVALID, "%s: %d numbers, expected %d", what, count, expected);
    return CRL_STATUS_OK;
}

static crl_stage_cost cost_of(const double field[FIELDS]) {
    return (crl_stage_cost){.forward_s = field[0],
                            .input_s = field[1],
                            .weight_s = field[2],
                            .kept_bytes = field[3],
                            .held_bytes = field[4],
                            .output_bytes = field[5]};
}

static crl_status read_row(crl_stage_cost *out, const double common[FIELDS], const char *where,
                           const char *line, crl_arena *arena) {
    double field[FIELDS];
    int count = 0;
    memcpy(field, common, sizeof field);
    CRL_TRY(read_numbers(field, FIELDS, &count, where, line, arena));
    if (count < TIMES || count == TIMES + 1)
        return CRL_FAIL(INVALID, "%s: %d numbers, expected 3, 5 or 6", where, count);
    *out = cost_of(field);
    return CRL_STATUS_OK;
}

/* Lines of `text`, which is cut up. */
static crl_status read_rows(crl_stage_cost *out, int stages, const double common[FIELDS],
                            const char *path, char *text, crl_arena *arena) {
    int stage = 0, number = 0;
    for (char *line = text; line;) {
        char *newline = strchr(line, '\n');
        if (newline)
            *newline = '\0';
        number++;
        const char *begin = line + strspn(line, " \t\r");
        if (*begin && *begin != '#') {
            const char *where = NULL;
            CRL_TRY(crl_arena_format(arena, &where, "%s:%d", path, number));
            if (stage == stages)
                return CRL_FAIL(INVALID, "%s: one row too many, expected %d stages", where, stages);
            CRL_TRY(read_row(&out[stage++], common, where, begin, arena));
        }
        line = newline ? newline + 1 : NULL;
    }
    if (stage < stages)
        return CRL_FAIL(INVALID, "%s: %d rows, expected one for each of %d stages", path, stage,
                        stages);
    return CRL_STATUS_OK;
}

static crl_status read_file(crl_stage_cost *out, int stages, const double common[FIELDS],
                            const char *path, crl_arena *arena) {
    char *text = NULL;
    size_t bytes = 0;
    const crl_status found = crl_file_read(&text, &bytes, path, file_limit_bytes);
    if (found == CRL_STATUS_NOT_FOUND)
        return CRL_FAIL(INVALID, "--costs: %s: no such file, nor three numbers", path);
    CRL_TRY(found);
    const crl_status status = read_rows(out, stages, common, path, text, arena);
    crl_free(text);
    return status;
}

static bool is_numbers(const char *text) {
    return text[strspn(text, "0123456789.,eE+- \t")] == '\0';
}

crl_status crl_cli_stage_costs(crl_stage_cost **out, const crl_cli_costs *costs, int count,
                               crl_arena *arena) {
    double common[FIELDS] = {0};
    crl_stage_cost *stage = NULL;
    CRL_TRY(crl_arena_alloc(arena, &stage, (size_t)count, sizeof *stage));
    CRL_TRY(read_exactly(common + TIMES, MEMORIES, "--memory", costs->memory, arena));
    common[TIMES + MEMORIES] = costs->output_bytes;
    if (is_numbers(costs->costs)) {
        CRL_TRY(read_exactly(common, TIMES, "--costs", costs->costs, arena));
        for (int s = 0; s < count; s++)
            stage[s] = cost_of(common);
    } else {
        CRL_TRY(read_file(stage, count, common, costs->costs, arena));
    }
    *out = stage;
    return CRL_STATUS_OK;
}

double crl_cli_message_s(const crl_cli_costs *costs) {
    return costs->latency + 2 * costs->message +
           (costs->bandwidth > 0 ? costs->output_bytes / costs->bandwidth : 0);
}

crl_status crl_cli_simulation_config(crl_simulation_config *out, const crl_cli_costs *costs,
                                     const crl_stage_cost *stage, int positions, crl_arena *arena) {
    int *node = NULL;
    if (costs->node_size > 0) {
        CRL_TRY(crl_arena_alloc(arena, &node, (size_t)positions, sizeof *node));
        for (int p = 0; p < positions; p++)
            node[p] = (int)(p / costs->node_size);
    }
    *out = (crl_simulation_config){
        .stage = stage,
        .link = {.latency_s = costs->latency, .bytes_per_s = costs->bandwidth},
        .between = {.latency_s = costs->between_latency, .bytes_per_s = costs->between_bandwidth},
        .node = node,
        .message_s = costs->message,
        .shared_links = costs->shared_links};
    return CRL_STATUS_OK;
}
