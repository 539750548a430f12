/* SPDX-License-Identifier: Apache-2.0 */
/*
 * From a found layout to a config: the values it gives the keys, the settings they make, and the
 * file. What the user wrote otherwise stays; comments do not.
 */
#include "cli/layout_search_internal.h"

#include <ctype.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "engine/base/file.h"
#include "engine/run/layout.h"

static crl_status add(crl_text_list *sets, crl_arena *arena, const char *text) {
    static const crl_option row = {.name = "set"};
    return crl_cli_option_repeated.parse(&row, text, arena, sets);
}

/* Items one after the other, with commas between them. */
typedef struct joined {
    const char *text;
    int items;
} joined;

static crl_status join(joined *list, crl_arena *arena, const char *item) {
    return crl_arena_format(arena, &list->text, "%s%s%s", list->text, list->items++ > 0 ? "," : "",
                            item);
}

static crl_status add_widths(crl_text_list *sets, crl_arena *arena, const crl_hybrid *layout) {
    char item[64];
    joined list = {"parallel.replicas=", 0};
    snprintf(item, sizeof item, "parallel.data=%d", layout->widths ? 1 : layout->pipelines);
    CRL_TRY(add(sets, arena, item));
    for (int p = 0; layout->widths && p < layout->positions; p++) {
        snprintf(item, sizeof item, "%d", layout->pipelines * layout->widths[p]);
        CRL_TRY(join(&list, arena, item));
    }
    return add(sets, arena, list.text);
}

static crl_status add_cuts(crl_text_list *sets, crl_arena *arena, const crl_found *found) {
    const crl_hybrid *layout = &found->layout;
    joined cuts = {"parallel.cuts=", 0}, modes = {"parallel.recompute=", 0};
    bool same = true;
    for (int s = 1; s < layout->stages; s++) {
        CRL_TRY(join(&cuts, arena, found->profile->unit[layout->first[s]].name));
        same = same && layout->recompute[s] == layout->recompute[0];
    }
    for (int s = 0; s < (same ? 1 : layout->stages); s++)
        CRL_TRY(join(&modes, arena, crl_recompute_name(layout->recompute[s])));
    CRL_TRY(
        add(sets, arena,
            layout->stages > 1 ? "parallel.partitioner=manual" : "parallel.partitioner=balance"));
    CRL_TRY(add(sets, arena, cuts.text));
    return add(sets, arena, modes.text);
}

crl_status crl_cli_search_sets(crl_text_list *sets, crl_arena *arena, const crl_found *found,
                               int64_t lanes) {
    const crl_hybrid *layout = &found->layout;
    char item[96];
    const struct {
        const char *key;
        long long value;
    } numbers[] = {{"parallel.pipeline", layout->positions},
                   {"parallel.virtual_stages", layout->stages / layout->positions},
                   {"parallel.group", layout->group},
                   {"train.micro_batch", found->profile->micro_batch},
                   {"numerics.lanes", lanes > 0 ? lanes : layout->lanes}};
    CRL_TRY(add(sets, arena, "parallel.layout=given"));
    for (size_t i = 0; i < sizeof numbers / sizeof numbers[0]; i++) {
        snprintf(item, sizeof item, "%s=%lld", numbers[i].key, numbers[i].value);
        CRL_TRY(add(sets, arena, item));
    }
    snprintf(item, sizeof item, "parallel.schedule=%s", layout->schedule->name);
    CRL_TRY(add(sets, arena, item));
    CRL_TRY(add_widths(sets, arena, layout));
    return add_cuts(sets, arena, found);
}

const char *crl_cli_found(char text[CRL_CLI_FOUND_BYTES], const crl_found *found) {
    const crl_hybrid *layout = &found->layout;
    int used = snprintf(text, CRL_CLI_FOUND_BYTES, "pipeline %d", layout->positions);
    if (!layout->widths)
        used += snprintf(text + used, (size_t)(CRL_CLI_FOUND_BYTES - used), " x data %d",
                         layout->pipelines);
    for (int p = 0; layout->widths && p < layout->positions && used < 128; p++)
        used += snprintf(text + used, (size_t)(CRL_CLI_FOUND_BYTES - used), "%s%d",
                         p == 0 ? " of replicas " : ",", layout->pipelines * layout->widths[p]);
    snprintf(text + used, (size_t)(CRL_CLI_FOUND_BYTES - used),
             ", %s%s, micro-batch %lld, %d lanes", layout->schedule->name,
             layout->stages > layout->positions ? " (virtual stages)" : "",
             (long long)found->profile->micro_batch, layout->lanes);
    return text;
}

/* What the rank with the most reserves. */
static crl_status most_bytes(double *out, const crl_layout *layout) {
    *out = 0;
    for (int p = 0; p < layout->mesh.pipeline; p++) {
        for (int r = 0; r < layout->widths[p]; r++) {
            crl_memory_report report = {0};
            CRL_TRY(crl_layout_memory(
                &report, layout,
                crl_mesh_rank(&layout->mesh, (crl_coordinates){.position = p, .replica = r})));
            *out = (double)report.total_bytes > *out ? (double)report.total_bytes : *out;
        }
    }
    return CRL_STATUS_OK;
}

/* `limit` 0: nobody asks. INFINITY: it does not come so far as to be reserved. */
static crl_status reservation(double *out, double limit, const crl_cli *cli, crl_cli_args *args,
                              const crl_settings *settings) {
    crl_layout *layout = NULL;
    *out = limit > 0 ? INFINITY : 0;
    if (limit == 0)
        return CRL_STATUS_OK;
    CRL_TRY(crl_cli_layout(&layout, cli, args, settings, NULL));
    const crl_status status = most_bytes(out, layout);
    crl_layout_destroy(layout);
    return status;
}

