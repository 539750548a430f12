/* SPDX-License-Identifier: Apache-2.0 */
/* `--micro-batches`: sizes to look at, and what a model costs with micro-batches of one. */
#include "cli/sizes_internal.h"

#include <stdlib.h>

#include "engine/run/counted.h"
#include "engine/run/layout.h"

static int ascending(const void *left, const void *right) {
    const int64_t a = *(const int64_t *)left, b = *(const int64_t *)right;
    return (a > b) - (a < b);
}

void crl_cli_sizes_sort(crl_cli_sizes *sizes) {
    qsort(sizes->item, (size_t)sizes->count, sizeof sizes->item[0], ascending);
}

crl_status crl_cli_sizes_take(crl_cli_sizes *out, const crl_text_list *list) {
    const crl_option row = {.name = "size", .min = 1, .max = 1e9};
    *out = (crl_cli_sizes){0};
    if (list->count > CRL_CLI_MOST_SIZES)
        return CRL_FAIL(INVALID, "--micro-batches: %d sizes, expected at most %d", list->count,
                        CRL_CLI_MOST_SIZES);
    for (int i = 0; i < list->count; i++) {
        if (crl_option_int.parse(&row, list->item[i], NULL, &out->item[i]))
            return CRL_FAIL(INVALID, "--micro-batches: size '%.40s', expected integers from 1",
                            list->item[i]);
        out->count++;
    }
    crl_cli_sizes_sort(out);
    for (int i = 1; i < out->count; i++)
        if (out->item[i] == out->item[i - 1])
            return CRL_FAIL(INVALID, "--micro-batches: %lld is there twice",
                            (long long)out->item[i]);
    return CRL_STATUS_OK;
}

crl_status crl_cli_count_profile(crl_profile **out, const crl_cli *cli,
                                 const crl_settings *settings, const crl_machine *machine,
                                 int64_t size) {
    const char *names[CRL_OPTIMIZER_MAX_STATES];
    const int states = settings->optimizer_kind->states(settings->optimizer_options, names);
    crl_graph *graph = NULL;
    CRL_TRY(crl_layout_graph(&graph, settings, cli->registries, size));
    const crl_status status = crl_profile_counted(out, graph, machine, NULL, states);
    crl_graph_destroy(graph);
    return status;
}
