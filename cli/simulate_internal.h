/* SPDX-License-Identifier: Apache-2.0 */
/* The parts of `carole simulate`. */
#pragma once

#include "engine/base/arena.h"
#include "engine/ir/timeline.h"

/* On stdout. `first_row`: (positions + 1) of a program that was dealt out to replicas; NULL: of one
 * that was not. `path`: also lists the critical path. */
void crl_cli_print_simulation(const crl_timeline *line, const int *first_row, bool path);

/* Inserts a message of `cost[s].output_bytes`, in whole bytes, from every stage to the next and the
 * gradient back, at most `window` of a stage and direction under way. INVALID: a program that the
 * checker refuses; NOMEM. */
CRL_NODISCARD crl_status crl_cli_add_messages(crl_program *program, const crl_stage_cost *cost,
                                              int window, crl_arena *arena);
