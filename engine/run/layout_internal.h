/* SPDX-License-Identifier: Apache-2.0 */
/* What the layout's files share: the whole (layout.c), cuts (layout_cuts.c), costs
 * (layout_costs.c), schedules (layout_program.c), a user's own (layout_own.c). */
#pragma once

#include "engine/run/layout.h"

/* Sets schedule or own_schedule, and the number of stages. */
crl_status crl_layout_find_schedule(crl_layout *layout, const crl_registries *registries);
/* Whether own_schedule fits the layout; needs no plan. */
crl_status crl_layout_check_own(const crl_layout *layout);
/* Whether `program`, own_schedule dealt out to a pipeline, makes weight gradients in an order that
 * lanes can be summed in. */
crl_status crl_layout_check_sums(const crl_layout *layout, const crl_program *program,
                                 int pipeline);
/* The position of every stage. (S) */
crl_status crl_layout_positions(int *out, const crl_layout *layout);
/* The pipeline with the most micro-batches. */
int crl_layout_fullest_pipeline(const crl_layout *layout);
/* Micro-batches that every stage holds at once, on the replica with the most. (S) */
crl_status crl_layout_in_flight(int *out, const crl_layout *layout);
/* Gradient buffers of the rank that needs the most. */
crl_status crl_layout_most_buffers(int *out, const crl_layout *layout);
/* Fills the machine and node_s, from `measured_s` where that is given. */
crl_status crl_layout_times(crl_layout *layout, const double *measured_s);
/* Weights, gradients and optimizer state that node n brings to its rank. */
double crl_layout_state_bytes(const crl_layout *layout, int n);
/* The first node of every stage, as the partitioner says. (S) */
crl_status crl_layout_cut(int *first_node, crl_layout *layout, const crl_registries *registries);
/* Fills what the plan's stages cost: stage (S), message_s, activation_limit_bytes. */
crl_status crl_layout_costs(crl_layout *layout);
/* Has the settings' memory limit a say in the order of the schedule? */
bool crl_layout_keeps_limit(const crl_layout *layout);
/* Lowers activation_limit_bytes of a schedule that keeps it until no rank reserves more than the
 * settings' limit, where that is possible. */
crl_status crl_layout_fit(crl_layout *layout);
/* Plug-ins know no files: says where the key was given that they refuse, or whose file is not
 * there. */
crl_status crl_layout_placed(crl_status status, const crl_settings *settings, const char *key);
