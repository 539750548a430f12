/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Costs counted from arithmetic and traffic: what the nodes of a graph would take on a machine, and
 * the profile of a graph. Pure; nothing runs.
 */
#pragma once

#include "engine/ir/graph.h"
#include "engine/ir/machine.h"
#include "engine/ir/profile.h"

#ifdef __cplusplus
extern "C" {
#endif

/* One core of a current server CPU (docs/benchmarks.md): what is assumed where nothing is said.
 * Cuts depend on the ratios alone. Lends a constant. */
const crl_machine *crl_counted_nominal(void);

/* Seconds of one phase of a node: the slower of arithmetic and traffic, and the launch. 0 where the
 * phase does nothing. */
double crl_counted_phase_s(const crl_layer_cost *cost, int phase, const crl_machine *machine);
/* The same for all nodes, as crl_layout_create takes them. (nodes × CRL_PHASES) */
void crl_counted_times(double *node_s, const crl_graph *graph, const crl_machine *machine);

/*
 * The profile of a graph: a unit per node that is no input of the dataset, in order. `node_s`
 * (nodes × CRL_PHASES) gives their times, NULL: counted. `states`: arrays of optimizer state per
 * parameter. A tied parameter counts with every node that uses it, since each may be on a stage of
 * its own. NOMEM.
 */
CRL_NODISCARD crl_status crl_profile_counted(crl_profile **out, const crl_graph *graph,
                                             const crl_machine *machine, const double *node_s,
                                             int states);

#ifdef __cplusplus
}
#endif
