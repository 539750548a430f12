/* SPDX-License-Identifier: Apache-2.0 */
/* Searching for a layout of a config: what `carole plan` prints and `parallel: auto` takes. */
#pragma once

#include "cli/cli_internal.h"
#include "engine/run/machine.h"
#include "engine/run/profile_file.h"
#include "partition/search.h"

typedef struct crl_cli_search_config {
    const char *machine; /* file; "" or NULL: the nominal one, as large as that takes */
    const char *profile; /* file; "" or NULL: counted for the machine */
    int devices;         /* 0: all of the machine, or as many ranks as the config has */
    bool pinned;         /* keys of `parallel` that the config gives keep their values, and so does
                            train.micro_batch */
    crl_text_list micro_batches; /* sizes to try; empty: around the config's */
    const char *schedule;        /* only this one; "" or NULL: all */
    int64_t positions;           /* exactly so many; 0: any */
} crl_cli_search_config;

/* What a search was made of and what it found. Zero-initialise. */
typedef struct crl_cli_search {
    crl_machine_file machine_file;
    crl_machine machine;
    crl_profile_list profiles;
    const crl_settings *settings; /* lent */
    const char *machine_path, *profile_path; /* lent; may be NULL */
    int devices;
    crl_search_request request; /* of the above */
    crl_search *search;
} crl_cli_search;

/* Reads what a search needs. A wrong file or option is a usage error. */
CRL_NODISCARD crl_status crl_cli_search_init(crl_cli_search *out, const crl_cli *cli,
                                             crl_cli_args *args, const crl_settings *settings,
                                             const crl_cli_search_config *config);
/* What a device has: the settings' memory limit, or the machine's memory; 0: no limit. */
double crl_cli_search_limit(const crl_cli_search *search);
/* Searches within that share of the limit. UNSUPPORTED: nothing fits. */
CRL_NODISCARD crl_status crl_cli_search_run(crl_cli_search *search, double share);
/* One that is all zero is fine. */
void crl_cli_search_fini(crl_cli_search *search);

/* Adds to `sets` what a found layout says of the config, "section.key=value" each. `lanes` are
 * those the config gives; 0: none. NOMEM. */
CRL_NODISCARD crl_status crl_cli_search_sets(crl_text_list *sets, crl_arena *arena,
                                             const crl_found *found, int64_t lanes);
/* The first found layout whose reservation keeps the memory limit of the settings or of the
 * machine, to the byte: its settings, `sets` before those it makes. `index` may be NULL. */
CRL_NODISCARD crl_status crl_cli_search_take(crl_settings **out, int *index, const crl_cli *cli,
                                             crl_cli_args *args, const crl_text_list *sets,
                                             const crl_cli_search *search);
/* Searches until a layout can be taken: within smaller shares of the limit where what is reserved
 * turns out to be more than predicted. */
CRL_NODISCARD crl_status crl_cli_search_settle(crl_cli_search *search, crl_settings **taken,
                                               int *index, const crl_cli *cli, crl_cli_args *args,
                                               const crl_text_list *sets);
/* "pipeline 2 x data 2, zb-h1, micro-batch 4, 4 lanes" */
enum { CRL_CLI_FOUND_BYTES = 256 };
const char *crl_cli_found(char text[CRL_CLI_FOUND_BYTES], const crl_found *found);
/* Writes the config that the settings came from, with everything that overrode it, to a file that
 * reads back to the same settings. IO, NOMEM. */
CRL_NODISCARD crl_status crl_cli_write_config(const crl_settings *settings, const char *path);

/* The tables of `carole plan` for a search. */
void crl_cli_search_print(const crl_cli_search *search);
/* The predicted step of a configured layout on the nominal machine. `node_s` as for
 * crl_layout_create. */
CRL_NODISCARD crl_status crl_cli_print_prediction(const crl_layout *layout, const double *node_s);
