/* SPDX-License-Identifier: Apache-2.0 */
/* The list of commands, made from commands.def. */
#include "cli/cli_internal.h"

#define CRL_COMMAND(x) extern const crl_command crl_command_##x;
#include "cli/commands.def"
#undef CRL_COMMAND

const void *const crl_commands[] = {
#define CRL_COMMAND(x) &crl_command_##x,
#include "cli/commands.def"
    NULL};
