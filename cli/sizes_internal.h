/* SPDX-License-Identifier: Apache-2.0 */
/* Sizes of micro-batches that commands are given, and the costs counted for them. */
#pragma once

#include "cli/cli_internal.h"
#include "engine/ir/machine.h"
#include "engine/ir/profile.h"

#ifdef __cplusplus
extern "C" {
#endif

enum { CRL_CLI_MOST_SIZES = 64 };

typedef struct crl_cli_sizes {
    int count;
    int64_t item[CRL_CLI_MOST_SIZES]; /* samples, ascending, each once */
} crl_cli_sizes;

/* The value of `--micro-batches`; none when the list is empty. INVALID: no sizes, too many, one
 * twice. */
CRL_NODISCARD crl_status crl_cli_sizes_take(crl_cli_sizes *out, const crl_text_list *list);
/* Makes them ascend. */
void crl_cli_sizes_sort(crl_cli_sizes *sizes);
/* The profile of the settings' model counted for micro-batches of `size`, owned by the caller.
 * INVALID, NOMEM. */
CRL_NODISCARD crl_status crl_cli_count_profile(crl_profile **out, const crl_cli *cli,
                                               const crl_settings *settings,
                                               const crl_machine *machine, int64_t size);

#ifdef __cplusplus
}
#endif
