/* SPDX-License-Identifier: Apache-2.0 */
/* The parts of `carole simulate`. */
#pragma once

#include "engine/ir/timeline.h"

/* On stdout. `first_row`: (positions + 1) of a program that was dealt out to replicas; NULL: of one
 * that was not. `path`: also lists the critical path. */
void crl_cli_print_simulation(const crl_timeline *line, const int *first_row, bool path);
