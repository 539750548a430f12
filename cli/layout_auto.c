/* SPDX-License-Identifier: Apache-2.0 */
/*
 * `parallel: auto`: the layout of a job is searched for when it starts, by costs that are counted
 * or from a file, the same on every rank: all choose the same without a word between them. The
 * micro-batch size stays as it is, because it decides the bits; so do lanes that the config gives.
 */
#include "cli/layout_search_internal.h"

#include "engine/base/thread.h"

static crl_status choose(crl_settings **inout, char *said, const crl_cli *cli, crl_cli_args *args,
                         const crl_text_list *sets, int ranks) {
    const crl_settings *settings = *inout;
    crl_settings *chosen = NULL;
    char layout[CRL_CLI_FOUND_BYTES];
    const crl_cli_search_config config = {.machine = settings->parallel.machine,
                                          .profile = settings->parallel.profile,
                                          .devices = ranks,
                                          .pinned = true};
    crl_cli_search search = {0};
    crl_status status = CRL_STATUS_OK;
    int index = 0;
    CRL_TRY_OUT(crl_cli_search_init(&search, cli, args, settings, &config));
    CRL_TRY_OUT(crl_cli_search_settle(&search, &chosen, &index, cli, args, sets));
    snprintf(said, CRL_CLI_CHOICE_BYTES, "layout auto: %s for %d ranks",
             crl_cli_found(layout, &search.search->found[index]), ranks);
out:
    crl_cli_search_fini(&search); /* before the settings that it looks at */
    if (status == CRL_STATUS_OK) {
        crl_settings_destroy(*inout);
        *inout = chosen;
    }
    return status;
}

crl_status crl_cli_choose_layout(crl_settings **inout, char said[CRL_CLI_CHOICE_BYTES],
                                 const crl_cli *cli, crl_cli_args *args, const crl_text_list *sets,
                                 int64_t ranks) {
    said[0] = '\0';
    if ((*inout)->parallel.layout != CRL_LAYOUT_AUTO)
        return CRL_STATUS_OK;
    const bool fixed = ranks > 0 || cli->ranks > 1;
    int number = ranks > 0 ? (int)ranks : fixed ? cli->ranks : crl_cpu_count();
    crl_status status = choose(inout, said, cli, args, sets, number);
    /* Nobody asked for all cores: fewer will do where a step is small. */
    while (status == CRL_STATUS_UNSUPPORTED && !fixed && number > 1)
        status = choose(inout, said, cli, args, sets, --number);
    return status;
}
