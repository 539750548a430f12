/* SPDX-License-Identifier: Apache-2.0 */
/* The costs that simulations are asked with: the options of it, and what they make. */
#pragma once

#include "cli/cli_internal.h"
#include "engine/ir/simulate.h"

typedef struct crl_cli_costs {
    const char *costs, *memory;
    double output_bytes;
    double latency, bandwidth, between_latency, between_bandwidth, message;
    int64_t node_size;
    bool shared_links;
} crl_cli_costs;

#define CRL_CLI_COST_ROW(struct_type, field, name, value, help, type)                              \
    { name, value, help, &crl_option_##type, offsetof(struct_type, field), 0, 1e15, NULL }

/* Rows of options of a command whose struct has a crl_cli_costs called `field`. */
#define CRL_CLI_COST_ROWS(struct_type, field)                                                      \
    CRL_CLI_COST_ROW(struct_type, field.costs, "costs", "1,1,1",                                   \
                     "times of F, I and W (a B takes I + W), in any unit, or a file of them",      \
                     text),                                                                        \
        CRL_CLI_COST_ROW(struct_type, field.memory, "memory", "1,1",                               \
                         "memory that a micro-batch takes from F to B or I, and from I to W",      \
                         text),                                                                    \
        CRL_CLI_COST_ROW(struct_type, field.output_bytes, "output-bytes", "0",                     \
                         "bytes of a stage's output, for --bandwidth", double),                    \
        CRL_CLI_COST_ROW(struct_type, field.latency, "latency", "0",                               \
                         "time until a message arrives", double),                                  \
        CRL_CLI_COST_ROW(struct_type, field.bandwidth, "bandwidth", "0",                           \
                         "bytes per time of a link; 0: no limit", double),                         \
        CRL_CLI_COST_ROW(struct_type, field.node_size, "node-size", "0",                           \
                         "positions per node; 0: all on one", int),                                \
        CRL_CLI_COST_ROW(struct_type, field.between_latency, "node-latency", "0",                  \
                         "--latency between nodes", double),                                       \
        CRL_CLI_COST_ROW(struct_type, field.between_bandwidth, "node-bandwidth", "0",              \
                         "--bandwidth between nodes", double),                                     \
        CRL_CLI_COST_ROW(struct_type, field.message, "message-time", "0",                          \
                         "time that a message takes of its sender, and of its receiver", double),  \
    {                                                                                              \
        "shared-links", "false", "what a position sends leaves one after the other",               \
            &crl_option_bool, offsetof(struct_type, field.shared_links), 0, 0, NULL                \
    }

/* What --costs says of files. */
extern const char crl_cli_costs_more[];

/* Costs of `count` stages, in `arena`. INVALID: texts that are no numbers, a file that does not
 * have a row for each. */
CRL_NODISCARD crl_status crl_cli_stage_costs(crl_stage_cost **out, const crl_cli_costs *costs,
                                             int count, crl_arena *arena);
/* What a program of `positions` positions is simulated with: `stage`, which is lent, and the links
 * that the options tell. */
CRL_NODISCARD crl_status crl_cli_simulation_config(crl_simulation_config *out,
                                                   const crl_cli_costs *costs,
                                                   const crl_stage_cost *stage, int positions,
                                                   crl_arena *arena);
/* From the end of an action to its use on another position of its node. */
double crl_cli_message_s(const crl_cli_costs *costs);