/* What the layout was chosen for decides its automatic schedules too. */
static crl_status add_costs(crl_text_list *sets, crl_arena *arena, const crl_cli_search *search) {
    const char *item = NULL;
    if (search->machine_path && search->machine_path[0]) {
        CRL_TRY(crl_arena_format(arena, &item, "parallel.machine=%s", search->machine_path));
        CRL_TRY(add(sets, arena, item));
    }
    if (search->profile_path && search->profile_path[0]) {
        CRL_TRY(crl_arena_format(arena, &item, "parallel.profile=%s", search->profile_path));
        CRL_TRY(add(sets, arena, item));
    }
    return CRL_STATUS_OK;
}

static crl_status too_much(double fewest, double limit) {
    char least[32], most[32];
    crl_units_bytes(most, limit);
    if (isinf(fewest))
        return CRL_FAIL(UNSUPPORTED, "plan: none of the layouts found fits in %s on a device",
                        most);
    return CRL_FAIL(UNSUPPORTED,
                    "plan: the layouts found reserve %s on a device or more, it has %s",
                    crl_units_bytes(least, fewest), most);
}

crl_status crl_cli_search_take(crl_settings **out, int *index, const crl_cli *cli,
                               crl_cli_args *args, const crl_text_list *sets,
                               const crl_cli_search *search) {
    const double limit = crl_cli_search_limit(search);
    double fewest = INFINITY;
    for (int i = 0; i < search->search->count; i++) {
        crl_text_list all = *sets;
        crl_settings *settings = NULL;
        double bytes = INFINITY;
        CRL_TRY(crl_cli_search_sets(&all, &args->arena, &search->search->found[i],
                                    search->settings->numerics.lanes));
        CRL_TRY(add_costs(&all, &args->arena, search));
        CRL_TRY(crl_cli_settings(&settings, cli, args, &all));
        const crl_status status = reservation(&bytes, limit, cli, args, settings);
        if (status == CRL_STATUS_OK && bytes <= limit) {
            *out = settings;
            if (index)
                *index = i;
            return CRL_STATUS_OK;
        }
        crl_settings_destroy(settings);
        if (status != CRL_STATUS_UNSUPPORTED) /* a partitioner's: it does not fit */
            CRL_TRY(status);
        fewest = bytes < fewest ? bytes : fewest;
    }
    return too_much(fewest, limit);
}

crl_status crl_cli_search_settle(crl_cli_search *search, crl_settings **taken, int *index,
                                 const crl_cli *cli, crl_cli_args *args,
                                 const crl_text_list *sets) {
    static const double shares[] = {1, 0.85, 0.7, 0.55, 0.4};
    crl_status status = CRL_STATUS_OK;
    crl_error first;
    for (size_t i = 0; i < sizeof shares / sizeof shares[0]; i++) {
        status = crl_cli_search_run(search, shares[i]);
        if (status == CRL_STATUS_OK)
            status = crl_cli_search_take(taken, index, cli, args, sets, search);
        if (status != CRL_STATUS_UNSUPPORTED)
            return status;
        if (i == 0)
            first = *crl_error_get();
    }
    crl_error_set(&first);
    return status;
}

static bool is_plain(const char *text) {
    static const char *const words[] = {"null", "Null", "NULL"};
    for (size_t i = 0; i < sizeof words / sizeof words[0]; i++)
        if (strcmp(text, words[i]) == 0)
            return false;
    for (const char *at = text; *at; at++)
        if (!isalnum((unsigned char)*at) && !strchr("_./+", *at) && (*at != '-' || at == text))
            return false;
    return *text != '\0';
}

static void write_value(FILE *out, const char *text) {
    if (is_plain(text)) {
        fputs(text, out);
        return;
    }
    fputc('"', out);
    for (const char *at = text; *at; at++) {
        if (*at == '"' || *at == '\\')
            fprintf(out, "\\%c", *at);
        else if ((unsigned char)*at < 0x20)
            fprintf(out, "\\x%02x", (unsigned)*at);
        else
            fputc(*at, out);
    }
    fputc('"', out);
}

/* All keys of the section that the origin `from` begins, unless an earlier one has. Of `parallel`
 * what is empty is left out: that is what those keys have anyway. */
static void write_section(FILE *out, const crl_config_source *source, int from) {
    const char *dot = strchr(source->origin[from].key, '.');
    const size_t length = (size_t)(dot + 1 - source->origin[from].key);
    for (int i = 0; i < from; i++)
        if (strncmp(source->origin[i].key, source->origin[from].key, length) == 0)
            return;
    fprintf(out, "%.*s:\n", (int)length - 1, source->origin[from].key);
    for (int i = from; i < source->origins; i++) {
        const crl_config_origin *origin = &source->origin[i];
        const bool empty = !*origin->text && strncmp(origin->key, "parallel.", 9) == 0;
        if (strncmp(origin->key, source->origin[from].key, length) == 0 && !empty) {
            fprintf(out, "  %s: ", origin->key + length);
            write_value(out, origin->text);
            fputc('\n', out);
        }
    }
}

crl_status crl_cli_write_config(const crl_settings *settings, const char *path) {
    char *text = NULL;
    size_t bytes = 0;
    FILE *stream = open_memstream(&text, &bytes);
    if (!stream)
        return CRL_FAIL(NOMEM, "%s: no memory to write it", path);
    for (int i = 0; i < settings->source.origins; i++)
        write_section(stream, &settings->source, i);
    const bool failed = fclose(stream) != 0;
    const crl_status status = failed ? CRL_FAIL(NOMEM, "%s: no memory to write it", path)
                                     : crl_file_write_atomic(path, text, bytes);
    free(text);
    return status;
}
